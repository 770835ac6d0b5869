package chaos

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// duel is a world with one settled Application, globex/shop@prod, whose engine's lease is known.
type duel struct {
	*setup
	engine string
}

func newDuel(t *testing.T) *duel {
	t.Helper()
	w := &duel{setup: newSetup(t, false)}
	t.Cleanup(w.close)
	file, text := deployment("globex", "shop", 1, "Delete", []string{"prod"})
	w.commit("begin", stack.Change{Write: map[string]string{file: text}})
	w.waitFor("the Application lives", convergeWithin, w.at("shop", "v1"))
	w.waitFor("it is acknowledged", convergeWithin, w.applied)
	if err := w.ask(
		`SELECT engine FROM placements WHERE tenant = 'globex' AND environment = 'prod'`,
		&w.engine); err != nil {
		t.Fatal(err)
	}
	return w
}

// ask reads one value from the store.
func (w *duel) ask(sql string, into any, args ...any) error {
	conn, err := pgx.Connect(w.ctx, *w.direct.Load())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(w.ctx))
	return conn.QueryRow(w.ctx, sql, args...).Scan(into)
}

// leader is the replica that holds the engine's lease, and the other one.
func (w *duel) leader() (holder, other *replica) {
	w.t.Helper()
	w.waitFor("a replica leads", 5*time.Minute, func() error {
		var name string
		err := w.ask(
			`SELECT holder FROM leases WHERE name = 'engine/' || $1 AND expires_at > now()`, &name,
			w.engine)
		for i, r := range w.replicas {
			if strings.Contains(name, fmt.Sprintf("/%d/", r.process.PID())) {
				holder, other = r, w.replicas[1-i]
			}
		}
		if err == nil && holder == nil {
			err = fmt.Errorf("no replica is %q", name)
		}
		return err
	})
	return holder, other
}

// at reports whether the one Application of globex's deployment is at the revision; "" for none at
// all.
func (w *duel) at(name, revision string) func() error {
	return func() error {
		all, err := w.live()
		if err != nil {
			return err
		}
		objects := all[app{"globex", name, "prod"}]
		is := ""
		for _, o := range objects {
			is, _, _ = unstructured.NestedString(o.Object, "spec", "source", "targetRevision")
		}
		if is != revision || len(objects) > 1 {
			return fmt.Errorf("%d objects, at %q", len(objects), is)
		}
		return nil
	}
}

// applied reports whether the head is recorded and applied completely.
func (w *duel) applied() error {
	head, err := w.repo.Head(w.ctx, "main")
	if err != nil {
		return err
	}
	var left int
	err = w.ask(`SELECT (SELECT count(*) FROM mirror WHERE applied <> $1) + count(*) FROM desired d
		LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Applied'
		WHERE s.name IS NULL`, &left, head)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d rows wait", left)
	}
	return err
}

// holdAndKill holds the write that the change leads to on the wire, and kills who sent it. It
// returns the replica that is left and the name of the written object.
func (w *duel) holdAndKill(what string, change, undo stack.Change) (held *stack.Held, left *replica,
	name string) {
	w.t.Helper()
	dead, left := w.leader()
	held = dead.proxies[w.engine].Hold(func(q *http.Request) bool {
		kind, written := kindOf(q.URL.Path)
		if kind != "applications" || q.Method != http.MethodPatch || written == engine.ProbeName {
			return false
		}
		name = written
		return true
	})
	w.commit(what, change)
	select {
	case <-held.Arrived:
	case <-time.After(5 * time.Minute):
		w.t.Fatal("the write was not sent")
	}
	dead.process.Kill()
	w.commit("undo: "+what, undo)
	w.waitFor("the other replica has applied the head", 5*time.Minute, w.applied)
	return held, left, name
}

// release delivers the held request and logs the status of its answer.
func (w *duel) release(held *stack.Held) {
	w.t.Helper()
	held.Release()
	select {
	case <-held.Over:
	case <-time.After(5 * time.Minute):
		w.t.Fatal("the late write was not answered")
	}
	if held.Status >= 300 {
		w.t.Fatalf("the late write was refused: %d", held.Status)
	}
}

func (w *duel) orphans(r *replica, want int) func() error {
	return func() error {
		all, err := r.client.Orphans(w.ctx, view.Filter{}, 100)
		if err == nil && len(all) != want {
			err = fmt.Errorf("%d orphans, want %d: %+v", len(all), want, all)
		}
		return err
	}
}

