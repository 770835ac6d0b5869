package webhook_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github/githubtest"
)

const shopFile = "tenants/acme/deployments/shop.yaml"

const shop = `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: shop}
spec:
  source: {repoURL: "https://git.example.com/acme/shop.git", path: deploy, targetRevision: v2}
  destination:
    environments: [dev, prod] # for now
    namespace: shop
`

// lasting is the store of a Proposer in memory, and the branch on the small GitHub.
type lasting struct {
	*harbor
	now   forge.Lasting
	again time.Duration
	head  fleet.Revision
}

func (l *lasting) Lasting(context.Context) ([]forge.Lasting, error) {
	if len(l.now.Rollbacks) == 0 && l.now.State != forge.LastingOpen {
		return nil, nil
	}
	now := l.now
	now.Due = l.again == 0
	return []forge.Lasting{now}, nil
}

func (l *lasting) SaveLasting(_ context.Context, now forge.Lasting, again time.Duration) error {
	l.now, l.again = now, again
	return nil
}

func (l *lasting) Deployment(_ context.Context, id fleet.DeploymentID) (webhook.BranchFile,
	error) {
	path := "tenants/" + string(id.Tenant) + "/deployments/" + string(id.Name) + ".yaml"
	text, ok := l.repo.File("main", path)
	if !ok {
		return webhook.BranchFile{Commit: l.head}, webhook.ErrNoFile
	}
	return webhook.BranchFile{Path: path, Commit: l.head, Blob: githubtest.Blob(text),
		Text: []byte(text)}, nil
}

func (l *lasting) SetRevision(f webhook.BranchFile, env fleet.EnvironmentName, revision string) (
	[]byte, error) {
	return configschema.SetRevision(configschema.File{Path: f.Path, Blob: f.Blob, Bytes: f.Text},
		env, revision)
}

func (l *lasting) write(text string) { l.head = fleet.Revision(l.repo.Write(shopFile, text)) }

