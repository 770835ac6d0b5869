package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"

	"argosy.dev/argosy/fleet"
)

func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, *Downloader) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, New(roots)
}

func archive(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := bytes.Repeat([]byte("0"), int(h.Size))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Size == 0 && h.Typeflag == tar.TypeReg {
			text = []byte("content of " + h.Name)
			h.Size = int64(len(text))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func paths(files map[string][]byte) string {
	return strings.Join(slices.Sorted(maps.Keys(files)), " ")
}

// A file and an archive are read over https, also after a redirect to another https server.
func TestURL(t *testing.T) {
	packed := archive(t, tar.Header{Name: "./", Typeflag: tar.TypeDir},
		tar.Header{Name: "./namespace-install.yaml"}, tar.Header{Name: "crds/a.yaml"})
	s, d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/old/install.yaml":
			http.Redirect(w, r, "/new/other.yaml", http.StatusFound)
		case "/new/other.yaml":
			fmt.Fprint(w, "kind: Deployment")
		case "/argocd.tar.gz":
			_, _ = w.Write(packed)
		default:
			http.NotFound(w, r)
		}
	})
	for name, want := range map[string]string{"old/install.yaml": "install.yaml",
		"argocd.tar.gz": "crds/a.yaml namespace-install.yaml"} {
		files, err := d.Files(t.Context(), fleet.RingManifests{URL: s.URL + "/" + name})
		if err != nil || paths(files) != want {
			t.Errorf("%s: %s, %v", name, paths(files), err)
		}
	}
	if _, err := d.Files(t.Context(), fleet.RingManifests{URL: s.URL + "/no.yaml"}); err == nil ||
		!strings.Contains(err.Error(), "the server answers 404") {
		t.Error(err)
	}
}

func TestRefusedURLs(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	big := archive(t, tar.Header{Name: "big.yaml", Size: fleet.MaxManifestBytes + 1})
	if len(big) > 1<<16 {
		t.Fatalf("the archive has %d bytes", len(big))
	}
	bomb := archive(t, tar.Header{Name: "a", Typeflag: tar.TypeDir},
		tar.Header{Name: "skipped", Typeflag: tar.TypeReg, Size: 2 * maxArchive})
	var many []tar.Header
	for i := range fleet.MaxManifests + 1 {
		many = append(many, tar.Header{Name: strconv.Itoa(i) + ".yaml"})
	}
	bodies := map[string][]byte{
		"big":      big,
		"bomb":     bomb,
		"many":     archive(t, many...),
		"up":       archive(t, tar.Header{Name: "../up.yaml"}),
		"absolute": archive(t, tar.Header{Name: "/etc/passwd"}),
		"twice":    archive(t, tar.Header{Name: "a.yaml"}, tar.Header{Name: "./a.yaml"}),
		"link": archive(t, tar.Header{Name: "a.yaml", Typeflag: tar.TypeSymlink,
			Linkname: "/etc/passwd"}),
		"text": []byte("kind: Deployment"),
	}
	s, d := serve(t, func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/"), ".tgz")
		switch name {
		case "plain":
			http.Redirect(w, r, plain.URL+"/a.tgz", http.StatusFound)
		case "metadata":
			http.Redirect(w, r, "https://169.254.169.254/a.tgz", http.StatusFound)
		case "loop":
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		case "huge.yaml":
			_, _ = io.CopyN(w, zeros{}, fleet.MaxManifestBytes+1)
		default:
			_, _ = w.Write(bodies[name])
		}
	})
	for name, want := range map[string]string{
		"big.tgz": "more than", "bomb.tgz": "more than", "many.tgz": "more than 64 files",
		"up.tgz": `the path "../up.yaml"`, "absolute.tgz": `the path "/etc/passwd"`,
		"twice.tgz": "a.yaml twice", "link.tgz": "no regular file", "text.tgz": "gzip",
		"plain.tgz": "which is not https", "metadata.tgz": "has no manifests",
		"loop.tgz": "without end", "huge.yaml": "more than",
	} {
		files, err := d.Files(t.Context(), fleet.RingManifests{URL: s.URL + "/" + name})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", name, paths(files), err)
		}
	}
	if _, err := New(nil).Files(t.Context(), fleet.RingManifests{URL: s.URL +
		"/twice.tgz"}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with an unknown certificate: %v", err)
	}
	for _, address := range []string{plain.URL + "/a.yaml", "https://169.254.169.254/a.yaml"} {
		if _, err := d.Files(t.Context(), fleet.RingManifests{URL: address}); err == nil {
			t.Errorf("%s is read", address)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// registry serves one name of a store by the distribution specification, after a token.
func registry(t *testing.T, store *memory.Store) (host string, d *Downloader) {
	t.Helper()
	s, d := serve(t, nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			fmt.Fprint(w, `{"token": "anonymous"}`)
			return
		}
		if r.Header.Get("Authorization") != "Bearer anonymous" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="`+s.URL+`/token",service="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		name := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		at, err := store.Resolve(r.Context(), name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		text, err := content.FetchAll(r.Context(), store, at)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", at.MediaType)
		w.Header().Set("Docker-Content-Digest", at.Digest.String())
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text)
	})
	return strings.TrimPrefix(s.URL, "https://"), d
}

