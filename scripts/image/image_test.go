package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tiny builds a small program for linux/amd64 and returns its path.
func tiny(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/tiny\n\ngo 1.26\n",
		"main.go": "package main\n\nfunc main() { println(\"tiny\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", "tiny", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append([]string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64",
		"GOFLAGS=", "GOWORK=off"}, env...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "tiny")
}

func imageOf(t *testing.T, program string) (dir, digest string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "layout")
	s, err := parse([]string{"-out", dir, "-version", "1.2.3", "-revision", "abc", "-epoch",
		"1700000000", "-binary", "linux/amd64=" + program})
	if err != nil {
		t.Fatal(err)
	}
	if digest, err = build(s); err != nil {
		t.Fatal(err)
	}
	return dir, digest
}

func blob(t *testing.T, dir string, d descriptor) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "blobs", "sha256",
		strings.TrimPrefix(d.Digest, "sha256:")))
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(content); "sha256:"+hex.EncodeToString(sum[:]) != d.Digest ||
		int64(len(content)) != d.Size {
		t.Fatalf("%s %s: the blob is another", d.MediaType, d.Digest)
	}
	return content
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func top(t *testing.T, dir string) index {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	return decode[index](t, content)
}

func TestTwoBuildsGiveTheSameDigest(t *testing.T) {
	one, two := tiny(t), tiny(t)
	if err := os.Chtimes(two, time.Now(), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(two, 0o700); err != nil {
		t.Fatal(err)
	}
	_, first := imageOf(t, one)
	_, second := imageOf(t, two)
	if first != second {
		t.Fatalf("the digests are %s and %s", first, second)
	}
}

func TestTheLayoutIsWhole(t *testing.T) {
	dir, digest := imageOf(t, tiny(t))
	all := top(t, dir)
	if len(all.Manifests) != 2 || all.Manifests[0].Digest != digest ||
		all.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("the folder's index is %+v", all)
	}
	image := decode[index](t, blob(t, dir, all.Manifests[0]))
	if len(image.Manifests) != 1 || *image.Manifests[0].Platform != (platform{"amd64", "linux"}) {
		t.Fatalf("the image's index is %+v", image)
	}
	m := decode[manifest](t, blob(t, dir, image.Manifests[0]))
	c := decode[config](t, blob(t, dir, m.Config))
	if c.Config.User != "65532:65532" ||
		c.Config.Labels["org.opencontainers.image.version"] != "1.2.3" ||
		c.Config.Entrypoint[0] != "/usr/local/bin/argosy" {
		t.Errorf("the config is %+v", c.Config)
	}
	z, err := gzip.NewReader(bytes.NewReader(blob(t, dir, m.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(plain); c.RootFS.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Error("the layer's digest in the config is another")
	}
	looksRight(t, plain)
}

func looksRight(t *testing.T, layer []byte) {
	t.Helper()
	have := map[string]*tar.Header{}
	var certs []byte
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		have[h.Name] = h
		if h.Name == "etc/ssl/certs/ca-certificates.crt" {
			if certs, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		if h.Mode&0o6000 != 0 || h.Uid != 0 && h.Name != "home/nonroot/" ||
			!h.ModTime.Equal(time.Unix(1700000000, 0)) {
			t.Errorf("%s has mode %o, owner %d, time %s", h.Name, h.Mode, h.Uid, h.ModTime)
		}
	}
	if p := have["usr/local/bin/argosy"]; p == nil || p.Mode != 0o755 {
		t.Errorf("the program is %+v", p)
	}
	n := 0
	for block, rest := pem.Decode(certs); block != nil; block, rest = pem.Decode(rest) {
		n++
	}
	if n < 50 {
		t.Errorf("%d certificates", n)
	}
}

func TestTheBillNamesEveryModuleAndRefersToTheImage(t *testing.T) {
	program := tiny(t)
	dir, _ := imageOf(t, program)
	all := top(t, dir)
	image := decode[index](t, blob(t, dir, all.Manifests[0]))
	ref := decode[manifest](t, blob(t, dir, all.Manifests[1]))
	if all.Manifests[1].ArtifactType != "application/spdx+json" || ref.Subject == nil ||
		ref.Subject.Digest != image.Manifests[0].Digest {
		t.Fatalf("the referrer is %+v", ref)
	}
	list := decode[document](t, blob(t, dir, ref.Layers[0]))
	found := map[string]string{}
	for _, p := range list.Packages {
		found[p.Name] = p.ExternalRefs[0].Locator
	}
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if found["example.com/tiny"] != "pkg:golang/example.com/tiny@1.2.3" ||
		list.Packages[0].Checksums[0].Value != hex.EncodeToString(sum[:]) {
		t.Errorf("the program is %+v", list.Packages[0])
	}
	if !strings.HasPrefix(found["stdlib"], "pkg:golang/stdlib@1.") ||
		!strings.HasPrefix(found["golang.org/x/crypto/x509roots/fallback"],
			"pkg:golang/golang.org/x/crypto/x509roots/fallback") {
		t.Errorf("the list is %v", found)
	}
	if len(list.Relationships) != len(list.Packages) {
		t.Errorf("%d relations for %d packages", len(list.Relationships), len(list.Packages))
	}
}

func TestABinaryThatNeedsALoaderIsRefused(t *testing.T) {
	for name, content := range map[string]string{"no ELF": "#!/bin/sh\n", "empty": ""} {
		if err := static([]byte(content)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// on Linux a position-independent program asks for a loader
	needs := tiny(t, "GOFLAGS=-buildmode=pie")
	content, err := os.ReadFile(needs)
	if err != nil {
		t.Fatal(err)
	}
	if err := static(content); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Errorf("got %v", err)
	}
}

func TestArguments(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing": nil, "no platform": {"-out", "x", "-version", "1", "-binary", "argosy"},
		"half a platform": {"-out", "x", "-version", "1", "-binary", "linux=argosy"},
		"no version":      {"-out", "x", "-binary", "linux/amd64=argosy"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if s, err := parse([]string{"-out", "x", "-version", "1", "-epoch", "5", "-binary",
		"linux/arm64=a"}); err != nil || s.created != time.Unix(5, 0).UTC() ||
		len(s.binaries) != 1 {
		t.Errorf("got %s, %v", strconv.Itoa(len(s.binaries)), err)
	}
}
