package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/manifests"
)

// openSource opens the mirror that the settings ask for. Credentials are read from their files at
// each fetch.
func openSource(ctx context.Context, s settings.Settings) (*gitrepo.Mirror, error) {
	var options []gitrepo.Option
	if s.Source.AllowHTTP {
		options = append(options, gitrepo.AllowPlainHTTP())
	}
	if filepath.IsAbs(s.Source.URL) {
		options = append(options, gitrepo.AllowLocalPath())
	}
	options = append(options,
		gitrepo.WithBudget(gitrepo.Budget{Bytes: s.Source.MaxBytes, Objects: s.Source.MaxObjects,
			ObjectBytes: s.Source.MaxObjectBytes,
			Files:       s.Source.MaxFiles, Time: time.Duration(s.Source.FetchTimeout)}))
	if s.Source.CAFile != "" {
		roots := x509.NewCertPool()
		if err := addRoots(roots, s.Source.CAFile); err != nil {
			return nil, fmt.Errorf("source.caFile: %w", err)
		}
		options = append(options, gitrepo.WithRootCAs(roots))
	}
	source := gitrepo.Source{URL: s.Source.URL, Branch: "refs/heads/" + s.Source.Branch,
		Auth: credentials(s.Source)}
	return gitrepo.Open(ctx, filepath.Join(s.DataDir, "config.git"), source, options...)
}

func addRoots(to *x509.CertPool, file string) error {
	pem, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read certificates: %w", err)
	}
	if !to.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s holds no certificate in PEM form", file)
	}
	return nil
}

// Downloader returns what downloads the manifests of rings. It trusts the system's roots and those
// of caFile, unless that is "".
func Downloader(caFile string) (*manifests.Downloader, error) {
	if caFile == "" {
		return manifests.New(nil), nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, err
	}
	return manifests.New(roots), addRoots(roots, caFile)
}

func credentials(s settings.Source) gitrepo.Credentials {
	switch {
	case s.TokenFile != "":
		return func(context.Context) (gitrepo.Auth, error) {
			token, err := readSecretFile("source.tokenFile", s.TokenFile)
			return gitrepo.Token(string(token)), err
		}
	case s.PasswordFile != "":
		return func(context.Context) (gitrepo.Auth, error) {
			password, err := readSecretFile("source.passwordFile", s.PasswordFile)
			return gitrepo.Basic(s.Username, string(password)), err
		}
	case s.SSHKeyFile != "":
		return func(context.Context) (gitrepo.Auth, error) {
			key, err := os.ReadFile(s.SSHKeyFile)
			if err != nil {
				return gitrepo.Auth{}, fmt.Errorf("source.sshKeyFile: %w", err)
			}
			hosts, err := os.ReadFile(s.KnownHostsFile)
			if err != nil {
				return gitrepo.Auth{}, fmt.Errorf("source.knownHostsFile: %w", err)
			}
			return gitrepo.SSHKey(key, nil, hosts)
		}
	default:
		return nil
	}
}

func readSecretFile(field, path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, fmt.Errorf("%s: %s is empty", field, path)
	}
	return b, nil
}

// source is the mirror as the loop needs it.
type source struct {
	mirror *gitrepo.Mirror
	log    *slog.Logger // for Fetch
}

// Fetch brings the branch's head into the mirror.
func (s source) Fetch(ctx context.Context) (reconciler.Head, error) {
	head, err := s.mirror.Fetch(ctx)
	if err != nil {
		return reconciler.Head{}, err
	}
	if head.Recloned != "" {
		s.log.Warn(
			"the mirror of the config repo was damaged and is cloned again; nothing is lost, for "+
				"it holds only what Git has", "reason", head.Recloned, "revision",
			fleet.Revision(head.Commit).Short())
	}
	commit, err := s.mirror.Commit(ctx, head.Commit)
	if err != nil {
		return reconciler.Head{}, err
	}
	return reconciler.Head{Revision: fleet.Revision(head.Commit), Author: commit.Author.Name +
		" <" + commit.Author.Email + ">", Subject: commit.Subject, At: head.Time}, nil
}

// Relation returns the relation of head to the applied revision.
func (s source) Relation(ctx context.Context, applied, head fleet.Revision) (mirror.Relation,
	error) {
	return s.mirror.Relation(ctx, gitrepo.Hash(applied), gitrepo.Hash(head))
}

// Changed visits what differs.
func (s source) Changed(ctx context.Context, base, head fleet.Revision,
	unreadable map[string]string, visit func(reconciler.File) error) error {
	folders := map[string]gitrepo.Hash{}
	for path, id := range unreadable {
		folders[path] = gitrepo.Hash(id)
	}
	changes, err := s.mirror.DiffWhole(ctx, gitrepo.Hash(base), gitrepo.Hash(head), folders)
	if err != nil {
		return err
	}
	return s.visit(ctx, changes, visit)
}