func (l *lasting) check() {
	l.Helper()
	p := webhook.Proposer{Forge: l.Forge.(webhook.Proposals), Records: l, Files: l, Branch: "main",
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if err := p.Check(l.Context()); err != nil {
		l.Fatal(err)
	}
}

func newLasting(t *testing.T) *lasting {
	l := &lasting{harbor: newHarbor(t), now: forge.Lasting{Deployment: fleet.DeploymentID{
		Tenant: "acme", Name: "shop"}, Rollbacks: []forge.Rollback{{Environment: "prod",
		Operation: "op1", Revision: strings.Repeat("4f", 20), By: "token:ops",
		Note: "@everyone | look: `here`"}}}}
	l.write(shop)
	return l
}

func (l *lasting) branch() string {
	text, _ := l.repo.File(l.now.Branch, shopFile)
	return text
}

func TestARollbackIsMadeLastingByOnePullRequest(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	l.check()
	pinned := shop + "  overrides:\n    - environment: prod\n      source:\n        targetRevision: " +
		strings.Repeat("4f", 20) + "\n"
	pull := l.repo.Pull(l.now.Proposed.Number)
	if l.now.State != forge.LastingOpen || l.branch() != pinned ||
		pull.Title != "Keep acme/shop in prod at 4f4f4f4" ||
		!strings.Contains(pull.Body, "| `prod` |") || strings.Contains(pull.Body, "| @") {
		t.Errorf("%+v, %q\n%s\n%s", l.now, pull.Title, pull.Body, l.branch())
	}
	writes := l.writes()
	l.check()
	if l.writes() != writes {
		t.Error("it is written again although nothing is new")
	}
	l.write(strings.Replace(shop, "for now", "for good", 1))
	l.check()
	if !strings.Contains(l.branch(), "for good") || !strings.Contains(l.branch(), "4f4f4f4") ||
		len(l.server.Asked()) == 0 || l.now.Proposed.Number != pull.Number {
		t.Errorf("after a commit of others: %+v\n%s", l.now, l.branch())
	}
	l.now.Rollbacks = append([]forge.Rollback{{Environment: "dev", Operation: "op2",
		Revision: "v1"}}, l.now.Rollbacks...)
	l.check()
	pull = l.repo.Pull(l.now.Proposed.Number)
	if !strings.Contains(l.branch(), "targetRevision: v1\n") || pull.Title != "Keep acme/shop in 2 environments at earlier revisions" {
		t.Errorf("of two rollbacks: %q\n%s", pull.Title, l.branch())
	}
	l.now.Rollbacks = nil
	l.check()
	if open := l.isOpen(); l.now.State != forge.LastingClosed || open || l.branch() != "" {
		t.Errorf("when the rollbacks have ended: %+v, open: %v", l.now, open)
	}
}

// isOpen reports whether the pull request is open.
func (l *lasting) isOpen() bool {
	l.Helper()
	p, err := l.Forge.Pull(l.Context(), l.now.Proposed.Number)
	if err != nil {
		l.Fatal(err)
	}
	return p.State == forge.PullOpen
}

func TestAPullRequestThatAPersonClosesIsNotOpenedAgain(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	l.check()
	first := l.now.Proposed.Number
	l.repo.Pull(first).Close()
	l.now.Pull = forge.PullClosed
	l.check()
	l.check()
	if l.now.State != forge.LastingClosed || l.now.Proposed.Number != first {
		t.Errorf("%+v", l.now)
	}
	l.now.Rollbacks[0].Operation = "op3"
	l.check()
	if l.now.State != forge.LastingOpen || l.now.Proposed.Number == first || !l.isOpen() {
		t.Errorf("of another rollback: %+v", l.now)
	}
	l.now.Pull = forge.PullMerged
	l.check()
	if l.now.State != forge.LastingMerged {
		t.Errorf("merged: %+v", l.now)
	}
}

func TestARollbackThatCannotBeMadeLastingHasAReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, why string
	}{
		"a deployment without a file": {"", "no file of its own"},
		"a file with an error": {strings.Replace(shop, "path:", "pth: a, path:", 1),
			"unknown-field"},
		"a file that declares it": {strings.Replace(shop, "targetRevision: v2", "targetRevision: "+
			strings.Repeat("4f", 20), 1), "declares it already"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLasting(t)
			if l.write(c.text); c.text == "" {
				l.now.Deployment.Name = "made"
			}
			l.check()
			writes := l.writes()
			l.check()
			if l.now.State != forge.LastingImpossible || !strings.Contains(l.now.Message, c.why) ||
				l.writes() != writes {
				t.Errorf("%+v", l.now)
			}
			if l.write(shop); c.text == "" {
				return
			}
			if l.check(); l.now.State != forge.LastingOpen || l.now.Message != "" {
				t.Errorf("with another file: %+v", l.now)
			}
		})
	}
}

func TestALostAnswerOpensNoSecondPullRequest(t *testing.T) {
	t.Parallel()
	for write := range 3 {
		for _, done := range []bool{false, true} {
			l := newLasting(t)
			l.gate.lose(write+1, done)
			l.check()
			if l.now.State == forge.LastingOpen || l.now.Message == "" || l.again == 0 {
				t.Fatalf("write %d, done %v: %+v", write+1, done, l.now)
			}
			l.again = 0
			l.check()
			open, err := l.Forge.OpenPulls(t.Context(), "main")
			if err != nil || len(open) != 1 || l.now.State != forge.LastingOpen ||
				!strings.Contains(l.branch(), "4f4f4f") {
				t.Errorf("write %d, done %v: %+v, %+v, %v", write+1, done, l.now, open, err)
			}
		}
	}
}

var errAway = errors.New("away")

type awayFiles struct{ webhook.Files }

func (awayFiles) Deployment(context.Context, fleet.DeploymentID) (webhook.BranchFile, error) {
	return webhook.BranchFile{}, errAway
}

// A file that cannot be read is not a file that is missing.
func TestABranchThatCannotBeReadChangesNoPullRequest(t *testing.T) {
	t.Parallel()
	l := newLasting(t)
	p := webhook.Proposer{Forge: l.Forge.(webhook.Proposals), Records: l, Files: awayFiles{},
		Branch: "main", Log: slog.New(slog.DiscardHandler)}
	if err := p.Check(t.Context()); !errors.Is(err, errAway) || l.now.State != forge.LastingNone {
		t.Errorf("%v, %+v", err, l.now)
	}
}
