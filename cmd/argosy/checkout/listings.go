package checkout

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

// Listings returns the listings of repositories that are in folders of the file system, given as
// "URL=FOLDER". A folder is taken for every revision of its repository, with the files that it has
// now, committed or not; links are left out. A repository without a folder has no listing.
func Listings(folders []string) (fleet.Listings, error) {
	dirs := map[string]string{}
	for _, f := range folders {
		url, dir, found := strings.Cut(f, "=")
		key, err := fleet.NormalizeRepoURL(url)
		if !found || dir == "" || err != nil {
			return nil, fmt.Errorf("--listing %s: write <repository>=<folder>, e.g. "+
				"https://git.example.com/acme/services.git=../services", f)
		}
		if info, err := os.Stat(dir); err != nil {
			return nil, fmt.Errorf("--listing: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("--listing: %s is no folder", dir)
		}
		if _, twice := dirs[key]; twice {
			return nil, fmt.Errorf("--listing names %s twice", url)
		}
		dirs[key] = dir
	}
	return func(r fleet.ListingRequest) (fleet.Listing, error) {
		key, err := fleet.NormalizeRepoURL(r.RepoURL)
		if err != nil {
			return fleet.Listing{}, err
		}
		dir, found := dirs[key]
		if !found {
			return fleet.Listing{}, fmt.Errorf("%w; name a folder with it by --listing %s=FOLDER",
				fleet.ErrNoListing, r.RepoURL)
		}
		return list(dir, r)
	}, nil
}

// list reads a folder for a request.
func list(dir string, r fleet.ListingRequest) (fleet.Listing, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fleet.Listing{}, err
	}
	defer root.Close()
	entries := map[string]fleet.Listed{}
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name == ".":
			return nil
		case e.IsDir() && path.Base(name) == ".git":
			return fs.SkipDir
		case e.IsDir():
			for d := name; !r.Files && d != "."; d = path.Dir(d) {
				if _, there := entries[d]; !there && r.Wants(d) {
					return nil // Git has it if a file is anywhere below
				}
			}
			if !r.Descends(name) {
				return fs.SkipDir
			}
			return nil
		case !e.Type().IsRegular():
			return nil
		case r.Files && r.Wants(name):
			entries[name], err = listFile(root, name)
			return err
		case !r.Files:
			for d := path.Dir(name); d != "."; d = path.Dir(d) {
				if r.Wants(d) {
					entries[d] = fleet.Listed{Path: d}
				}
			}
		}
		return nil
	})
	if err != nil {
		return fleet.Listing{}, fmt.Errorf("read %s: %w", dir, err)
	}
	return fleet.NewListing(r, "", slices.Collect(maps.Values(entries)))
}

func listFile(root *os.Root, name string) (fleet.Listed, error) {
	f, err := root.Open(name)
	if err != nil {
		return fleet.Listed{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, enough))
	return configschema.ListFile(name, content), err
}
