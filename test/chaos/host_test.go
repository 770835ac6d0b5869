package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/stack"
)

// unreviewed begins what the stranger has written: no engine may ever hold it.
const unreviewed = "unreviewed-"

// host is the Git host of a history that has one. The platform's account may push directly. The
// stranger may write to the repository too, and its changes have no review.
type host struct {
	*stack.Forge
	repo               *stack.ForgeRepo
	platform, stranger stack.Account
	hooks              *httptest.Server // leads each delivery to a replica that answers
	secret             string
	lost               atomic.Int32 // the number of deliveries to drop

	strange map[string]bool            // paths that hold the stranger's content on the branch now
	at      map[string]map[string]bool // by commit: strange, as it was then
}

// gitea is shared by the histories of a run, as the API server is.
var gitea struct {
	sync.Mutex
	forge    *stack.Forge
	postgres *stack.Postgres
	accounts [2]stack.Account
	repos    int
}

// startGitea starts the forge once, for the first history that has a Git host.
func startGitea(ctx context.Context, t testing.TB) {
	t.Helper()
	if gitea.forge != nil {
		return
	}
	gitea.postgres = must(stack.StartPostgres(ctx, ""))(t)
	database := must(gitea.postgres.NewDatabase(ctx, "gitea"))(t)
	gitea.forge = must(stack.StartForge(ctx, stack.ForgeOptions{Database: database}))(t)
	if err := gitea.forge.CreateOrg(ctx, "fleet"); err != nil {
		t.Fatal(err)
	}
	for i, login := range []string{"platform", "stranger"} {
		gitea.accounts[i] = must(gitea.forge.CreateUser(ctx, login))(t)
	}
}

// stopGitea ends it after the last history.
func stopGitea() error {
	if gitea.forge == nil {
		return nil
	}
	err := gitea.forge.Stop()
	if pg := gitea.postgres.Stop(); err == nil {
		err = pg
	}
	return err
}

// startHost makes a repository for this history, with the platform's files in it.
func (w *setup) startHost() {
	gitea.Lock()
	defer gitea.Unlock()
	startGitea(w.ctx, w.t)
	gitea.repos++
	h := &host{
		Forge: gitea.forge, platform: gitea.accounts[0], stranger: gitea.accounts[1],
		secret:  "a-webhook-secret-that-is-long-enough",
		strange: map[string]bool{}, at: map[string]map[string]bool{},
	}
	h.repo = must(h.CreateRepo(w.ctx, "fleet", fmt.Sprintf("config-%d", gitea.repos), false))(w.t)
	for _, a := range gitea.accounts {
		if err := h.repo.Allow(w.ctx, a, "write"); err != nil {
			w.t.Fatal(err)
		}
	}
	h.hooks = httptest.NewServer(http.HandlerFunc(w.deliver))
	w.host = h
	w.push(stack.Change{Message: "begin", Write: w.platform()})
	hook := h.hooks.URL + "/webhook/github"
	if err := h.repo.CreateHook(w.ctx, hook, h.secret, "push", "pull_request",
		"pull_request_review"); err != nil {
		w.t.Fatal(err)
	}
}

