package server

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

func TestASchemaThatIsSomebodyElsesIsOnlyChecked(t *testing.T) {
	p, err := stack.StartPostgres(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	url, err := p.NewDatabase(t.Context(), "argosy")
	if err != nil {
		t.Fatal(err)
	}
	open := func(migrate bool) error {
		t.Helper()
		d, err := openDatabase(t.Context(), settings.Database{URL: url, Migrate: migrate},
			slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		store, err := d.open(t.Context())
		if err == nil {
			store.Close()
		}
		return err
	}
	for range 2 { // the first call has not created it
		if err := open(false); !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(),
			"argosy migrate") {
			t.Errorf("an empty database: %v", err)
		}
	}
	for migrate, want := range map[bool]Level{true: LevelOK, false: LevelBlocking} {
		checks := Doctor(t.Context(), settings.Settings{Database: settings.Database{URL: url,
			Migrate: migrate}})
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Subject == "database" })
		if i < 0 || checks[i].Level() != want {
			t.Errorf("with migrate: %v, the doctor finds %+v", migrate, checks)
		}
	}
	if err := open(true); err != nil {
		t.Fatal(err)
	}
	if err := open(false); err != nil {
		t.Errorf("a schema that is new enough: %v", err)
	}
}
