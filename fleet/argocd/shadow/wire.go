package shadow

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"google.golang.org/protobuf/encoding/protowire"
)

// generateManifest is the method of the repo-server. Argo CD's own client of 2.14 does not compile
// with the version of otelgrpc that has no known vulnerability.
const generateManifest = "/repository.RepoServerService/GenerateManifest"

// Request is Argo CD's ManifestRequest: one source of an Application. Versions 2.14 to 3.5 have the
// same fields with the same numbers.
type Request struct {
	Repo               *v1alpha1.Repository
	Revision           string
	AppLabelKey        string
	AppName            string
	Namespace          string
	ApplicationSource  *v1alpha1.ApplicationSource
	Repos              []*v1alpha1.Repository
	KustomizeOptions   *v1alpha1.KustomizeOptions
	KubeVersion        string
	APIVersions        []string
	HelmRepoCreds      []*v1alpha1.RepoCreds
	TrackingMethod     string
	EnabledSourceTypes map[string]bool
	HelmOptions        *v1alpha1.HelmOptions
	Several            bool // hasMultipleSources
	RefSources         map[string]*v1alpha1.RefTarget
	ProjectSourceRepos []string
	ProjectName        string
	GeneratePaths      string // annotationManifestGeneratePaths
	InstallationID     string
}

// message is a generated type of Argo CD.
type message interface{ Marshal() ([]byte, error) }

// encoder appends fields with a value, as proto3 does.
type encoder struct {
	out []byte
	err error
}

func (e *encoder) bytes(number protowire.Number, value []byte) {
	e.out = protowire.AppendTag(e.out, number, protowire.BytesType)
	e.out = protowire.AppendBytes(e.out, value)
}

func (e *encoder) text(number protowire.Number, value string) {
	if value != "" {
		e.bytes(number, []byte(value))
	}
}

func (e *encoder) flag(number protowire.Number, value bool) {
	if value {
		e.out = protowire.AppendTag(e.out, number, protowire.VarintType)
		e.out = protowire.AppendVarint(e.out, 1)
	}
}

func (e *encoder) message(number protowire.Number, m message) {
	value, err := m.Marshal()
	e.err = errors.Join(e.err, err)
	e.bytes(number, value)
}

func (r *Request) encode() ([]byte, error) {
	e := &encoder{}
	e.message(1, r.Repo)
	e.text(2, r.Revision)
	e.text(4, r.AppLabelKey)
	e.text(5, r.AppName)
	e.text(8, r.Namespace)
	e.message(10, r.ApplicationSource)
	for _, o := range r.Repos {
		e.message(11, o)
	}
	e.message(13, r.KustomizeOptions)
	e.text(14, r.KubeVersion)
	for _, v := range r.APIVersions {
		e.bytes(15, []byte(v))
	}
	for _, c := range r.HelmRepoCreds {
		e.message(17, c)
	}
	e.text(19, r.TrackingMethod)
	for _, kind := range slices.Sorted(maps.Keys(r.EnabledSourceTypes)) {
		entry := &encoder{}
		entry.text(1, kind)
		entry.flag(2, r.EnabledSourceTypes[kind])
		e.bytes(20, entry.out)
	}
	e.message(21, r.HelmOptions)
	e.flag(22, r.Several)
	for _, ref := range slices.Sorted(maps.Keys(r.RefSources)) {
		entry := &encoder{}
		entry.text(1, ref)
		entry.message(2, r.RefSources[ref])
		e.err = errors.Join(e.err, entry.err)
		e.bytes(23, entry.out)
	}
	for _, url := range r.ProjectSourceRepos {
		e.bytes(24, []byte(url))
	}
	e.text(25, r.ProjectName)
	e.text(26, r.GeneratePaths)
	e.text(27, r.InstallationID)
	return e.out, e.err
}

// response is the part of Argo CD's ManifestResponse that counts.
type response struct {
	manifests []string
	revision  string
}

func (r *response) decode(in []byte) error {
	for len(in) > 0 {
		number, kind, n := protowire.ConsumeTag(in)
		if n < 0 {
			return protowire.ParseError(n)
		}
		in = in[n:]
		if kind == protowire.BytesType && (number == 1 || number == 4) {
			value, n := protowire.ConsumeString(in)
			if n < 0 {
				return protowire.ParseError(n)
			}
			if number == 1 {
				r.manifests = append(r.manifests, value)
			} else {
				r.revision = value
			}
			in = in[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, in); n < 0 {
			return protowire.ParseError(n)
		}
		in = in[n:]
	}
	return nil
}

// codec encodes requests and decodes responses.
type codec struct{}

// Marshal encodes a request.
func (codec) Marshal(v any) ([]byte, error) {
	r, ok := v.(*Request)
	if !ok {
		return nil, fmt.Errorf("%T is no request", v)
	}
	return r.encode()
}

// Unmarshal decodes a response.
func (codec) Unmarshal(data []byte, v any) error {
	r, ok := v.(*response)
	if !ok {
		return fmt.Errorf("%T is no response", v)
	}
	return r.decode(data)
}

// Name is that of the wire format.
func (codec) Name() string { return "proto" }
