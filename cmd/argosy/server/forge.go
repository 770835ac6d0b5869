package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/plan/reviews"
	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github"
)

// hookPath receives the Git host's deliveries.
const hookPath = "/webhook/github"

// leastSecret is how long a webhook's secret has to be, in bytes.
const leastSecret = 16

// openForge builds the client of the Git host. The client reads its token or key from the file for
// each use.
func openForge(s settings.Settings, version string) (*github.Forge, error) {
	f := s.Forge
	c := github.Config{BaseURL: f.API, Repository: f.Repository, RepositoryID: f.RepositoryID,
		AllowHTTP: f.AllowHTTP, UserAgent: "argosy/" + version, Proposals: f.Proposals}
	if s.Listen.Public != "" {
		c.HookURL = strings.TrimSuffix(s.Listen.Public, "/") + hookPath
	}
	if f.CAFile != "" {
		roots, err := rootsIn("forge.caFile", f.CAFile)
		if err != nil {
			return nil, err
		}
		c.Roots = roots
	}
	if f.App != nil {
		c.Auth.App = &github.App{ID: f.App.ID, InstallationID: f.App.InstallationID,
			Key: func(context.Context) ([]byte, error) {
				return readSecretFile("forge.app.keyFile", f.App.KeyFile)
			}}
	} else {
		c.Auth.Token = func(context.Context) (string, error) {
			token, err := readSecretFile("forge.tokenFile", f.TokenFile)
			return string(token), err
		}
	}
	return github.New(c)
}

// rootsIn reads certificates from a file.
func rootsIn(field, path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s %s holds no certificate in PEM form", field, path)
	}
	return roots, nil
}

// hookSecrets reads the secrets for each delivery, so that a new one works at once.
func hookSecrets(files []string) webhook.Secrets {
	return func() ([]fleet.Secret, error) {
		var all []fleet.Secret
		for _, path := range files {
			b, err := readSecretFile("forge.webhookSecretFiles", path)
			if err != nil {
				return nil, err
			}
			if len(b) < leastSecret {
				return nil,
					fmt.Errorf("forge.webhookSecretFiles: %s holds fewer than %d characters", path,
						leastSecret)
			}
			all = append(all, fleet.NewSecret(map[string][]byte{webhook.SecretKey: b}))
		}
		return all, nil
	}
}

// pulls is the review of pull requests; nil without a Git host.
type pulls struct {
	forge    *github.Forge
	reviewer *webhook.Reviewer
	receiver http.Handler // nil without a webhook secret
}

// connectForge connects the loop to the Git host: what it knows of reviews, and the pull requests
// that previews read.
func (v *Server) connectForge(loop *reconciler.Config) error {
	f := v.settings.Forge
	if f == nil {
		return nil
	}
	forge, err := openForge(v.settings, v.version)
	if err != nil {
		return fmt.Errorf("forge: %w", err)
	}
	v.pulls = &pulls{forge: forge}
	loop.Pulls = source{v.mirror, v.log}
	loop.Reviews = branchReviews{v.mirror, webhook.NewReviews(webhook.ReviewsConfig{
		Host: f.API, Pulls: forge, Records: v.store.Pulls, Branch: v.settings.Source.Branch,
		DirectPush: f.DirectPush, Log: v.log,
	})}
	return nil
}

// assemblePulls builds the review of pull requests on top of the loop.
func (v *Server) assemblePulls() error {
	f := v.settings.Forge
	if f == nil {
		return nil
	}
	v.pulls.reviewer = webhook.NewReviewer(webhook.Config{
		Forge: v.pulls.forge, Host: f.API, Planner: planner{v.loop, v.mirror},
		Records: v.store.Pulls,
		Status:  v.store.Views, Branch: v.settings.Source.Branch,
		Public: strings.TrimSuffix(v.settings.Listen.Public, "/"), Sweep: time.Duration(f.Sweep),
		Log: v.log,
	})
	if len(f.WebhookSecrets) == 0 {
		return nil
	}
	secrets := hookSecrets(f.WebhookSecrets)
	if _, err := secrets(); err != nil {
		return err
	}
	proxies, err := v.settings.Listen.Proxies()
	if err != nil {
		return err
	}
	v.pulls.receiver = webhook.NewReceiver(webhook.ReceiverConfig{
		Inbox: v.store.Pulls, Secrets: secrets, Branch: v.settings.Source.Branch,
		Repository: v.pulls.forge.KnownID, Holder: v.holder, Pushed: v.loop.Pushed, Moved: v.moved,
		Sources: v.store.SourcePushes.AcceptSourcePush, Proxies: proxies,
		Log: v.log,
	})
	return nil
}

