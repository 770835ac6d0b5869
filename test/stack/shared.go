package stack

import (
	"context"
	"sync"
)

var shared struct {
	sync.Mutex
	postgres *Postgres
}

// SharedPostgres is one PostgreSQL server for the whole process, started by the
// first call, so that each test pays for a database only. The process ends it
// with StopShared, in a test by
//
//	func TestMain(m *testing.M) {
//		code := m.Run()
//		stack.StopShared()
//		os.Exit(code)
//	}
func SharedPostgres(ctx context.Context) (*Postgres, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.postgres != nil {
		return shared.postgres, nil
	}
	p, err := StartPostgres(ctx, "")
	if err == nil {
		shared.postgres = p
	}
	return p, err
}

// StopShared ends what SharedPostgres started, if it did.
func StopShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.postgres == nil {
		return nil
	}
	defer func() { shared.postgres = nil }()
	return shared.postgres.Stop()
}
