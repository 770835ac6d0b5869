package stack

import (
	"context"
	"crypto/ed25519"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSHKey is a key pair: PEM, and a line of authorized_keys.
type SSHKey struct{ Private, Public string }

// NewSSHKey makes a key pair.
func NewSSHKey() (SSHKey, error) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return SSHKey{}, err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return SSHKey{}, err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return SSHKey{}, err
	}
	return SSHKey{Private: string(pem.EncodeToMemory(block)),
		Public: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))}, nil
}

// KnownHost is the line of known_hosts for a server, host:port, that has the key.
func (k SSHKey) KnownHost(address string) string {
	return knownhosts.Normalize(address) + " " + k.Public + "\n"
}

// prepareSSH makes the host key, which Gitea would generate at length, and the address.
func (f *Forge) prepareSSH() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	key, err := NewSSHKey()
	if err != nil {
		return err
	}
	f.SSH = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	f.KnownHosts = key.KnownHost(f.SSH)
	if err := os.WriteFile(f.hostKeyFile(), []byte(key.Private), 0o600); err != nil {
		return err
	}
	return give(f.user, f.hostKeyFile())
}

func (f *Forge) hostKeyFile() string { return filepath.Join(f.home, "host_key") }

func (f *Forge) sshSettings() string {
	if f.SSH == "" {
		return "DISABLE_SSH = true"
	}
	host, port, _ := net.SplitHostPort(f.SSH)
	return fmt.Sprintf("START_SSH_SERVER = true\nBUILTIN_SSH_SERVER_USER = git\n"+
		"SSH_DOMAIN = %[1]s\nSSH_LISTEN_HOST = %[1]s\nSSH_PORT = %[2]s\nSSH_LISTEN_PORT = %[2]s\n"+
		"SSH_SERVER_HOST_KEYS = %[3]s", host, port, f.hostKeyFile())
}

// SSHURL is the repository's URL over SSH.
func (r *ForgeRepo) SSHURL() string { return "ssh://git@" + r.forge.SSH + "/" + r.Name + ".git" }

// AllowKey lets the key read the repository.
func (r *ForgeRepo) AllowKey(ctx context.Context, k SSHKey) error {
	return r.forge.Call(ctx, r.forge.Admin, http.MethodPost, r.path("keys"), map[string]any{
		"title": k.Public[len(k.Public)-16:], "key": k.Public, "read_only": true}, nil)
}