// moved reads listed repositories at once, here or on the replica that leads.
func (v *Server) moved(ctx context.Context, ref string, urls []string) {
	notice := mirror.NoticeMoved(v.holder, ref, urls)
	if notice == "" {
		return
	}
	v.loop.Moved(ref, urls)
	if err := v.store.Plans.Notify(ctx, notice); err != nil {
		v.log.Warn("failed to notify the other replicas of a push; they poll", "error", err)
	}
}

// review runs review jobs while this replica leads.
func (v *Server) review(ctx context.Context) {
	if v.pulls != nil {
		v.loop.WhileLeading(ctx, v.lead)
	}
}

// lead requests and runs review jobs until ctx ends.
func (v *Server) lead(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { v.pulls.reviewer.Run(ctx) })
	if v.settings.Forge.Proposals {
		proposer := webhook.Proposer{Forge: v.pulls.forge, Records: v.store.Pulls,
			Files: branchFiles{v.mirror}, Branch: v.settings.Source.Branch, Log: v.log}
		all.Go(func() { proposer.Run(ctx) })
	}
	for ctx.Err() == nil {
		err := v.store.Pulls.Work(ctx, v.pulls.reviewer.Recheck)
		if err != nil && ctx.Err() == nil {
			v.log.Warn("failed to run review jobs; trying again", "error", err)
			pacing.Sleep(ctx, 5*time.Second)
		}
	}
}

// branchFiles reads files of the branch's head.
type branchFiles struct{ mirror *gitrepo.Mirror }

// Deployment is webhook.Files.
func (b branchFiles) Deployment(ctx context.Context, id fleet.DeploymentID) (webhook.BranchFile,
	error) {
	path := configschema.PathOf(fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant,
		Name: string(id.Name)})
	head, fetched := b.mirror.Head()
	if !fetched {
		return webhook.BranchFile{}, errors.New("the config repo is not fetched yet")
	}
	blob, text, err := b.mirror.File(ctx, head.Commit, path)
	if errors.Is(err, gitrepo.ErrNotFound) {
		err = webhook.ErrNoFile
	}
	return webhook.BranchFile{Path: path, Commit: fleet.Revision(head.Commit), Blob: string(blob),
		Text: text}, err
}

// SetRevision is webhook.Files.
func (branchFiles) SetRevision(f webhook.BranchFile, env fleet.EnvironmentName, revision string) (
	[]byte, error) {
	return configschema.SetRevision(configschema.File{Path: f.Path, Blob: f.Blob, Bytes: f.Text},
		env, revision)
}

// branchReviews finds the commits that a step of the branch consists of, for the reviewer to ask
// about.
type branchReviews struct {
	mirror   *gitrepo.Mirror
	reviewed *webhook.Reviews
}

// mostSteps bounds the walk over the branch's own commits between two revisions.
const mostSteps = 200

// Reviewed is reconciler.Reviews.
func (r branchReviews) Reviewed(ctx context.Context, base, head fleet.Revision) (reviews.Reviewed,
	error) {
	commits, err := branchCommits(ctx, r.mirror, gitrepo.Hash(base), gitrepo.Hash(head))
	if err != nil {
		return reviews.Reviewed{}, err
	}
	return r.reviewed.Reviewed(ctx, base, commits)
}

// branchCommits returns the branch's own commits from base to head, oldest first, each with the
// files that it changes against its first parent. Where the first parents do not lead to base, as
// after a fast-forward to a branch that had merged this one, it returns the head alone.
func branchCommits(ctx context.Context, m *gitrepo.Mirror, base,
	head gitrepo.Hash) ([]reviews.Commit, error) {
	var line []gitrepo.Commit
	for at := head; at != base; {
		c, err := m.Commit(ctx, at)
		if err != nil {
			return nil, err
		}
		if line = append(line, c); len(c.Parents) == 0 || len(line) > mostSteps {
			line = []gitrepo.Commit{{ID: head, Parents: []gitrepo.Hash{base}}}
			break
		}
		at = c.Parents[0]
	}
	out := make([]reviews.Commit, 0, len(line))
	for _, c := range slices.Backward(line) {
		changes, err := m.Diff(ctx, c.Parents[0], c.ID)
		if err != nil {
			return nil, err
		}
		commit := reviews.Commit{ID: fleet.Revision(c.ID), Changed: map[string]string{}}
		for _, change := range changes {
			commit.Changed[change.Path] = string(change.New.Blob)
		}
		out = append(out, commit)
	}
	return out, nil
}

