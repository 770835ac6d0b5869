package reconciler_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/reconciler/manifests"
	"argosy.dev/argosy/test/stack"
)

// Directory is reconciler.Directories, as cmd/argosy/server has it.
func (m *gitSource) Directory(ctx context.Context, revision fleet.Revision, path string) (
	map[string][]byte, error) {
	return m.Folder(ctx, gitrepo.Hash(revision), path, fleet.MaxManifests)
}

// MergedDirectory is reconciler.PulledDirectories, as cmd/argosy/server has it.
func (m *gitSource) MergedDirectory(ctx context.Context, p *reconciler.Preview, path string,
	always bool) (files map[string][]byte, changed bool, why, err error) {
	files, changed, err = m.MergedFolder(ctx, gitrepo.Hash(p.Parted), gitrepo.Hash(p.Base),
		gitrepo.Hash(p.Head), path, fleet.MaxManifests, always)
	if files != nil {
		m.folders.Add(1)
	}
	return files, changed, nil, err
}

// argo returns the manifests of a real Argo CD, also as files of the config repo.
func argo(t *testing.T) (version string, files map[string][]byte, committed map[string]string) {
	t.Helper()
	version, files, err := stack.ArgoManifests("3.5")
	if err != nil {
		t.Fatal(err)
	}
	committed = map[string]string{}
	for p, text := range files {
		committed[path.Join("argocd", p)] = string(text)
	}
	return version, files, committed
}

// ringed is the platform with the ring stable, which eu-1 follows.
func ringed(version, source, digest string) map[string]string {
	files := platform()
	files["fleet/fleet.yaml"] += fmt.Sprintf("  rings:\n    - {name: stable, version: %s, "+
		"manifests: {%s, digest: %q}}\n", version, source, digest)
	files["fleet/engines/eu-1.yaml"] = strings.Replace(files["fleet/engines/eu-1.yaml"],
		"argocd: {", "argocd: {managed: true, ", 1)
	return files
}

func packed(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])),
			Typeflag: tar.TypeReg})
		if _, more := w.Write(files[name]); err != nil || more != nil {
			t.Fatal(err, more)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (h *house) ring(state mirror.RingState, message string) {
	h.t.Helper()
	h.eventually("the ring is "+string(state), func() error {
		all, _, err := h.store.Views.Rings(h.t.Context(), view.Scope{}, view.Filter{}, view.Page{})
		if err != nil || len(all) != 1 || all[0].State != state ||
			!strings.Contains(all[0].Message, message) {
			return fmt.Errorf("%+v, %w", all, err)
		}
		return nil
	})
}

// A ring whose manifests are at a URL is Unavailable while the server is away, and while the digest
// is another one, which its message names. With the right digest the files are downloaded once: a
// next leader has them from the store although the server is away again.
func TestARingDownloadsItsManifestsOnce(t *testing.T) {
	t.Parallel()
	version, files, _ := argo(t)
	body := packed(t, files)
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write(body)
	}))
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	o := options{download: manifests.New(roots).Files}
	source := fmt.Sprintf("url: %q", server.URL+"/argocd.tar.gz")
	wrong, digest := fleet.ManifestsDigest(nil), fleet.ManifestsDigest(files)

	h := newHouse(t, ringed(version, "url: \"https://127.0.0.1:1/a.yaml\"", digest))
	r := h.start("r0", o)
	h.ring(mirror.RingUnavailable, "download https://127.0.0.1:1/a.yaml: ")
	h.commit("a server", ringed(version, source, wrong))
	h.ring(mirror.RingUnavailable, server.URL+"/argocd.tar.gz has the digest "+digest+
		"; review the files, and write their digest or their version into the ring")
	h.commit("the digest", ringed(version, source, digest))
	h.ring(mirror.RingMoving, "now eu-1")
	if n := asked.Load(); n != 2 {
		t.Errorf("downloaded %d times", n)
	}
	h.kill(r)
	server.Close()
	m, err := h.store.Work.Manifests(t.Context(), digest)
	if err != nil || len(m.Files) != len(files) {
		t.Errorf("stored: %d files, %v", len(m.Files), err)
	}
	h.start("r1", o)
	h.ring(mirror.RingMoving, "now eu-1")
}

// A pull request has the problems of the rings that it changes: of their declaration and of their
// directory. It reads no files of a ring that it does not change.
func TestAPullRequestChecksTheManifestsOfRings(t *testing.T) {
	t.Parallel()
	version, files, committed := argo(t)
	digest := fleet.ManifestsDigest(files)
	good := ringed(version, "directory: argocd", digest)
	h := newHouse(t, together(good, tenant("acme", "prod"), committed))
	r := h.start("r0", options{download: manifests.New(nil).Files})
	h.ring(mirror.RingMoving, "")
	head := h.head()
	number := 0
	problems := func(files map[string]string) (out []string, read int64) {
		number++
		before := r.source.folders.Load()
		p := h.preview(r, h.propose(number, head, files))
		for _, problem := range p.Problems {
			out = append(out, problem.String())
		}
		return out, r.source.folders.Load() - before
	}
	const install = "argocd/namespace-install.yaml"
	changed := map[string]string{install: committed[install] + "# changed\n"}
	changedDigest := fleet.ManifestsDigest(map[string][]byte{
		"namespace-install.yaml":    []byte(changed[install]),
		"crds/application-crd.yaml": files["crds/application-crd.yaml"],
		"crds/appproject-crd.yaml":  files["crds/appproject-crd.yaml"]})
	fleetFile := func(version, source, digest string) map[string]string {
		return map[string]string{"fleet/fleet.yaml": ringed(version, source,
			digest)["fleet/fleet.yaml"]}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
		reads int64
	}{
		"another file": {tenant("acme", "staging"), "", 0},
		"the same ring": {map[string]string{"fleet/fleet.yaml": good["fleet/fleet.yaml"] +
			"  owners: [\"group:ops\"]\n"}, "", 0},
		"a changed directory": {changed, "fleet/fleet.yaml:8:77: error[ring-manifests]: directory " +
			"argocd has the digest " + changedDigest, 1},
		"a changed directory with its digest": {together(changed, fleetFile(version,
			"directory: argocd", changedDigest)), "", 1},
		"a removed directory": {gone(committed), "fleet/fleet.yaml:8:61: error[ring-manifests]: " +
			"directory argocd does not exist", 1},
		"a missing directory": {fleetFile(version, "directory: argo", digest), "fleet/" +
			"fleet.yaml:8:61: error[ring-manifests]: directory argo does not exist", 1},
		"another version": {fleetFile("3.5.999", "directory: argocd", digest), "is not of " +
			"version 3.5.999", 1},
		"a URL": {fleetFile(version, "url: \"https://127.0.0.1:1/a.yaml\"", digest), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, reads := problems(c.files)
			if c.want == "" && len(got) > 0 || c.want != "" && (len(got) != 1 ||
				!strings.Contains(got[0], c.want)) {
				t.Errorf("problems %q", got)
			}
			if reads != c.reads {
				t.Errorf("%d directories read", reads)
			}
		})
	}
}
