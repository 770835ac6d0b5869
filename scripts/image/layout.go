package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Media types of https://github.com/opencontainers/image-spec/blob/v1.1.1/media-types.md, and
// SPDX's.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeEmpty    = "application/vnd.oci.empty.v1+json"
	typeSPDX     = "application/spdx+json"
)

type descriptor struct {
	MediaType    string            `json:"mediaType"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Platform     *platform         `json:"platform,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Subject       *descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// layout is a folder of blobs that are named by their content.
type layout struct{ dir string }

func openLayout(dir string) (layout, error) {
	if err := os.RemoveAll(dir); err != nil {
		return layout{}, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "sha256"), 0o755); err != nil {
		return layout{}, err
	}
	return layout{dir}, os.WriteFile(filepath.Join(dir, "oci-layout"),
		[]byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644)
}

func (l layout) put(mediaType string, content []byte) (descriptor, error) {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: int64(len(content))}
	return d, os.WriteFile(filepath.Join(l.dir, "blobs", "sha256", name), content, 0o644)
}

func (l layout) putJSON(mediaType string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return l.put(mediaType, content)
}

// build writes the layout and returns the digest of the image: of the index over its platforms.
func build(s spec) (string, error) {
	l, err := openLayout(s.out)
	if err != nil {
		return "", err
	}
	labels := s.labels()
	image := index{SchemaVersion: 2, MediaType: typeIndex, Annotations: labels}
	var referrers []descriptor
	for _, b := range s.binaries {
		m, sbom, err := l.platform(s, b, labels)
		if err != nil {
			return "", fmt.Errorf("%s: %w", b.platform, err)
		}
		image.Manifests = append(image.Manifests, m)
		referrers = append(referrers, sbom)
	}
	top, err := l.putJSON(typeIndex, image)
	if err != nil {
		return "", err
	}
	top.Annotations = map[string]string{"org.opencontainers.image.ref.name": s.version}
	// In a layout the index of the folder lists the referrers, from where tools copy them with the
	// image.
	content, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex,
		Manifests: append([]descriptor{top}, referrers...)})
	if err != nil {
		return "", err
	}
	return top.Digest, os.WriteFile(filepath.Join(s.out, "index.json"), content, 0o644)
}

func (s spec) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":    "argosy",
		"org.opencontainers.image.version":  s.version,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.created":  s.created.Format("2006-01-02T15:04:05Z"),
	}
	if s.revision != "" {
		labels["org.opencontainers.image.revision"] = s.revision
	}
	return labels
}

// platform writes the image of one binary, and the SBOM that refers to it.
func (l layout) platform(s spec, b binary, labels map[string]string) (image, sbom descriptor,
	err error) {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return image, sbom, err
	}
	layer, diffID, err := layerOf(program, s.created)
	if err != nil {
		return image, sbom, err
	}
	on := &platform{}
	on.OS, on.Architecture, _ = strings.Cut(b.platform, "/")
	image, err = l.image(layer, configOf(on, diffID, s.created, labels), labels)
	if err != nil {
		return image, sbom, err
	}
	list, err := bill(b, program, s)
	if err != nil {
		return image, sbom, err
	}
	sbom, err = l.referrer(list, image, labels)
	image.Platform = on
	return image, sbom, err
}

func (l layout) image(layer []byte, config any, labels map[string]string) (descriptor, error) {
	blob, err := l.put(typeLayer, layer)
	if err != nil {
		return descriptor{}, err
	}
	c, err := l.putJSON(typeConfig, config)
	if err != nil {
		return descriptor{}, err
	}
	return l.putJSON(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest, Config: c,
		Layers: []descriptor{blob}, Annotations: labels})
}

func (l layout) referrer(list []byte, subject descriptor, labels map[string]string) (descriptor,
	error) {
	blob, err := l.put(typeSPDX, list)
	if err != nil {
		return descriptor{}, err
	}
	empty, err := l.put(typeEmpty, []byte("{}"))
	if err != nil {
		return descriptor{}, err
	}
	about := map[string]string{
		"org.opencontainers.image.created": labels["org.opencontainers.image.created"]}
	d, err := l.putJSON(typeManifest, manifest{SchemaVersion: 2, MediaType: typeManifest,
		ArtifactType: typeSPDX, Config: empty, Layers: []descriptor{blob},
		Subject: &subject, Annotations: about})
	d.ArtifactType, d.Annotations = typeSPDX, about
	return d, err
}