// planner is the loop as the reviewer needs it.
type planner struct {
	loop   *reconciler.Loop
	mirror *gitrepo.Mirror
}

// Wake notifies the loop that the branch may have moved.
func (p planner) Wake() { p.loop.Pushed() }

// Parent returns the first parent of a commit.
func (p planner) Parent(ctx context.Context, commit fleet.Revision) (fleet.Revision, error) {
	c, err := p.mirror.Commit(ctx, gitrepo.Hash(commit))
	if err != nil || len(c.Parents) == 0 {
		return "", err
	}
	return fleet.Revision(c.Parents[0]), nil
}

// Preview plans what a head would change.
func (p planner) Preview(ctx context.Context, ref string, head fleet.Revision,
	lists func(fleet.TenantName) bool) (webhook.Preview, error) {
	got, err := p.loop.Preview(ctx, reconciler.PreviewRequest{Ref: ref, Head: head, Lists: lists})
	if err != nil {
		return webhook.Preview{}, shortened(err)
	}
	report, err := got.Plan.Report()
	if err != nil {
		return webhook.Preview{}, err
	}
	out := preview(got)
	out.Report, out.Hash, out.Effects = &report, got.Plan.Hash, got.Plan.Effects()
	return out, nil
}

// Parse reads the files that a head changes, each for itself.
func (p planner) Parse(ctx context.Context, ref string, head fleet.Revision) (webhook.Preview,
	error) {
	got, err := p.loop.Parse(ctx, reconciler.PreviewRequest{Ref: ref, Head: head})
	return preview(got), shortened(err)
}

func preview(p reconciler.Preview) webhook.Preview {
	files := slices.DeleteFunc(slices.Clone(p.Files), func(path string) bool {
		return slices.Contains(p.Conflicts, path)
	})
	return webhook.Preview{Base: p.Base, Files: files, Shown: p.Shown, Problems: p.Problems,
		Conflicts: p.Conflicts, Beside: p.Beside, Behind: p.Behind}
}

// shortened reduces the error of an unmergeable head to the sentence for the author of the pull
// request. It returns every other error unchanged.
func shortened(err error) error {
	if !errors.Is(err, mirror.ErrUnmergeable) {
		return err
	}
	var why *gitrepo.Error
	if errors.As(err, &why) {
		return fmt.Errorf("%w: %w: %s", mirror.ErrUnmergeable, why.Kind, why.Detail)
	}
	text, prefix := err.Error(), mirror.ErrUnmergeable.Error()
	return fmt.Errorf("%w: %s", mirror.ErrUnmergeable,
		text[strings.LastIndex(text, prefix)+len(prefix+": "):])
}

// Platform is Fleet.spec of the applied base.
func (p planner) Platform() (fleet.FleetSpec, error) {
	_, base, err := p.loop.Base()
	if err != nil {
		return fleet.FleetSpec{}, shortened(err)
	}
	return base.Fleet(), nil
}

// Tenant is a tenant's grant in the applied base.
func (p planner) Tenant(name fleet.TenantName) (fleet.TenantSpec, bool, error) {
	_, base, err := p.loop.Base()
	if err != nil {
		return fleet.TenantSpec{}, false, shortened(err)
	}
	d := base.Tenant(name)
	if d == nil {
		return fleet.TenantSpec{}, false, nil
	}
	return *d.Tenant, true, nil
}

// Engine is an engine's spec in the applied base.
func (p planner) Engine(name fleet.EngineName) (fleet.EngineSpec, bool, error) {
	_, base, err := p.loop.Base()
	if err != nil {
		return fleet.EngineSpec{}, false, shortened(err)
	}
	d := base.Engine(name)
	if d == nil {
		return fleet.EngineSpec{}, false, nil
	}
	return *d.Engine, true, nil
}

// Applied is the revision that is applied, and whether it has the commit.
func (p planner) Applied(ctx context.Context, commit fleet.Revision) (fleet.Revision, bool, error) {
	applied, includes, err := p.loop.Includes(ctx, commit)
	return applied, includes, shortened(err)
}
