package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The processes' users at the API server; the audit log shows these names.
const (
	adminUser      = "lab:admin"
	podRunnerUser  = "lab:pod-runner"
	controllerUser = "system:kube-controller-manager"
)

// groups of each user; the controllers' rights come from RBAC as everywhere.
var groups = map[string][]string{
	adminUser:      {"system:masters"},
	podRunnerUser:  {"system:masters"},
	controllerUser: nil,
}

func pkiFile(name string) string { return filepath.Join("pki", name) }

func kubeconfigOf(user string) string { return pkiFile(user + ".kubeconfig") }

// writePKI makes one authority for servers and clients, the server's
// certificate, the key that signs service-account tokens, and a kubeconfig for
// each user. Keys stay over restarts, so that what was handed out stays valid.
func writePKI(port int) error {
	if err := os.MkdirAll("pki", 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(pkiFile("complete")); err != nil {
		if err := makeKeys(); err != nil {
			return err
		}
	}
	for user := range groups {
		if err := writeKubeconfig(user, port); err != nil {
			return err
		}
	}
	return nil
}

func makeKeys() error {
	ca := &x509.Certificate{
		Subject: pkix.Name{CommonName: "lab"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey, err := issue("ca", ca, nil, nil)
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)},
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if _, err := issue("server", server, ca, caKey); err != nil {
		return err
	}
	for user, groups := range groups {
		client := &x509.Certificate{
			Subject:     pkix.Name{CommonName: user, Organization: groups},
			KeyUsage:    x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if _, err := issue(user, client, ca, caKey); err != nil {
			return err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return errors.Join(writeKey("sa", key), os.WriteFile(pkiFile("complete"), nil, 0o600))
}

// issue signs the template with the authority's key, its own when there is none,
// and writes NAME.crt and NAME.key.
func issue(name string, template, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (*ecdsa.PrivateKey,
	error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if ca == nil {
		ca, caKey = template, key
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(10, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return key, errors.Join(os.WriteFile(pkiFile(name+".crt"), crt, 0o600), writeKey(name, key))
}

func writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return os.WriteFile(pkiFile(name+".key"), text, 0o600)
}

func writeKubeconfig(user string, port int) error {
	c := clientcmdapi.NewConfig()
	c.CurrentContext = "lab"
	c.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: user}
	var err1, err2, err3 error
	cluster := &clientcmdapi.Cluster{Server: fmt.Sprintf("https://127.0.0.1:%d", port)}
	auth := &clientcmdapi.AuthInfo{}
	cluster.CertificateAuthorityData, err1 = os.ReadFile(pkiFile("ca.crt"))
	auth.ClientCertificateData, err2 = os.ReadFile(pkiFile(user + ".crt"))
	auth.ClientKeyData, err3 = os.ReadFile(pkiFile(user + ".key"))
	c.Clusters["lab"], c.AuthInfos[user] = cluster, auth
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*c, kubeconfigOf(user))
}
