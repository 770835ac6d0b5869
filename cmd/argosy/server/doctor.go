package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/postgres"
	"argosy.dev/argosy/webhook/review"
)

// Check is the outcome of one check.
type Check struct {
	Subject string
	Detail  string // when it is well, or why it was not checked
	Err     error  // the fault, with its fix
	Warning bool   // Argosy works and keeps its promises in spite of the fault
	Unknown bool   // it was not checked: what Argosy's account may not read is never taken for well
}

// Level is how much the outcome of a check matters.
type Level string

// The levels.
const (
	LevelOK       Level = "ok"
	LevelWarning  Level = "warning"     // something to fix, and Argosy works without
	LevelBlocking Level = "blocking"    // Argosy does not work, or a promise does not hold
	LevelUnknown  Level = "not checked" // Argosy's account may not read it
)

// Level returns the level of the outcome.
func (c Check) Level() Level {
	switch {
	case c.Err != nil && c.Warning:
		return LevelWarning
	case c.Err != nil:
		return LevelBlocking
	case c.Unknown:
		return LevelUnknown
	}
	return LevelOK
}

// Text is what a person reads.
func (c Check) Text() string {
	if c.Err != nil {
		return c.Err.Error()
	}
	return c.Detail
}

// checkTimeout bounds each request to another system.
const checkTimeout = 20 * time.Second

// Doctor checks everything that the settings name, and writes to none of it.
func Doctor(ctx context.Context, s settings.Settings) []Check {
	log := slog.New(slog.DiscardHandler)
	checks := []Check{{Subject: "settings", Detail: "well formed"}}
	check := func(subject string, look func(context.Context) (string, error)) {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		detail, err := look(ctx)
		checks = append(checks, Check{Subject: subject, Detail: detail, Err: err})
	}
	joined, owners := Check{Subject: "agents"}, Check{Subject: "owners"}
	audited := Check{Subject: "audit log"}
	check("database", func(ctx context.Context) (string, error) {
		d, err := openDatabase(ctx, s.Database, log)
		if err != nil {
			return "", err
		}
		defer d.close()
		store, err := postgres.Open(ctx, d.url, postgres.Options{})
		if errors.Is(err, postgres.ErrSchema) && s.Database.Migrate {
			return "reached; `argosy serve` brings its schema up to this version when it begins", nil
		}
		if err != nil {
			return "", err
		}
		defer store.Close()
		audited.Detail, audited.Err = examineAudit(ctx, store.Audit)
		if s.Forge != nil {
			owners.Detail, owners.Err = examineOwners(ctx, store.Pulls)
		}
		if err := store.Ping(ctx); err != nil || !s.Agents.Enabled {
			return "reached, takes writes, schema is current", err
		}
		joined.Detail, joined.Err = examineAgents(ctx, store, s.Listen.Public, time.Now())
		return "reached, takes writes, schema is current", nil
	})
	for _, c := range []Check{audited, joined, owners} {
		if c.Detail != "" || c.Err != nil {
			checks = append(checks, c)
		}
	}
	secrets, err := openSecrets(s.Secrets, nil)
	checks = append(checks, Check{Subject: "secrets", Detail: "every configured place is there",
		Err: err})

	if s.Forge != nil {
		branch, cancel := context.WithTimeout(ctx, checkTimeout)
		checks = append(checks, examineBranch(branch, s)...)
		cancel()
	}
	issuers, cancel := context.WithTimeout(ctx, checkTimeout)
	checks = append(checks, examineIssuers(issuers, s)...)
	cancel()
	var specs map[fleet.EngineName]fleet.EngineSpec
	var rings []ringFiles
	check("config repo", func(ctx context.Context) (text string, err error) {
		specs, rings, text, err = readEngines(ctx, s)
		return text, err
	})
	for _, r := range rings {
		check("ring "+r.ring.Name, func(ctx context.Context) (string, error) {
			return r.examine(ctx, s)
		})
	}
	if err != nil {
		return checks
	}
	connect := engines{secrets: secrets, inFlight: 1, thorough: true}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if specs[name].Connection.Agent != nil {
			continue // its agent examines it
		}
		of, cancel := context.WithTimeout(ctx, checkTimeout)
		checks = append(checks, connect.examine(of, name, specs[name])...)
		cancel()
	}
	return checks
}

// examinedEntries bounds the entries of the audit log that the doctor verifies.
const examinedEntries = 20_000

// examineAudit verifies the newest entries of the audit log.
func examineAudit(ctx context.Context, log *postgres.Audit) (string, error) {
	r, err := log.Verify(ctx, postgres.Verification{Last: examinedEntries})
	if err != nil {
		return "", err
	}
	var errs []error
	for _, f := range r.Findings {
		errs = append(errs, fmt.Errorf("%s; see docs/runbooks/ArgosyAuditRewritten.md", f))
	}
	return fmt.Sprintf("%d entries verified, head %s, %d not sealed yet", r.Entries, r.Last,
		r.Unsealed), errors.Join(errs...)
}

// changedOwners is the part of the store that examineOwners needs.
type changedOwners interface {
	ChangedOwners(ctx context.Context) ([]view.Owner, error)
}

