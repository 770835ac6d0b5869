package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/test/stack"
)

// BenchmarkTakeover measures how long the next change takes to reach its engine when the replica
// that holds the engine's lease ends: killed, or asked to stop. "undisturbed" is the same change with
// nobody ending, the floor of the same run; it includes the poll of the config repo, one second.
func BenchmarkTakeover(b *testing.B) {
	for _, c := range []struct {
		name string
		end  func(*replica)
	}{
		{"undisturbed", func(*replica) {}},
		{"stopped", func(r *replica) { r.process.Stop() }},
		{"killed", func(r *replica) { r.process.Kill() }},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newWorld(b, false)
			defer w.close()
			w.waitFor("the fleet begins", convergeWithin, func() error {
				_, err := w.replicas[0].client.Source(w.ctx)
				return err
			})
			took := []time.Duration{}
			w.change(b, 1)
			for n := 2; b.Loop(); n++ {
				holder := w.holder(b)
				began := time.Now()
				c.end(holder)
				w.change(b, n)
				took = append(took, time.Since(began))
				w.start(holder)
				w.waitFor("both replicas answer", time.Minute, func() error {
					_, err := holder.client.Source(w.ctx)
					return err
				})
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2].Seconds(), "p50-s")
			b.ReportMetric(took[len(took)-1].Seconds(), "max-s")
		})
	}
}

// change commits one Application at a version and waits until it lives.
func (w *world) change(b *testing.B, version int) {
	w.model.set("globex", "web", version, "prod")
	path, text := deployment("globex", "web", version, "Delete", []string{"prod"})
	w.commit(fmt.Sprintf("version %d", version), stack.Change{Write: map[string]string{path: text}})
	w.waitFor("the change arrives", time.Minute, func() error {
		live, err := w.live()
		if err != nil {
			return err
		}
		for _, o := range live[app{"globex", "web", "prod"}] {
			if got, _, _ := unstructured.NestedString(o.Object, "spec", "source", "targetRevision"); got == fmt.Sprintf("v%d", version) {
				return nil
			}
		}
		return fmt.Errorf("v%d does not live", version)
	})
}

// holder is the replica with the lease of the engine that has the Application.
func (w *world) holder(b *testing.B) *replica {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	var name string
	err = conn.QueryRow(w.ctx, `SELECT l.holder FROM leases l JOIN placements p ON l.name = 'engine/' || p.engine
		WHERE p.tenant = 'globex' AND p.environment = 'prod'`).Scan(&name)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range w.replicas {
		if strings.Contains(name, fmt.Sprintf("/%d/", r.process.PID())) {
			return r
		}
	}
	b.Fatalf("no replica is %s", name)
	return nil
}
