package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

const (
	maxSecretBytes = 1 << 20 // Kubernetes' own limit for a Secret
	platformFolder = "_fleet"
	directoryPoll  = 5 * time.Second
)

// directory stores one folder per secret and one file per key: DIR/<tenant>/<name>/<key>, and
// DIR/_fleet/<name>/<key> for the platform's own. This is the layout of a mounted Kubernetes
// Secret.
type directory struct{ root string }

// AddDirectory adds a directory of secrets. It must exist.
func (r *Resolver) AddDirectory(root string) error {
	info, err := os.Stat(root)
	if err != nil {
		return fmt.Errorf("secrets directory: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf(
			"secrets directory %s is a file; give the folder that holds one folder a tenant", root)
	}
	r.places = append(r.places, &directory{root: root})
	return nil
}

func (d *directory) folder(tenant fleet.TenantName, name string) string {
	if tenant == "" {
		return filepath.Join(d.root, platformFolder, name)
	}
	return filepath.Join(d.root, string(tenant), name)
}

func (d *directory) describe(tenant fleet.TenantName, name string) string {
	return "folder " + d.folder(tenant, name)
}

// get opens the folder as a root, so that a link inside it cannot lead out of it: a mounted
// Secret's own links stay within.
func (d *directory) get(_ context.Context, tenant fleet.TenantName, name string) (fleet.Secret,
	error) {
	root, err := os.OpenRoot(d.folder(tenant, name))
	if errors.Is(err, fs.ErrNotExist) {
		return fleet.Secret{}, ErrNotFound
	}
	if err != nil {
		return fleet.Secret{}, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fleet.Secret{}, err
	}
	values := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		value, err := readKey(root, e.Name())
		if err != nil {
			return fleet.Secret{}, fmt.Errorf("key %s: %w", e.Name(), err)
		}
		values[e.Name()] = value
	}
	if len(values) == 0 {
		return fleet.Secret{}, fmt.Errorf("folder %s holds no key; put one file a key into it",
			d.folder(tenant, name))
	}
	return fleet.NewSecret(values), nil
}

func readKey(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxSecretBytes {
		return nil, fmt.Errorf("is over %d bytes", maxSecretBytes)
	}
	return b, nil
}

// watch compares modification times every few seconds: directories of secrets are for laptops,
// tests and mounted Secrets. Kubernetes replaces a mounted Secret's links as a whole, which file
// notification does not follow.
func (d *directory) watch(ctx context.Context, changed func(fleet.TenantName, string)) {
	seen := d.stamps()
	tick := time.NewTicker(directoryPoll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := d.stamps()
		for key, stamp := range now {
			if seen[key] != stamp {
				tenant, name, _ := strings.Cut(key, "/")
				if tenant == platformFolder {
					tenant = ""
				}
				changed(fleet.TenantName(tenant), name)
			}
		}
		seen = now
	}
}

// stamps returns, by tenant/name, a text that changes when any key does. It omits an unreadable
// folder: watch reports no change of it.
func (d *directory) stamps() map[string]string {
	stamps := map[string]string{}
	files, err := filepath.Glob(filepath.Join(d.root, "*", "*", "*"))
	if err != nil {
		return stamps
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil || info.IsDir() {
			continue
		}
		rel, err := filepath.Rel(d.root, filepath.Dir(f))
		if err != nil {
			continue
		}
		key := filepath.ToSlash(rel)
		stamps[key] += fmt.Sprintf("%s:%d:%d;", filepath.Base(f), info.ModTime().UnixNano(),
			info.Size())
	}
	return stamps
}
