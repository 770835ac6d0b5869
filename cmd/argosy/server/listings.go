package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"argosy.dev/argosy/cmd/argosy/settings"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/secrets"
)

// lister reads the repositories that sets list, with the tenants' own credentials.
type lister struct {
	reader     *gitrepo.Reader
	secrets    *secrets.Resolver
	knownHosts string // file; "": none
}

// maxListedFile limits the bytes of one listed file.
const maxListedFile = 256 << 10

func newLister(s settings.Settings, resolver *secrets.Resolver) (*lister, error) {
	// gitHosts lists the hosts that http:// is allowed for
	options := []gitrepo.Option{gitrepo.AllowPlainHTTP(),
		gitrepo.WithBudget(gitrepo.Budget{FileBytes: maxListedFile})}
	if s.Source.CAFile != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		pem, err := os.ReadFile(s.Source.CAFile)
		if err != nil {
			return nil, fmt.Errorf("source.caFile: %w", err)
		}
		roots.AppendCertsFromPEM(pem) // openSource has checked the file
		options = append(options, gitrepo.WithRootCAs(roots))
	}
	reader, err := gitrepo.NewReader(filepath.Join(s.DataDir, "listings"), options...)
	if err != nil {
		return nil, err
	}
	return &lister{reader: reader, secrets: resolver,
		knownHosts: s.Source.KnownHostsFile}, nil
}

// List implements reconciler.Lister.
func (l *lister) List(ctx context.Context, r reconciler.ListingRead) (fleet.Revision,
	[]reconciler.ListingResult, error) {
	from := gitrepo.Remote{URL: r.RepoURL, Revision: r.TargetRevision}
	if r.Credential != nil {
		from.Auth = l.auth(*r.Credential)
	}
	tree, err := l.reader.Read(ctx, from, gitrepo.Hash(r.Known), selection(r.Requests))
	switch {
	case errors.Is(err, gitrepo.ErrOverBudget):
		return "", nil, fmt.Errorf("%w: %w", reconciler.ErrTooMuch, err)
	case err != nil:
		return "", nil, err
	case tree == nil:
		return r.Known, nil, nil
	}
	results := make([]reconciler.ListingResult, len(r.Requests))
	for i, request := range r.Requests {
		results[i].Listing, results[i].Err = listing(request, tree)
	}
	return fleet.Revision(tree.Commit), results, nil
}

// selection returns what any of the requests wants.
func selection(requests []fleet.ListingRequest) gitrepo.Selection {
	any := func(is func(fleet.ListingRequest) bool) bool {
		return slices.ContainsFunc(requests, is)
	}
	return gitrepo.Selection{
		Enters: func(dir string) bool {
			return any(func(r fleet.ListingRequest) bool { return r.Descends(dir) })
		},
		Wants: func(path string, kind gitrepo.Kind) bool {
			return any(func(r fleet.ListingRequest) bool { return wants(r, path, kind) })
		},
		Contents: any(func(r fleet.ListingRequest) bool { return r.Files }),
		Most:     len(requests) * fleet.MaxSetItems,
	}
}

func wants(r fleet.ListingRequest, path string, kind gitrepo.Kind) bool {
	return r.Files == (kind == gitrepo.File) && r.Wants(path)
}

// listing returns what a commit has for one request.
func listing(r fleet.ListingRequest, tree *gitrepo.Tree) (fleet.Listing, error) {
	var entries []fleet.Listed
	for _, e := range tree.Entries {
		if !wants(r, e.Path, e.Kind) {
			continue
		}
		entry := fleet.Listed{Path: e.Path}
		if content := tree.Contents[e.Blob]; r.Files && content == nil {
			entry.Problem = fmt.Sprintf("the file has more than %d KiB", maxListedFile>>10)
		} else if r.Files {
			entry = configschema.ListFile(e.Path, content)
		}
		entries = append(entries, entry)
	}
	return fleet.NewListing(r, fleet.Revision(tree.Commit), entries)
}

// auth reads the tenant's own secret at each read.
func (l *lister) auth(ref fleet.CredentialSource) gitrepo.Credentials {
	return func(ctx context.Context) (gitrepo.Auth, error) {
		secret, err := l.secrets.Get(ctx, ref)
		if err != nil {
			return gitrepo.Auth{}, err
		}
		if key := secret.Value("sshPrivateKey"); len(key) > 0 {
			return l.sshKey(key)
		}
		password := bytes.TrimRight(secret.Value("password"), "\r\n")
		if len(password) == 0 {
			password = bytes.TrimRight(secret.Value("token"), "\r\n")
		}
		if len(password) == 0 {
			return gitrepo.Auth{}, errors.New("the secret has none of password, token and " +
				"sshPrivateKey; a set cannot list a repository with a GitHub App's key")
		}
		user := strings.TrimRight(string(secret.Value("username")), "\r\n")
		return gitrepo.Basic(cmp.Or(user, "argosy"), string(password)), nil
	}
}

func (l *lister) sshKey(key []byte) (gitrepo.Auth, error) {
	if l.knownHosts == "" {
		return gitrepo.Auth{}, errors.New("no host key is known: the platform sets " +
			"source.knownHostsFile of argosy.yaml to a file with the Git host's key")
	}
	hosts, err := os.ReadFile(l.knownHosts)
	if err != nil {
		return gitrepo.Auth{}, fmt.Errorf("source.knownHostsFile: %w", err)
	}
	return gitrepo.SSHKey(key, nil, hosts)
}
