package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/webhook/review"
)

const (
	lastingPoll  = 5 * time.Second
	lastingRetry = 10 * time.Minute // at most, after a step that failed
)

// LastingRecords is the store of the pull requests that make rollbacks lasting.
type LastingRecords interface {
	// Lasting returns those of all deployments with a rollback in force or an open pull request.
	Lasting(ctx context.Context) ([]forge.Lasting, error)
	// SaveLasting records the outcome of a step. The next one waits for so long.
	SaveLasting(ctx context.Context, l forge.Lasting, again time.Duration) error
}

// BranchFile is a file of the branch.
type BranchFile struct {
	Path   string
	Commit fleet.Revision // the branch's head
	Blob   string
	Text   []byte
}

// ErrNoFile means that the branch has no such file.
var ErrNoFile = errors.New("the branch has no such file")

// Files are the files of deployments on the branch as it was fetched last.
type Files interface {
	// Deployment returns a deployment's file; ErrNoFile.
	Deployment(ctx context.Context, id fleet.DeploymentID) (BranchFile, error)
	// SetRevision returns the file's text with another target revision in one environment.
	SetRevision(f BranchFile, env fleet.EnvironmentName, revision string) ([]byte, error)
}

// Proposer opens pull requests that make rollbacks lasting, one for each deployment, and closes
// them when the rollbacks end otherwise. It works on the replica that applies the branch. Each
// step can be repeated.
type Proposer struct {
	Forge   Proposals
	Records LastingRecords
	Files   Files
	Branch  string // that pull requests are merged into
	Log     *slog.Logger
}

// Run takes the next step of each deployment until ctx ends.
func (p *Proposer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.Check(ctx); err != nil && ctx.Err() == nil {
			p.Log.Warn("failed to check the pull requests of rollbacks; trying again", "error", err)
		}
		pacing.Sleep(ctx, lastingPoll)
	}
}

// Check takes the next step of each deployment. A fault of one keeps no other from its step.
func (p *Proposer) Check(ctx context.Context) error {
	all, err := p.Records.Lasting(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, l := range all {
		if err := p.step(ctx, l); err != nil {
			failed = append(failed, fmt.Errorf("deployment %s: %w", l.Deployment, err))
		}
	}
	return errors.Join(failed...)
}

func (p *Proposer) step(ctx context.Context, l forge.Lasting) error {
	file, err := p.Files.Deployment(ctx, l.Deployment)
	if err != nil && !errors.Is(err, ErrNoFile) {
		return err
	}
	was := l
	switch l.Next(file.Blob) {
	case forge.LastingKeep:
		return nil
	case forge.LastingEnd:
		l.State = forge.LastingMerged
		if l.Pull == forge.PullClosed {
			l.State = forge.LastingClosed
		}
	case forge.LastingWithdraw:
		err = p.Forge.Withdraw(ctx, l.Proposed.Number, l.Branch)
		l.State = forge.LastingClosed
	case forge.LastingPropose:
		l, err = p.propose(ctx, l.Begin(file.Blob), file)
	}
	if err != nil {
		return p.failed(ctx, was, err)
	}
	l.Attempts = 0
	if l.State != was.State {
		p.Log.Info("pull request of rollbacks", "deployment", l.Deployment.String(), "state",
			l.State, "number", l.Proposed.Number, "message", l.Message)
	}
	return p.Records.SaveLasting(ctx, l, 0)
}

// propose opens the pull request, or changes the open one. A revision that no change of the file
// can declare is a result, and no error.
func (p *Proposer) propose(ctx context.Context, l forge.Lasting, file BranchFile) (
	forge.Lasting, error) {
	text, why := file.Text, ""
	switch {
	case file.Blob == "":
		why = "the deployment has no file of its own; declare the revision where it is made"
	default:
		for _, r := range l.Rollbacks {
			now := file
			now.Text = text
			changed, err := p.Files.SetRevision(now, r.Environment, r.Revision)
			if err != nil {
				why = "environment " + string(r.Environment) + ": " + err.Error()
				break
			}
			text = changed
		}
	}
	if why == "" && bytes.Equal(text, file.Text) {
		why = "the file declares it already"
	}
	l.Message = why
	if why != "" {
		if l.State == forge.LastingOpen {
			if err := p.Forge.Withdraw(ctx, l.Proposed.Number, l.Branch); err != nil {
				return l, err
			}
		}
		l.State = forge.LastingImpossible
		return l, nil
	}
	title, body := review.Lasting(l)
	var err error
	l.Proposed, err = p.Forge.Propose(ctx, forge.Proposal{Base: p.Branch, From: file.Commit,
		Branch: l.Branch, Path: file.Path, Text: text, Title: title, Body: body})
	l.State = forge.LastingOpen
	return l, err
}

// failed records a step that failed, and when to try it again.
func (p *Proposer) failed(ctx context.Context, l forge.Lasting, err error) error {
	l.Attempts++
	l.Message = err.Error()
	again := min(pacing.Backoff(min(l.Attempts, 12)), lastingRetry)
	var busy *forge.Busy
	if errors.As(err, &busy) {
		again = max(again, time.Until(busy.Until))
	}
	p.Log.Warn("the pull request of rollbacks: a step failed; trying again", "deployment",
		l.Deployment.String(), "attempt", l.Attempts, "again", again, "error", err)
	return p.Records.SaveLasting(ctx, l, again)
}
