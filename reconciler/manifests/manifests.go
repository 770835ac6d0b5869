// Package manifests downloads the manifests of a ring by URL and from OCI registries. It is the
// only importer of oras-go.
//
// A download is bounded in time, in bytes, also after decompression, and in files. It sends no
// credential, uses https alone, follows a redirect to https alone, and connects to no link-local
// address and no metadata service.
package manifests

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"syscall"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"argosy.dev/argosy/fleet"
)

const (
	connectTimeout = 10 * time.Second
	// Timeout bounds one download.
	Timeout      = time.Minute
	maxRedirects = 4
	maxIndex     = 1 << 20 // bytes of an artifact's manifest
	// bytes of an archive after decompression: its files and its headers
	maxArchive = fleet.MaxManifestBytes + 1<<20
)

// Downloader downloads manifests.
type Downloader struct{ client *http.Client }

// New returns a Downloader that trusts these roots; nil: the system's.
func New(roots *x509.CertPool) *Downloader {
	return &Downloader{&http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dial,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    connectTimeout,
			ResponseHeaderTimeout:  connectTimeout,
			MaxResponseHeaderBytes: 64 << 10,
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(to *http.Request, via []*http.Request) error {
			switch {
			case to.URL.Scheme != "https" || to.URL.User != nil:
				return fmt.Errorf("%s redirects to %s, which is not https", via[0].URL.Host,
					to.URL.Redacted())
			case len(via) > maxRedirects:
				return errors.New("it redirects without end")
			}
			return nil
		}}}
}

// dial refuses a host that resolves to an address which no declaration may lead to.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := &net.Dialer{Timeout: connectTimeout, Control: func(_, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err == nil && !fleet.MayReach(host, to.Addr()) {
			err = fmt.Errorf("%s resolves to %s, which has no manifests", host, to.Addr())
		}
		return err
	}}
	return d.DialContext(ctx, network, address)
}

// Files returns the files of a URL or an OCI artifact by their paths. It does not check the digest
// of the ring.
func (d *Downloader) Files(ctx context.Context, m fleet.RingManifests) (map[string][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	into := files{}
	var err error
	switch {
	case m.URL != "":
		err = d.url(ctx, m.URL, into)
	case m.OCI != "":
		err = d.artifact(ctx, m.OCI, into)
	default:
		err = errors.New("it is neither a URL nor an OCI artifact")
	}
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", m, err)
	}
	return into, nil
}

func (d *Downloader) url(ctx context.Context, address string, into files) error {
	if err := fleet.CheckManifestsURL(address); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "argosy")
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	if fleet.ManifestsKindOf(address) == fleet.ManifestsTar {
		return into.unpack(resp.Body)
	}
	return into.add(path.Base(req.URL.Path), resp.Body)
}

func (d *Downloader) artifact(ctx context.Context, reference string, into files) error {
	if err := fleet.CheckManifestsOCI(reference); err != nil {
		return err
	}
	repo, err := remote.NewRepository(reference)
	if err != nil {
		return err
	}
	client := &auth.Client{Client: d.client} // asks for a token without a credential
	client.SetUserAgent("argosy")
	repo.Client = client
	repo.MaxMetadataBytes = maxIndex
	described, body, err := repo.FetchReference(ctx, repo.Reference.Reference)
	if err != nil {
		return err
	}
	defer body.Close()
	if described.Size > maxIndex {
		return tooLarge(maxIndex)
	}
	text, err := content.ReadAll(body, described)
	if err != nil {
		return err
	}
	var index ocispec.Manifest
	if err := json.Unmarshal(text, &index); err != nil {
		return err
	}
	if len(index.Layers) == 0 {
		return fmt.Errorf("it is a %s without layers; name an artifact", described.MediaType)
	}
	for _, layer := range index.Layers {
		if err := layerInto(ctx, repo, layer, into); err != nil {
			return err
		}
	}
	return nil
}

func layerInto(ctx context.Context, repo *remote.Repository, layer ocispec.Descriptor,
	into files) error {
	if layer.Size > fleet.MaxManifestBytes {
		return tooLarge(fleet.MaxManifestBytes)
	}
	text, err := content.FetchAll(ctx, repo, layer)
	if err != nil {
		return err
	}
	if strings.HasSuffix(layer.MediaType, "tar+gzip") ||
		strings.HasSuffix(layer.MediaType, "tar.gzip") {
		return into.unpack(bytes.NewReader(text))
	}
	title := layer.Annotations[ocispec.AnnotationTitle]
	if title == "" {
		return fmt.Errorf("its layer %s is neither a compressed archive nor a file with a title",
			layer.MediaType)
	}
	return into.add(title, bytes.NewReader(text))
}

// files are files by their paths.
type files map[string][]byte

// add reads one file within the bounds of all files together.
func (f files) add(name string, from io.Reader) error {
	clean := path.Clean(name)
	switch _, twice := f[clean]; {
	case path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") ||
		strings.ContainsAny(clean, "\\\x00\n"):
		return fmt.Errorf("it has the path %q", name)
	case twice:
		return fmt.Errorf("it has %s twice", clean)
	case len(f) >= fleet.MaxManifests:
		return fmt.Errorf("it has more than %d files", fleet.MaxManifests)
	}
	left := int64(fleet.MaxManifestBytes)
	for _, b := range f {
		left -= int64(len(b))
	}
	text, err := io.ReadAll(io.LimitReader(from, left+1))
	if err == nil && int64(len(text)) > left {
		err = tooLarge(fleet.MaxManifestBytes)
	}
	if err == nil {
		f[clean] = text
	}
	return err
}

// unpack adds the files of an archive. It reads no more than maxArchive bytes of its content.
func (f files) unpack(from io.Reader) error {
	z, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	bounded := &io.LimitedReader{R: z, N: maxArchive}
	for archive := tar.NewReader(bounded); ; {
		entry, err := archive.Next()
		switch {
		case err != nil && bounded.N <= 0:
			return tooLarge(maxArchive)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		switch entry.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
			err = f.add(entry.Name, archive)
		default:
			err = fmt.Errorf("%s is no regular file", entry.Name)
		}
		if err != nil && bounded.N <= 0 {
			err = tooLarge(maxArchive)
		}
		if err != nil {
			return err
		}
	}
}

func tooLarge(most int) error { return fmt.Errorf("it has more than %d bytes", most) }