// deliver hands a delivery to the first replica that takes it, as a load balancer would. A delivery
// that no replica takes is lost: Gitea never sends it again.
func (w *setup) deliver(rw http.ResponseWriter, q *http.Request) {
	if w.host.lost.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	content, err := io.ReadAll(q.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for _, r := range w.replicas {
		again := q.Clone(q.Context())
		again.RequestURI, again.Host = "", ""
		again.URL = must(url.Parse(r.address + q.URL.Path))(w.t)
		again.Body = io.NopCloser(strings.NewReader(string(content)))
		answer, err := http.DefaultClient.Do(again)
		if err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode < 300 {
			rw.WriteHeader(answer.StatusCode)
			return
		}
	}
	rw.WriteHeader(http.StatusServiceUnavailable)
}

// forgeSettings are the replica's of the Git host, reached by way of the front that lies.
func (w *setup) forgeSettings() string {
	if w.host == nil {
		return ""
	}
	token, secret := filepath.Join(w.dir, "forge-token"), filepath.Join(w.dir, "hook-secret")
	for file, text := range map[string]string{token: w.host.Admin.Token, secret: w.host.secret} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	return fmt.Sprintf(
		"forge: {api: %q, repository: %q, allowHTTP: true, tokenFile: %q, webhookSecretFiles: "+
			"[%q], sweep: 10s, directPush: [\"github:platform\"]}\n",
		w.front.URL+"/api/v1/", w.host.repo.Name, token, secret)
}

// source is the path of the config repo below the front.
func (w *setup) source() string {
	if w.host == nil {
		return "/config"
	}
	return "/" + w.host.repo.Name + ".git"
}

// push brings a change of the platform's onto the branch.
func (w *setup) push(c stack.Change) {
	maps.Copy(w.content, c.Write)
	for _, path := range c.Remove {
		delete(w.content, path)
	}
	if w.host == nil {
		w.head = must(w.repo.Apply(w.ctx, c))(w.t)
		return
	}
	for _, path := range append(slices.Collect(maps.Keys(c.Write)), c.Remove...) {
		delete(w.host.strange, path)
	}
	w.arrived(must(w.host.repo.Push(w.ctx, w.host.platform, c))(w.t))
}

// arrived notes what the branch's new head holds of the stranger's.
func (w *setup) arrived(head string) {
	w.head = head
	w.host.at[head] = maps.Clone(w.host.strange)
}

// strangeHold reports whether an approval of the hold would let in what the stranger wrote.
func (w *setup) strangeHold(hold mirror.Hold) bool {
	if w.host == nil {
		return false
	}
	for _, path := range hold.Paths {
		if w.host.at[string(hold.Revision)][path] {
			return true
		}
	}
	return false
}

// intrude brings an unreviewed change onto the branch: a direct push of an account that is not
// listed, or a pull request that is merged although no owner has approved it. It changes a
// deployment or removes it. Without a Git host every account that may push has reviewed it, and
// this is an ordinary edit.
func (w *setup) intrude(n int, random *rand.Rand) {
	all := w.model.deployments()
	if w.host == nil || len(all) == 0 {
		w.edit(n, random)
		return
	}
	h := w.host
	tenant, name, _ := strings.Cut(all[random.IntN(len(all))], "/")
	path, text := deployment(tenant, name, 0, "Delete", environments[tenant])
	c := stack.Change{Message: "intrude"}
	if random.IntN(3) == 0 {
		c.Remove = []string{path}
	} else {
		text = strings.Replace(text, "targetRevision: v0", fmt.Sprintf("targetRevision: %s%d",
			unreviewed, n), 1)
		c.Write = map[string]string{path: text}
	}
	if _, there := w.content[path]; !there || h.strange[path] {
		return // the branch has it no more, or has the stranger's already
	}
	w.model.intruded(tenant, name)
	h.strange[path] = true
	if random.IntN(2) == 0 {
		w.arrived(must(h.repo.Push(w.ctx, h.stranger, c))(w.t))
	} else {
		c.Branch = fmt.Sprintf("intrude-%d", n)
		must(h.repo.Push(w.ctx, h.stranger, c))(w.t)
		number := must(h.repo.OpenPull(w.ctx, h.stranger, c.Message, c.Branch, "main"))(w.t)
		style := []string{"merge", "squash", "rebase"}[random.IntN(3)]
		w.arrived(must(h.repo.Merge(w.ctx, h.stranger, number, style))(w.t))
	}
	w.pause(random, 5*time.Second)
}

// loseDeliveries keeps the next deliveries from every replica, so that none learns who pushed.
func (w *setup) loseDeliveries(n int, random *rand.Rand) {
	if w.host != nil {
		w.host.lost.Store(int32(1 + random.IntN(3)))
	}
	w.edit(n, random)
}

// expel gives the stranger's paths the platform's content again.
func (w *setup) expel() {
	if w.host == nil || len(w.host.strange) == 0 {
		return
	}
	c := stack.Change{Message: "expel", Write: map[string]string{}}
	for path := range w.host.strange {
		c.Write[path] = w.content[path]
	}
	w.push(c)
}
