package example

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// Edge is a cluster behind a firewall, with an Argo CD of its own that deploys to it. Nothing
// reaches it from outside; from inside, two addresses lead out: the Git server's, and the control
// plane's behind a proxy that ends TLS.
type Edge struct {
	// nil where this machine does not allow one: the edge then shares the machine's network
	Firewall *stack.Firewall
	Cluster  *stack.Cluster
	ArgoCD   *stack.ArgoCD
	Git      *stack.Outlet
	Hub      *stack.Outlet // leads to every control plane of StartPlane
	URL      string        // of the control plane, as seen from there
	CAFile   string        // what vouches for URL
	Dir      string

	certificate tls.Certificate // of Hub
	runs        atomic.Int64
}

// edgeNamespaces are those of the environment acme/factory-berlin, and two for tests.
var edgeNamespaces = []string{"acme-plc", "acme-workshop", EdgeApplications}

// EdgeApplications is the namespace besides its own whose Applications the edge's Argo CD serves.
const EdgeApplications = "vault-apps"

// Near leaves out what is deployed to acme/factory-berlin: it is pending until the agent there has
// joined.
func Near(list []view.Application) []view.Application {
	return slices.DeleteFunc(slices.Clone(list), func(a view.Application) bool {
		return a.Environment == "factory-berlin"
	})
}

// StartEdge makes the firewall, and a cluster with an Argo CD behind it. A further edge of the
// fleet, with another directory, reaches the control plane by the URL of the first one.
func (f *Fleet) StartEdge(ctx context.Context, o Options) (_ *Edge, err error) {
	e := &Edge{Dir: filepath.Join(o.Dir, "edge")}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		return nil, err
	}
	if e.Firewall, err = stack.NewFirewall(); err != nil {
		o.Progress("no firewall around the edge cluster: %v", err)
	}
	if err := e.openOutlets(f); err != nil {
		return nil, err
	}
	o.Progress("starting a Kubernetes API behind a firewall")
	options := stack.ClusterOptions{Name: "edge", Dir: filepath.Join(e.Dir, "cluster"),
		Behind: e.Firewall}
	if o.Audit {
		options.AuditLog = filepath.Join(o.Dir, "edge.audit")
	}
	if e.Cluster, err = stack.StartCluster(ctx, options); err != nil {
		return nil, err
	}
	for _, namespace := range edgeNamespaces {
		if err := e.Cluster.CreateNamespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	e.ArgoCD, err = o.argoCD(ctx, "there", stack.ArgoOptions{
		Cluster: e.Cluster, Version: cmp.Or(o.Version, "3.5"), Namespace: "argocd",
		InstallationID: "edge", Dir: filepath.Join(e.Dir, "argocd"), ClusterAdmin: true,
		ApplicationNamespaces: []string{EdgeApplications},
	})
	return e, err
}

func (e *Edge) openOutlets(f *Fleet) error {
	if e.Firewall != nil { // else the Git server's own address is there already
		address := strings.TrimPrefix(f.Git.URL, "http://")
		var err error
		if e.Git, err = e.Firewall.Outlet(address, nil, address); err != nil {
			return err
		}
	}
	address := "127.0.0.1:0"
	if f.Edge == nil {
		var ca []byte
		var err error
		if e.certificate, ca, err = certify(); err != nil {
			return err
		}
		e.CAFile = filepath.Join(e.Dir, "ca.pem")
		if err := os.WriteFile(e.CAFile, ca, 0o644); err != nil {
			return err
		}
	} else {
		e.certificate, e.CAFile, address = f.Edge.certificate, f.Edge.CAFile, f.Edge.Hub.Address
	}
	if f.Edge != nil && e.Firewall == nil {
		return errors.New("two edges need a firewall each: both listen on " + address)
	}
	var err error
	e.Hub, err = e.Firewall.Outlet(address, &tls.Config{
		Certificates: []tls.Certificate{e.certificate}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	e.URL = "https://" + e.Hub.Address
	return nil
}

// Command is argosy as an administrator at the edge would run it, with the cluster's kubeconfig.
func (e *Edge) Command(binary string, args ...string) stack.Command {
	return stack.Command{
		Name: "argosy " + strings.Join(args[:min(2, len(args))], " "), Path: binary, Args: args,
		Behind: e.Firewall,
		Env: append(os.Environ(), "KUBECONFIG="+e.Cluster.Kubeconfig, "ARGOSY_SERVER=",
			"ARGOSY_TOKEN="),
		Log: filepath.Join(e.Dir, "argosy-"+strconv.FormatInt(e.runs.Add(1), 10)+".log"),
	}
}

// Run is Command to its end; it returns all that was printed.
func (e *Edge) Run(binary string, args ...string) (string, error) {
	c := e.Command(binary, args...)
	p, err := stack.StartProcess(c)
	if err != nil {
		return "", err
	}
	err = p.Wait()
	printed, _ := os.ReadFile(c.Log)
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", c.Name, err, printed)
	}
	return string(printed), err
}

// Stop ends everything behind the firewall.
func (e *Edge) Stop() error {
	var errs []error
	if e.ArgoCD != nil {
		errs = append(errs, e.ArgoCD.Stop())
	}
	if e.Cluster != nil {
		errs = append(errs, e.Cluster.Stop())
	}
	for _, outlet := range []*stack.Outlet{e.Hub, e.Git} {
		if outlet != nil {
			outlet.Close()
		}
	}
	e.Firewall.Close()
	return errors.Join(errs...)
}

// certify makes a certificate for 127.0.0.1 and what vouches for it. It holds from a day ago, for
// clocks that are late.
func certify() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "argosy"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca, nil
}
