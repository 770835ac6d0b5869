package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
)

const (
	hookSecret   = "the secret of the webhook under measurement"
	repositoryID = 42
)

// gitHost answers what a control plane asks GitHub about merged pull requests: each commit of the
// repo is the merge of one whose head its owners approved.
type gitHost struct {
	*httptest.Server

	mu      sync.Mutex
	numbers map[string]int // commit to pull request
	commits []string       // of each pull request, from number 1 on
}

func startGitHost() *gitHost {
	h := &gitHost{numbers: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /repos/platform/config", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"id": repositoryID, "full_name": "platform/config"})
	})
	mux.HandleFunc("GET /repos/platform/config/commits/{commit}/pulls",
		func(w http.ResponseWriter, r *http.Request) {
			pulls := []any{}
			if n := h.number(r.PathValue("commit")); n > 0 {
				pulls = append(pulls, h.pull(n))
			}
			answer(w, pulls)
		})
	mux.HandleFunc("GET /repos/platform/config/pulls/{number}",
		func(w http.ResponseWriter, r *http.Request) {
			var n int
			if _, err := fmt.Sscan(r.PathValue("number"), &n); err != nil || h.commit(n) == "" {
				http.NotFound(w, r)
				return
			}
			answer(w, h.pull(n))
		})
	mux.HandleFunc("GET /repos/platform/config/pulls",
		func(w http.ResponseWriter, _ *http.Request) {
			answer(w, []any{})
		})
	h.Server = httptest.NewServer(mux)
	return h
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may have closed the connection
}

// merged makes a commit the merge of a new pull request, and returns its number.
func (h *gitHost) merged(commit string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits = append(h.commits, commit)
	h.numbers[commit] = len(h.commits)
	return len(h.commits)
}

func (h *gitHost) number(commit string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.numbers[commit]
}

func (h *gitHost) commit(n int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n < 1 || n > len(h.commits) {
		return ""
	}
	return h.commits[n-1]
}

// headOf is the head that a pull request had before it was merged by squash.
func headOf(n int) string { return fmt.Sprintf("%040x", n) }

func (h *gitHost) pull(n int) map[string]any {
	repository := map[string]any{"id": repositoryID, "full_name": "platform/config"}
	person := map[string]any{"id": 7, "login": "alice"}
	return map[string]any{
		"number": n, "state": "closed", "merged": true, "merged_at": "2026-11-22T00:00:00Z",
		"title":            "a release",
		"merge_commit_sha": h.commit(n), "user": person, "updated_at": "2026-11-22T00:00:00Z",
		"base": map[string]any{"ref": "main", "repo": repository, "label": "platform:main"},
		"head": map[string]any{"sha": headOf(n), "repo": repository, "label": "platform:release"},
	}
}

// settings are those of a control plane with this Git host, and the files that they name.
func (h *gitHost) settings() (text string, files map[string]string) {
	return fmt.Sprintf(
			"forge: {api: %q, repository: platform/config, repositoryID: %d, allowHTTP: true, "+
				"tokenFile: forge-token, webhookSecretFiles: [hook-secret], sweep: 1h}\n",
			h.URL+"/",
			repositoryID),
		map[string]string{"forge-token": "ghp_benchmark0123456789", "hook-secret": hookSecret}
}

// commit commits files as the merge of a pull request whose head showed them and whose owners
// approved it.
func (p *plane) commit(ctx context.Context, message string, files map[string]string) error {
	commit, err := p.repo.Commit(ctx, message, files)
	if err != nil {
		return err
	}
	n := p.ground.host.merged(commit)
	shown := make(map[string]string, len(files))
	for path, text := range files {
		shown[path] = blob(text)
	}
	head := fleet.Revision(headOf(n))
	body, err := json.Marshal(forge.PullRecord{
		Pull: forge.Pull{Number: n, State: forge.PullMerged, Base: "main", Head: head,
			MergeCommit: fleet.Revision(commit), UpdatedAt: time.Now()},
		Consented: head, ShownAt: head, Shown: shown, Finished: true,
	})
	if err != nil {
		return err
	}
	_, err = p.notify.Exec(ctx, `
		INSERT INTO pulls (number, state, head, settled, tenants, tenant_uids, body)
		VALUES ($1, 'merged', $2, true, '{}', '{}', $3)`, n, string(head), string(body))
	return err
}

// blob is Git's id of a file's content.
func blob(text string) string {
	sum := sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(text), text)) //nolint:gosec // Git's own
	return hex.EncodeToString(sum[:])
}

// push delivers the branch's push as the Git host signs it.
func (p *plane) push(ctx context.Context) error {
	return p.deliver(
		ctx, fmt.Sprintf(`{"ref":"refs/heads/main","repository":{"id":%d}}`, repositoryID), "push")
}

// deliver sends one signed delivery.
func (p *plane) deliver(ctx context.Context, body, event string) error {
	mac := hmac.New(sha256.New, []byte(hookSecret))
	mac.Write([]byte(body))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.listen+"/webhook/github",
		strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", rand.Text())
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	_, err = text.ReadFrom(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil &&
		res.StatusCode != http.StatusAccepted {
		err = fmt.Errorf("a delivery was answered %s: %s", res.Status, text.String())
	}
	return err
}