// Merge visits what merging a pull request into base changes.
func (s source) Merge(ctx context.Context, ref string, base, head fleet.Revision,
	visit func(reconciler.File) error) (reconciler.Merged, error) {
	merged, err := s.merge(ctx, ref, gitrepo.Hash(base), gitrepo.Hash(head))
	if errors.Is(err, gitrepo.ErrNotFound) {
		// others had pushed it out of the mirror
		merged, err = s.merge(ctx, ref, gitrepo.Hash(base), gitrepo.Hash(head))
	}
	switch {
	case errors.Is(err, gitrepo.ErrUnrelated), errors.Is(err, gitrepo.ErrManyBases),
		errors.Is(err, gitrepo.ErrOverBudget), errors.Is(err, gitrepo.ErrMalformed),
		errors.Is(err, gitrepo.ErrRefused):
		return reconciler.Merged{}, fmt.Errorf("%w: %w", mirror.ErrUnmergeable, err)
	case err != nil:
		return reconciler.Merged{}, err
	}
	out := reconciler.Merged{Base: fleet.Revision(merged.Base),
		Shown: make(map[string]string, len(merged.Shown)), Conflicts: merged.Conflicts}
	for _, c := range merged.Shown {
		out.Shown[c.Path] = string(c.New.Blob)
	}
	return out, s.visit(ctx, merged.Changes, visit)
}

func (s source) merge(ctx context.Context, ref string, base, head gitrepo.Hash) (gitrepo.Merged,
	error) {
	if _, err := s.mirror.FetchRef(ctx, ref, head); err != nil {
		return gitrepo.Merged{}, err
	}
	return s.mirror.Merge(ctx, base, head)
}

// visit reads the files that changes name.
func (s source) visit(ctx context.Context, changes []gitrepo.Change,
	visit func(reconciler.File) error) (err error) {
	for _, c := range changes {
		f := reconciler.File{Path: c.Path, Blob: string(c.New.Blob)}
		switch {
		case c.New.Kind == gitrepo.Unreadable:
			f.Unreadable = c.New.Why
		case c.Old.Kind == gitrepo.Unreadable:
			f.Whole = true
		case c.New.Kind == "":
			f.Removed = true
		case c.New.Kind == gitrepo.File:
			var over *gitrepo.Error
			if f.Bytes, err = s.mirror.Blob(ctx, c.New.Blob); errors.As(err, &over) &&
				errors.Is(err, gitrepo.ErrOverBudget) {
				f.Size = cmp.Or(over.Size, -1) // one file's fault: the others of the commit proceed
			} else if err != nil {
				return err
			}
		default:
			f.Irregular = string(c.New.Kind)
		}
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// Bytes reads one blob again.
func (s source) Bytes(ctx context.Context, blob string) ([]byte, error) {
	return s.mirror.Blob(ctx, gitrepo.Hash(blob))
}

// decoder is config-schema as the loop needs it.
type decoder struct{}

// Decode reads one file of the config repo.
func (decoder) Decode(f reconciler.File) (catalog.Input, bool) {
	key, ours, _ := configschema.Classify(f.Path)
	if !ours || f.Removed {
		return catalog.Input{Key: key, Path: f.Path, Removed: true}, ours
	}
	doc := configschema.Decode(configschema.File{Path: f.Path, Blob: f.Blob, Bytes: f.Bytes,
		Irregular: f.Irregular, Size: f.Size, Unreadable: f.Unreadable, Listings: f.Listings})
	return catalog.Input{Key: doc.Key, Path: doc.Path, Blob: doc.Blob, Declaration: doc.Declaration,
		Problems: doc.Problems}, true
}

// Locate finds the line of a field.
func (decoder) Locate(b []byte, field string) (line, column int) {
	return configschema.Locate(b, field)
}

// Directory reads the files of a directory outside of fleet/ and tenants/.
func (s source) Directory(ctx context.Context, revision fleet.Revision, path string) (
	map[string][]byte, error) {
	return s.mirror.Folder(ctx, gitrepo.Hash(revision), path, fleet.MaxManifests)
}

// MergedDirectory reads a directory outside of fleet/ and tenants/ as a pull request leaves it.
func (s source) MergedDirectory(ctx context.Context, p *reconciler.Preview, path string,
	always bool) (files map[string][]byte, changed bool, why, err error) {
	files, changed, err = s.mirror.MergedFolder(ctx, gitrepo.Hash(p.Parted), gitrepo.Hash(p.Base),
		gitrepo.Hash(p.Head), path, fleet.MaxManifests, always)
	if errors.Is(err, gitrepo.ErrOverBudget) || errors.Is(err, gitrepo.ErrMalformed) {
		return nil, true, err, nil
	}
	return files, changed, nil, err
}
