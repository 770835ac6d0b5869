package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// The user of the image, numeric so that Kubernetes can check that it is not root. Any other works
// too: nothing in the image is written.
const (
	uid  = 65532
	user = "65532:65532"
)

// programPath is the path of the binary in the image.
const programPath = "/usr/local/bin/argosy"

type entry struct {
	name    string
	mode    int64
	owner   int
	content []byte
}

// layerOf is the only layer, compressed, and the digest of what it unpacks to.
func layerOf(program []byte, at time.Time) (layer []byte, diffID string, err error) {
	if err := static(program); err != nil {
		return nil, "", err
	}
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries(program) {
		if err := add(w, e, at); err != nil {
			return nil, "", err
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(plain.Bytes())
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, "", err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return nil, "", err
	}
	if err := z.Close(); err != nil {
		return nil, "", err
	}
	return packed.Bytes(), "sha256:" + hex.EncodeToString(sum[:]), nil
}

func add(w *tar.Writer, e entry, at time.Time) error {
	h := &tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner,
		Size: int64(len(e.content)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if e.content == nil {
		h.Typeflag = tar.TypeDir
	}
	if err := w.WriteHeader(h); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	_, err := w.Write(e.content)
	return err
}

// entries are all that is in the image, folders before what is in them.
func entries(program []byte) []entry {
	folder := func(name string) entry { return entry{name: name, mode: 0o755} }
	file := func(name string, mode int64, content []byte) entry {
		return entry{name: name, mode: mode, content: content}
	}
	return []entry{
		folder("etc/"),
		file("etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")),
		file("etc/passwd", 0o644,
			[]byte(
				"root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")),
		folder("etc/ssl/"),
		folder("etc/ssl/certs/"),
		file("etc/ssl/certs/ca-certificates.crt", 0o644, certificates()),
		folder("home/"),
		{name: "home/nonroot/", mode: 0o700, owner: uid},
		{name: "tmp/", mode: 0o1777},
		folder("usr/"),
		folder("usr/local/"),
		folder("usr/local/bin/"),
		file("usr/local/bin/argosy", 0o755, program),
	}
}

// certificates are those of the public CAs that are trusted without a condition.
func certificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}

// static refuses a binary that needs a loader, which the image does not have.
func static(program []byte) error {
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("is no Linux binary: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return errors.New(
				"is linked dynamically, and the image has no loader: build it with CGO_ENABLED=0")
		}
	}
	return nil
}

type config struct {
	Created      string    `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       running   `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
	History      []history `json:"history"`
}

type running struct {
	User       string            `json:"User"`
	Env        []string          `json:"Env"`
	Entrypoint []string          `json:"Entrypoint"`
	WorkingDir string            `json:"WorkingDir"`
	Labels     map[string]string `json:"Labels"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type history struct {
	Created   string `json:"created"`
	CreatedBy string `json:"created_by"`
}

func configOf(on *platform, diffID string, at time.Time, labels map[string]string) config {
	created := at.Format(time.RFC3339)
	return config{
		Created: created, Architecture: on.Architecture, OS: on.OS,
		Config: running{User: user, WorkingDir: "/", Entrypoint: []string{programPath},
			Labels: labels,
			Env: []string{"PATH=/usr/local/bin", "HOME=/home/nonroot",
				"SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}},
		RootFS:  rootFS{Type: "layers", DiffIDs: []string{diffID}},
		History: []history{{Created: created, CreatedBy: "scripts/image"}},
	}
}