// counted reports whether the metric has that many orphans on the engine.
func (w *duel) counted(r *replica, want int) func() error {
	return func() error {
		request, err := http.NewRequestWithContext(w.ctx, http.MethodGet, r.ops+"/metrics",
			http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if line := fmt.Sprintf("argosy_strays{engine=%q} %d\n", w.engine, want); err == nil &&
			!strings.Contains(string(text), line) {
			err = fmt.Errorf("no %s", line)
		}
		return err
	}
}

// A late request of an ended replica creates an object after its deletion was confirmed and its
// tombstone has expired. The object is an orphan, which is listed, counted, and removed by a
// decision.
func TestACreateThatArrivesAfterItsDeletionIsNoGhost(t *testing.T) {
	w := newDuel(t)
	file, text := deployment("globex", "cart", 1, "Delete", []string{"prod"})
	create, remove := stack.Change{Write: map[string]string{file: text}}, stack.Change{
		Remove: []string{file}}
	held, left, name := w.holdAndKill("cart is created", create, remove)
	var tombs int
	if err := w.ask(
		`WITH gone AS (DELETE FROM tombstones WHERE name = $1 RETURNING 1) SELECT count(*) FROM gone`, &tombs, name); err != nil || tombs != 1 {
		t.Fatalf("%d tombstones of %s: %v", tombs, name, err)
	}
	w.release(held)
	w.waitFor("the ghost is listed", 5*time.Minute, w.orphans(left, 1))
	w.waitFor("and counted", 5*time.Minute, w.counted(left, 1))
	all, err := left.client.Orphans(w.ctx, view.Filter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	if string(s.Engine) != w.engine || s.Name != name || s.Deployment != "cart" ||
		s.Tenant != "globex" {
		t.Errorf("listed as %+v", s)
	}
	removal := mirror.OrphanRemoval{Engine: s.Engine, Kind: s.Kind, Name: s.Name, UID: "another",
		Deletion: fleet.DeletionOrphan}
	if _, err := left.client.RemoveOrphan(w.ctx, removal); err == nil {
		t.Error("a decision about another UID is taken")
	}
	if err := w.at("cart", "v1")(); err != nil {
		t.Error("before anybody has decided:", err)
	}
	removal.UID = s.UID
	if _, err := left.client.RemoveOrphan(w.ctx, removal); err != nil {
		t.Fatal(err)
	}
	w.waitFor("it is removed", 5*time.Minute, w.at("cart", ""))
	w.waitFor("and listed no more", 5*time.Minute, w.orphans(left, 0))
	w.waitFor("nor counted", 5*time.Minute, w.counted(left, 0))
	if err := w.at("shop", "v1")(); err != nil {
		t.Error("another Application:", err)
	}
}

// While the tombstone of the deletion exists, an object that such a request creates is removed by
// itself.
func TestACreateThatArrivesSoonAfterItsDeletionIsUndone(t *testing.T) {
	w := newDuel(t)
	file, text := deployment("globex", "cart", 1, "Delete", []string{"prod"})
	held, left, _ := w.holdAndKill("cart is created", stack.Change{
		Write: map[string]string{file: text}}, stack.Change{Remove: []string{file}})
	if err := w.at("cart", "")(); err != nil {
		t.Fatal(err)
	}
	w.release(held)
	w.waitFor("it is removed again", 5*time.Minute, w.at("cart", ""))
	w.waitFor("and no orphan", 5*time.Minute, w.orphans(left, 0))
	if err := w.at("shop", "v1")(); err != nil {
		t.Error("another Application:", err)
	}
}

// Every object is verified once in an hour: the watch notices this.
func TestAnUpdateThatArrivesAfterItsRevertIsRevertedAgain(t *testing.T) {
	w := newDuel(t)
	file, v1 := deployment("globex", "shop", 1, "Delete", []string{"prod"})
	_, v2 := deployment("globex", "shop", 2, "Delete", []string{"prod"})
	held, _, _ := w.holdAndKill("an update", stack.Change{Write: map[string]string{file: v2}},
		stack.Change{Write: map[string]string{file: v1}})
	if err := w.at("shop", "v1")(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.release(held)
	w.waitFor("the late update is reverted", 5*time.Minute, w.at("shop", "v1"))
	t.Logf("reverted after %s", time.Since(began).Round(10*time.Millisecond))
}
