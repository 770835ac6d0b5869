package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// The parts of SPDX 2.3 that are used: https://spdx.github.io/spdx-spec/v2.3/.
type document struct {
	SPDXVersion       string         `json:"spdxVersion"`
	DataLicense       string         `json:"dataLicense"`
	SPDXID            string         `json:"SPDXID"`
	Name              string         `json:"name"`
	DocumentNamespace string         `json:"documentNamespace"`
	CreationInfo      creation       `json:"creationInfo"`
	Packages          []pkg          `json:"packages"`
	Relationships     []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	SPDXID           string     `json:"SPDXID"`
	Name             string     `json:"name"`
	Version          string     `json:"versionInfo"`
	DownloadLocation string     `json:"downloadLocation"`
	FilesAnalyzed    bool       `json:"filesAnalyzed"`
	License          string     `json:"licenseConcluded"`
	Copyright        string     `json:"copyrightText"`
	Purpose          string     `json:"primaryPackagePurpose,omitempty"`
	Comment          string     `json:"comment,omitempty"`
	Checksums        []checksum `json:"checksums,omitempty"`
	ExternalRefs     []external `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type external struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// bill is the list of what a binary is made of, as the linker wrote it into the binary, and the
// certificates beside it.
func bill(b binary, program []byte, s spec) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return nil,
			errors.New("has no list of modules: build it from a module, by go build")
	}
	sum := sha256.Sum256(program)
	digest := hex.EncodeToString(sum[:])
	main := module("SPDXRef-argosy", &debug.Module{Path: info.Main.Path, Version: s.version})
	main.Purpose, main.Checksums = "APPLICATION", []checksum{{"SHA256", digest}}
	d := document{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT",
		Name:              "argosy " + s.version + " " + b.platform,
		DocumentNamespace: "https://argosy.dev/sbom/" + url.PathEscape(s.version) + "/" + digest,
		CreationInfo: creation{Created: s.created.Format(time.RFC3339), Creators: []string{
			"Tool: argosy-image"}},
		Packages:      []pkg{main},
		Relationships: []relationship{{"SPDXRef-DOCUMENT", "DESCRIBES", main.SPDXID}},
	}
	for i, m := range parts(info) {
		p := module("SPDXRef-"+strconv.Itoa(i+1), m)
		d.Packages = append(d.Packages, p)
		d.Relationships = append(d.Relationships, relationship{main.SPDXID, "DEPENDS_ON", p.SPDXID})
	}
	return json.MarshalIndent(d, "", " ")
}

// parts are the modules in the binary as they were built, Go's own library and the certificates.
func parts(info *debug.BuildInfo) []*debug.Module {
	all := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")},
		roots()}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, m)
	}
	return all
}

// roots is the module of the certificates, at the version that this program was built with.
func roots() *debug.Module {
	const path = "golang.org/x/crypto/x509roots/fallback"
	if own, ok := debug.ReadBuildInfo(); ok {
		for _, m := range own.Deps {
			if m.Path == path {
				return m
			}
		}
	}
	return &debug.Module{Path: path}
}

var notPlain = regexp.MustCompile(`[^A-Za-z0-9./_-]`)

func module(id string, m *debug.Module) pkg {
	purl := "pkg:golang/" + notPlain.ReplaceAllStringFunc(m.Path, url.PathEscape)
	if m.Version != "" {
		purl += "@" + url.PathEscape(m.Version)
	}
	p := pkg{SPDXID: id, Name: m.Path, Version: m.Version, DownloadLocation: "NOASSERTION",
		License: "NOASSERTION", Copyright: "NOASSERTION",
		ExternalRefs: []external{{"PACKAGE-MANAGER", "purl", purl}}}
	if m.Sum != "" {
		p.Comment = "go.sum: " + m.Sum
	}
	return p
}
