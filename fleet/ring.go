package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Ring is a group of engines whose Argo CD Argosy installs and upgrades together (ADR 0071). The
// rings of the Fleet are in order: a ring changes after every earlier ring has its version.
type Ring struct {
	Name      string        `json:"name"`    // that Engine.ring names; unique in the Fleet
	Version   string        `json:"version"` // of Argo CD, such as "3.5.7"
	Manifests RingManifests `json:"manifests"`
	// Agent is the version of the agents of the ring's engines; nil: they stay as they are.
	Agent *RingAgent `json:"agent,omitempty"`
	// Untested permits a version outside of TestedArgoCD.
	Untested bool `json:"untested,omitempty"`
	AtOnce   int  `json:"atOnce,omitempty"` // engines that change at once; 1..100; default 1
	// how long the gates are checked after the last engine works; 1s..168h; default 1h
	Soak Duration `json:"soak,omitempty"`
	// instead of Soak, if it is shorter, for a version that a Bulletin names; 0: Soak
	SecuritySoak Duration  `json:"securitySoak,omitempty"`
	Gates        RingGates `json:"gates,omitzero"`
}

// RingManifests are Argo CD's published manifests of a ring's version. Exactly one of Directory,
// URL and OCI is set.
type RingManifests struct {
	Directory string `json:"directory,omitempty"` // of the config repo, such as "argocd/3.5.7"
	URL       string `json:"url,omitempty"`       // of a file .yaml, .yml, .tar.gz or .tgz
	OCI       string `json:"oci,omitempty"`       // such as "ghcr.io/acme/argo-cd:3.5.7"
	Digest    string `json:"digest"`              // of the files, as ManifestsDigest returns it
}

// String names the source for people.
func (m RingManifests) String() string {
	switch {
	case m.URL != "":
		return m.URL
	case m.OCI != "":
		return "oci://" + m.OCI
	}
	return "directory " + m.Directory
}

// Argument is the source as `argosy rings digest` takes it.
func (m RingManifests) Argument() string {
	if m.Directory != "" {
		return m.Directory
	}
	return m.String()
}

// Field is the field of the source.
func (m RingManifests) Field() string {
	switch {
	case m.URL != "":
		return "url"
	case m.OCI != "":
		return "oci"
	}
	return "directory"
}

// ManifestsAt returns the manifests that an argument of `argosy rings digest` names.
func ManifestsAt(argument string) (m RingManifests) {
	switch name, isOCI := strings.CutPrefix(argument, "oci://"); {
	case isOCI:
		m.OCI = name
	case strings.HasPrefix(argument, "https://"):
		m.URL = argument
	default:
		m.Directory = argument
	}
	return m
}

// ManifestsKind is the form of a file with manifests.
type ManifestsKind int

// Forms of files with manifests.
const (
	ManifestsYAML ManifestsKind = iota + 1
	ManifestsTar                // compressed with gzip
)

// ManifestsKindOf returns the form of a file by its name; 0 for another one.
func ManifestsKindOf(name string) ManifestsKind {
	switch {
	case strings.HasSuffix(name, ".yaml"), strings.HasSuffix(name, ".yml"):
		return ManifestsYAML
	case strings.HasSuffix(name, ".tar.gz"), strings.HasSuffix(name, ".tgz"):
		return ManifestsTar
	}
	return 0
}

// CheckManifestsURL checks the address of manifests: https, of a file, of no metadata service.
func CheckManifestsURL(raw string) error {
	if err := plainURL(raw); err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(raw, "https://")
	if !ok {
		return errors.New("the URL does not begin with https://")
	}
	host, file, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(host, "@"):
		return errors.New("the URL must not carry a user or password")
	case ManifestsKindOf(file) == 0:
		return errors.New("it is no file .yaml, .yml, .tar.gz or .tgz")
	}
	return checkManifestsHost(host)
}

func checkManifestsHost(host string) error {
	if err := checkHostPort(host, "443"); err != nil {
		return err
	}
	return neverACluster(hostOf(host))
}

var artifactPattern = regexp.MustCompile(`^[a-z0-9]+([._/-]+[a-z0-9]+)*` +
	`(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})$`)

// CheckManifestsOCI checks the reference of an OCI artifact: a registry, a name, and a tag or a
// digest.
func CheckManifestsOCI(reference string) error {
	host, name, ok := strings.Cut(reference, "/")
	switch {
	case strings.Contains(reference, "://"):
		return errors.New("it begins with a scheme")
	case !ok || !strings.ContainsAny(host, ".:") && host != "localhost":
		return errors.New("it does not begin with the registry")
	case !artifactPattern.MatchString(name):
		return errors.New("it has no name with a tag or a digest of sha256")
	}
	return checkManifestsHost(host)
}

