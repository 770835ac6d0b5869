package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/test/stack"
)

// house is a fleet in miniature: a real config repo behind a real Git server, a real database,
// engines in memory. Replicas come and go.
type house struct {
	t       testing.TB
	repo    *stack.Repo
	url     string // of the database
	store   *postgres.Store
	engines map[fleet.EngineName]*site
	secrets *vault
}

var houses atomic.Int64

func newHouse(t testing.TB, files map[string]string) *house {
	t.Helper()
	h := &house{t: t, secrets: &vault{missing: map[string]bool{}},
		engines: map[fleet.EngineName]*site{"eu-1": newSite("eu-1"), "eu-2": newSite("eu-2")}}
	var err error
	if h.repo, err = gitHost.CreateRepo(t.Context(),
		fmt.Sprintf("config-%d", houses.Add(1))); err != nil {
		t.Fatal(err)
	}
	h.newDatabase()
	h.commit("begin", files)
	return h
}

// newDatabase is an empty mirror: the state after a loss of the database.
func (h *house) newDatabase() {
	h.t.Helper()
	name := fmt.Sprintf("house_%d", houses.Add(1))
	url, err := database.NewDatabaseFrom(h.t.Context(), "mirror", name)
	if err != nil {
		h.t.Fatal(err)
	}
	h.url = url
	if h.store, err = postgres.Open(context.Background(), url, postgres.Options{}); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(h.store.Close)
}

// commit writes files and removes those whose text is "".
func (h *house) commit(message string, files map[string]string) fleet.Revision {
	h.t.Helper()
	c := stack.Change{Message: message, Write: map[string]string{}}
	for path, text := range files {
		if text == "" {
			c.Remove = append(c.Remove, path)
		} else {
			c.Write[path] = text
		}
	}
	head, err := h.repo.Apply(context.Background(), c)
	if err != nil {
		h.t.Fatal(err)
	}
	return fleet.Revision(head)
}

func (h *house) head() fleet.Revision {
	h.t.Helper()
	head, err := h.repo.Head(context.Background(), "main")
	if err != nil {
		h.t.Fatal(err)
	}
	return fleet.Revision(head)
}

// limit is for a condition to come true on a busy machine.
const limit = 2 * time.Minute

// eventually waits for a condition, and fails with its last error.
func (h *house) eventually(what string, holds func() error) {
	h.t.Helper()
	deadline := time.Now().Add(limit)
	for pause := 10 * time.Millisecond; ; pause = min(pause*5/4, 100*time.Millisecond) {
		err := holds()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(pause)
	}
}

// rows are the desired objects of all engines.
func (h *house) rows() map[fleet.ObjectKey]mirror.Row {
	h.t.Helper()
	all := map[fleet.ObjectKey]mirror.Row{}
	for name := range h.engines {
		rows, err := h.store.Work.Changed(context.Background(), name, 0, 10_000)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, r := range rows {
			all[r.Key] = r
		}
	}
	return all
}

// converged returns an error while the engines do not hold exactly what the head's rows want, each
// of them acknowledged.
func (h *house) converged() error {
	source, err := h.store.Views.Source(context.Background())
	if err != nil {
		return err
	}
	if head := h.head(); source.Applied != head {
		return fmt.Errorf("revision %s is applied, not the head %s; the source has %q",
			source.Applied.Short(), head.Short(), source.Error)
	}
	wanted := h.rows()
	for key, row := range wanted {
		switch {
		case row.Unwanted:
			return fmt.Errorf("%s %s is not removed yet", key.Kind, key.Name)
		case row.Apply != mirror.ApplyApplied:
			return fmt.Errorf("%s %s is %s", key.Kind, key.Name, row.Apply)
		case !h.engines[key.Engine].server.Exists(key):
			return fmt.Errorf("%s %s is not on %s", key.Kind, key.Name, key.Engine)
		}
	}
	for name, e := range h.engines {
		for _, live := range e.inventory() {
			if row, ok := wanted[live.Key]; !ok || live.Hash != row.Manifest.Hash {
				return fmt.Errorf("%s %s on %s is not what a row wants (wanted: %v)", live.Key.Kind,
					live.Key.Name, name, ok)
			}
		}
	}
	return nil
}