// examineOwners lists the names of owners that other accounts or teams took.
func examineOwners(ctx context.Context, store changedOwners) (string, error) {
	changed, err := store.ChangedOwners(ctx)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, o := range changed {
		errs = append(errs,
			fmt.Errorf(
				"%s is now the account or team %d, which does not count; it was %d: if it is "+
					"the same owner, `argosy pin-owner %s --id %d`, "+
					"else declare another owner", o.Name, o.NowID, o.ID, o.Name, o.NowID))
	}
	return "each name is the account or team that it was pinned to", errors.Join(errs...)
}

// examineBranch asks the Git host what it enforces on the branch, and compares that with what
// Argosy relies on.
func examineBranch(ctx context.Context, s settings.Settings) []Check {
	subject := "branch " + s.Source.Branch
	forge, err := openForge(s, "doctor")
	if err != nil {
		return []Check{{Subject: subject, Err: fmt.Errorf("forge: %w", err)}}
	}
	p, err := forge.Protection(ctx, s.Source.Branch)
	if err != nil {
		return []Check{{Subject: subject, Err: err}}
	}
	var out []Check
	for _, r := range review.BranchRules(p, s.Forge.DirectPush) {
		c := Check{Subject: subject + ": " + r.Name, Detail: r.Text}
		switch r.State {
		case review.RuleBroken:
			c.Err = fmt.Errorf("%s; %s: %s", r.Text, p.Host, r.Fix)
		case review.RuleUnknown:
			c.Unknown, c.Detail = true, "not checked: "+r.Text+"; "+r.Fix
		}
		out = append(out, c)
	}
	return out
}

// ringFiles is a ring with the files of its directory.
type ringFiles struct {
	ring  fleet.Ring
	files map[string][]byte
	err   error
}

// examine reads the ring's manifests as the control plane would, and checks them.
func (r ringFiles) examine(ctx context.Context, s settings.Settings) (string, error) {
	if r.ring.Manifests.Directory == "" {
		d, err := Downloader(s.Source.CAFile)
		if err != nil {
			return "", err
		}
		r.files, r.err = d.Files(ctx, r.ring.Manifests)
	}
	if r.err != nil {
		return "", r.err
	}
	return "Argo CD " + r.ring.Version + " of " + r.ring.Manifests.String(),
		instance.Check(r.ring, r.files)
}

// readEngines fetches the branch into a mirror of the doctor's own and reads which engines and
// rings it declares.
func readEngines(ctx context.Context, s settings.Settings) (
	specs map[fleet.EngineName]fleet.EngineSpec, rings []ringFiles, text string, err error) {
	dir, err := scratch()
	if err != nil {
		return nil, nil, "", err
	}
	defer dir.remove()
	s.DataDir = dir.path
	mirror, err := openSource(ctx, s)
	if err != nil {
		return nil, nil, "", err
	}
	defer mirror.Close()
	head, err := mirror.Fetch(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	specs, bad := map[fleet.EngineName]fleet.EngineSpec{}, 0
	var defaults fleet.FleetRemedies
	err = source{mirror: mirror}.Changed(ctx, "", fleet.Revision(head.Commit), nil,
		func(f reconciler.File) error {
			in, ours := decoder{}.Decode(f)
			switch {
			case ours && in.Declaration == nil:
				bad++
			case ours && in.Declaration.Fleet != nil:
				defaults = in.Declaration.Fleet.Remedies
				for _, r := range in.Declaration.Fleet.Rings {
					rings = append(rings, ringFiles{ring: r})
				}
			case ours && in.Declaration.Engine != nil:
				specs[fleet.EngineName(in.Key.Name)] = *in.Declaration.Engine
			}
			return nil
		})
	for name, spec := range specs {
		remedies := defaults.Of(spec.Remedies)
		spec.Remedies = &remedies
		specs[name] = spec
	}
	for i, r := range rings {
		if r.ring.Manifests.Directory != "" {
			rings[i].files, rings[i].err = source{mirror: mirror}.Directory(ctx,
				fleet.Revision(head.Commit), r.ring.Manifests.Directory)
		}
	}
	text = fmt.Sprintf("head %s, %d engines", head.Commit.Short(), len(specs))
	if bad > 0 {
		text += fmt.Sprintf(", %d files that do not decode (`argosy get problems`)", bad)
	}
	return specs, rings, text, err
}

// examine connects to an engine and asks whether it is fit.
func (e engines) examine(ctx context.Context, name fleet.EngineName,
	spec fleet.EngineSpec) []Check {
	subject := "engine " + string(name)
	target, err := e.dial(ctx, name, spec, func(fleet.TenantName) bool { return true })
	var report engine.Report
	if err == nil {
		report, err = target.Preflight(ctx)
	}
	if err != nil {
		return []Check{{Subject: subject, Err: err}}
	}
	return judged(subject, report)
}

// judged returns the findings of a preflight by their level.
func judged(subject string, report engine.Report) []Check {
	var blocking, warnings []error
	for _, f := range report.Findings {
		err := fmt.Errorf("%s; %s", f.Message, f.Fix)
		if f.Blocks || f.Blind {
			blocking = append(blocking, err)
		} else {
			warnings = append(warnings, err)
		}
	}
	checks := []Check{{Subject: subject, Detail: "fit, Argo CD " + report.Version,
		Err: errors.Join(blocking...)}}
	if len(warnings) > 0 {
		checks = append(checks, Check{Subject: subject, Err: errors.Join(warnings...),
			Warning: true})
	}
	return checks
}