// RingAgent is the version of agents (ADR 0075). An agent keeps the repository of its image, which
// may be a mirror of another one, and takes the digest.
type RingAgent struct {
	Version string `json:"version"` // that the program reports, such as "0.5.0"
	Digest  string `json:"digest"`  // of the image
}

// PreviousAgent takes the place of a digest: the image that the agent had before its upgrade.
const PreviousAgent = "previous"

// RingGates are the limits of a ring's change. A change beyond them halts.
type RingGates struct {
	// time for an engine until its Pods are ready and its probe is answered; 1m..24h; default 15m
	Within Duration `json:"within,omitempty"`
	// Applications of an engine that may be Degraded besides those before the change; 0..100000
	Degraded int `json:"degraded,omitempty"`
	// Applications of an engine whose state may be Unknown besides those before; 0..100000
	Unknown int `json:"unknown,omitempty"`
	// Applications that the version renders differently, without an approval of their owners, of
	// all engines of the ring; 0..100000
	Differences int `json:"differences,omitempty"`
	// SkipShadow changes engines without a comparison of what the version renders.
	SkipShadow bool `json:"skipShadow,omitempty"`
}

// DefaultRing is the ring of an Engine that names none.
const DefaultRing = "stable"

// Defaults of a ring.
const (
	RingSoak   = Duration(time.Hour)
	RingWithin = Duration(15 * time.Minute)
)

// Limits of a ring's manifests.
const (
	MaxManifests     = 64      // files
	MaxManifestBytes = 4 << 20 // of all files together
)

// OrDefaults returns the ring with the defaults of omitted fields.
func (r Ring) OrDefaults() Ring {
	r.AtOnce = cmp.Or(r.AtOnce, 1)
	r.Soak = cmp.Or(r.Soak, RingSoak)
	r.Gates.Within = cmp.Or(r.Gates.Within, RingWithin)
	return r
}

// TestedArgoCD are the minor versions of Argo CD that Argosy's tests install and upgrade.
var TestedArgoCD = []string{"2.14", "3.5"}

// TestedVersion reports whether Argosy's tests run a version of Argo CD, such as "3.5.7", or
// another patch release of its minor version.
func TestedVersion(version string) bool { return slices.Contains(TestedArgoCD, minorOf(version)) }

func minorOf(version string) string {
	minor, _, _ := cutLast(strings.TrimPrefix(version, "v"), ".")
	return minor
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// MayReturn reports whether an engine may go back from one version of Argo CD to an earlier one by
// itself: between patch releases of one minor version, and between tested versions.
func MayReturn(from, to string) bool {
	return minorOf(from) == minorOf(to) || TestedVersion(from) && TestedVersion(to)
}

// RingNamed returns the ring of that name, with its defaults.
func (f *FleetSpec) RingNamed(name string) (Ring, bool) {
	for _, r := range f.Rings {
		if r.Name == name {
			return r.OrDefaults(), true
		}
	}
	return Ring{}, false
}

// RingName returns the ring that the engine follows.
func (e *EngineSpec) RingName() string { return cmp.Or(e.Ring, DefaultRing) }

// ManifestsDigest returns the digest of files, from any source: the SHA-256 of a list with one line
// for each file, in the order of the paths' bytes: the file's SHA-256 in hexadecimal, two spaces,
// its path, a line feed. This is the digest of the output of sha256sum over the sorted files.
func ManifestsDigest(files map[string][]byte) string {
	all := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(files[path]), path)
	}
	return "sha256:" + hex.EncodeToString(all.Sum(nil))
}

// CheckManifests returns why files cannot be a ring's manifests; nil if their digest is right.
func (m RingManifests) CheckManifests(files map[string][]byte) error {
	size := 0
	for _, b := range files {
		size += len(b)
	}
	switch digest := ManifestsDigest(files); {
	case len(files) == 0:
		return fmt.Errorf("%s does not exist or has no files", m)
	case len(files) > MaxManifests || size > MaxManifestBytes:
		return fmt.Errorf("%s has %d files with %d bytes; at most %d with %d are read", m,
			len(files), size, MaxManifests, MaxManifestBytes)
	case digest != m.Digest:
		return fmt.Errorf("%s has the digest %s", m, digest)
	}
	return nil
}