// application is the mirror's view of one Application.
func (h *house) application(id string) view.Application {
	h.t.Helper()
	all, _, err := h.store.Views.Applications(context.Background(), view.Scope{}, view.Filter{},
		view.Page{Limit: 1000})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, a := range all {
		if fmt.Sprintf("%s/%s@%s", a.Tenant, a.Deployment, a.Environment) == id {
			return a
		}
	}
	return view.Application{}
}

// vault holds every secret, but for those that are missing.
type vault struct {
	mu      sync.Mutex
	missing map[string]bool
	token   string
	panics  string // name of a secret whose reading panics
}

var errNoSecret = errors.New("there is no such secret")

// Get is worker.Secrets.
func (v *vault) Get(_ context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.panics == ref.Name {
		panic("a fault of the reader")
	}
	if v.missing[ref.Name] {
		return fleet.Secret{}, fmt.Errorf("secret %s of tenant %s: %w", ref.Name, ref.Tenant,
			errNoSecret)
	}
	return fleet.NewSecret(map[string][]byte{"token": []byte("canary-" + v.token),
		"username": []byte("git"), "password": []byte("canary-" + v.token),
		"signingKey": []byte("canary-of-a-signing-key-" + v.token)}), nil
}

func (v *vault) lose(name string, lost bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.missing[name] = lost
}

func (v *vault) panicOn(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.panics = name
}

func (v *vault) rotate(token string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.token = token
}

// The config repo.

const guards = `{maxDeletes: 3, maxDeletePercent: 100, alwaysAllowed: 1, window: 1h}`

func platform() map[string]string {
	files := map[string]string{
		"fleet/fleet.yaml": document("Fleet", "fleet",
			"guards: "+guards+"\n  gitHosts: [git.example.com]"),
	}
	for _, e := range []string{"eu-1", "eu-2"} {
		files["fleet/engines/"+e+".yaml"] = document("Engine", e, fmt.Sprintf(
			"argocd: {namespace: argocd-%s, installationID: %s}\n  connection: {kubeconfigRef: "+
				"{name: engine-%s}}\n  region: eu\n  capacity: {applications: 500, "+
				"environments: 50}", e, e, e))
	}
	return files
}

func tenant(name string, environments ...string) map[string]string {
	files := map[string]string{"fleet/tenants/" + name + ".yaml": document("Tenant", name,
		fmt.Sprintf(
			"owners: [\"group:%s\"]\n  quota: {environments: 10, deployments: 300, applications: "+
				"400}\n  repositories: [\"https://git.example.com/%s/\"]\n  clusters: "+
				"[.%s.example.com]\n  placement: {regions: [eu]}", name, name, name))}
	for _, e := range environments {
		files["tenants/"+name+"/environments/"+e+".yaml"] = document("ManagedEnvironment", e,
			fmt.Sprintf(
				"cluster: {server: \"https://%s.%s.example.com:6443\", credentialsRef: {name: "+
					"%s}}\n  namespaces: [%s-web]\n  region: eu", e, name, e, name))
	}
	return files
}

func deployment(tenant, name, revision, policy string, environments ...string) map[string]string {
	return map[string]string{"tenants/" + tenant + "/deployments/" + name + ".yaml": document(
		"GitOpsDeployment", name, fmt.Sprintf(
			"source: {repoURL: \"https://git.example.com/%s/%s\", path: deploy, targetRevision: "+
				"%s}\n  destination: {environments: [%s], namespace: %s-web}\n  deletionPolicy: %s",
			tenant, name, revision, strings.Join(environments, ", "), tenant, policy))}
}

func document(kind, name, spec string) string {
	return fmt.Sprintf(
		"apiVersion: argosy.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec:\n  %s\n", kind,
		name, spec)
}

func together(parts ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

// gone removes files.
func gone(files map[string]string) map[string]string {
	out := map[string]string{}
	for path := range files {
		out[path] = ""
	}
	return out
}

// small is the fleet that most tests begin with.
func small() map[string]string {
	return together(platform(), tenant("acme", "prod", "staging"), tenant("globex", "prod"),
		deployment("acme", "web", "v1", "Delete", "prod", "staging"),
		deployment("globex", "shop", "v1", "Orphan", "prod"))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