func push(t *testing.T, store *memory.Store, kind, title string, text []byte) ocispec.Descriptor {
	t.Helper()
	d := content.NewDescriptorFromBytes(kind, text)
	if title != "" {
		d.Annotations = map[string]string{ocispec.AnnotationTitle: title}
	}
	must(t, store.Push(t.Context(), d, bytes.NewReader(text)))
	must(t, store.Tag(t.Context(), d, d.Digest.String()))
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, store *memory.Store, tag string, layers ...ocispec.Descriptor) string {
	t.Helper()
	d, err := oras.PackManifest(t.Context(), store, oras.PackManifestVersion1_1,
		"application/vnd.example", oras.PackManifestOptions{Layers: layers})
	must(t, err)
	must(t, store.Tag(t.Context(), d, tag))
	must(t, store.Tag(t.Context(), d, d.Digest.String()))
	return d.Digest.String()
}

// An artifact has the files of its archives and its titled layers, by tag and by digest. A registry
// that serves other bytes than the digest, an index, and a path outside are refused.
func TestOCI(t *testing.T) {
	store := memory.New()
	host, d := registry(t, store)
	tgz := push(t, store, "application/vnd.cncf.flux.content.v1.tar+gzip", "", archive(t,
		tar.Header{Name: "namespace-install.yaml"}))
	file := push(t, store, "application/yaml", "crds/a.yaml", []byte("kind: X"))
	digested := pack(t, store, "3.5.7", tgz, file)
	pack(t, store, "up", push(t, store, "application/yaml", "../a.yaml", []byte("kind: Y")))
	pack(t, store, "untitled", push(t, store, "application/yaml", "", []byte("kind: Z")))
	index := push(t, store, ocispec.MediaTypeImageIndex, "", []byte(`{"schemaVersion":2,`+
		`"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`))
	must(t, store.Tag(t.Context(), index, "index"))
	huge := ocispec.Descriptor{MediaType: "application/yaml", Digest: tgz.Digest,
		Size: fleet.MaxManifestBytes + 1}
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{},"layers":[{`+
		`"mediaType":"application/yaml","digest":%q,"size":%d}]}`, ocispec.MediaTypeImageManifest,
		huge.Digest, huge.Size)
	must(t, store.Tag(t.Context(), push(t, store, ocispec.MediaTypeImageManifest, "",
		[]byte(manifest)), "huge"))
	for _, suffix := range []string{":3.5.7", "@" + digested} {
		files, err := d.Files(t.Context(), fleet.RingManifests{OCI: host + "/acme/argo-cd" +
			suffix})
		if err != nil || paths(files) != "crds/a.yaml namespace-install.yaml" {
			t.Errorf("%s: %s, %v", suffix, paths(files), err)
		}
	}
	for tag, want := range map[string]string{"up": `the path "../a.yaml"`,
		"untitled": "with a title", "index": "without layers", "huge": "more than",
		"missing": "not found"} {
		files, err := d.Files(t.Context(), fleet.RingManifests{OCI: host + "/acme/argo-cd:" + tag})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s, %v", tag, paths(files), err)
		}
	}
}

// A download ends with its context.
func TestCancel(t *testing.T) {
	begun := make(chan struct{})
	s, d := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-begun; cancel() }()
	if _, err := d.Files(ctx, fleet.RingManifests{URL: s.URL + "/a.yaml"}); err == nil {
		t.Error("no error")
	}
}
