package shadow

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
)

// raw passes messages as they are.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)    { return v.([]byte), nil }
func (raw) Unmarshal(in []byte, v any) error { *(v.(*[]byte)) = in; return nil }
func (raw) Name() string                     { return "proto" }

// mutual serves one manifest to clients with a certificate, which it returns.
func mutual(t *testing.T) (address string, client tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	client = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	s := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{client},
		ClientAuth: tls.RequireAnyClientCert})),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var in []byte
			if err := stream.RecvMsg(&in); err != nil {
				return err
			}
			out := protowire.AppendTag(nil, 1, protowire.BytesType)
			return stream.SendMsg(protowire.AppendString(out, `{"kind":"ConfigMap"}`))
		}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), client
}

func TestARepoServerWithMutualTLSGetsTheCertificate(t *testing.T) {
	address, certificate := mutual(t)
	render := func(client []tls.Certificate) (Rendered, error) {
		t.Helper()
		s, err := Open(func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}, false, client)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r, _, err := s.Render(t.Context(), []*Request{{Repo: &v1alpha1.Repository{},
			ApplicationSource: &v1alpha1.ApplicationSource{},
			KustomizeOptions:  &v1alpha1.KustomizeOptions{},
			HelmOptions:       &v1alpha1.HelmOptions{}}}, nil)
		return r, err
	}
	if _, err := render(nil); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("without a certificate: %v", err)
	}
	r, err := render([]tls.Certificate{certificate})
	if err != nil || len(r.Manifests) != 1 || r.Error != "" {
		t.Errorf("with one: %+v, %v", r, err)
	}
}
