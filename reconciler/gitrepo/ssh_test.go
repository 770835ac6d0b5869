package gitrepo

import (
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/ssh"
)

// sshServer runs the real git-upload-pack for clients with the right key.
type sshServer struct {
	net.Listener
	host, client keyPair
	version2     atomic.Bool // accept GIT_PROTOCOL, as sshd does only if configured
	command      atomic.Value
	stderr       atomic.Value // printed on stderr, instead of running anything
}

func newSSHServer(t testing.TB, o *origin) *sshServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &sshServer{Listener: l, host: sshKeyPair(t), client: sshKeyPair(t)}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (
		*ssh.Permissions, error) {
		if string(key.Marshal()) != string(s.client.signer.PublicKey().Marshal()) {
			return nil, errors.New("unknown key")
		}
		return nil, nil
	}}
	config.AddHostKey(s.host.signer)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c, config, o)
		}
	}()
	return s
}

func (s *sshServer) serve(c net.Conn, config *ssh.ServerConfig, o *origin) {
	defer c.Close()
	_, channels, requests, err := ssh.NewServerConn(c, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for newChannel := range channels {
		ch, requests, err := newChannel.Accept()
		if err != nil {
			return
		}
		go s.session(ch, requests, o)
	}
}

func (s *sshServer) session(ch ssh.Channel, requests <-chan *ssh.Request, o *origin) {
	defer ch.Close()
	env := gitEnv()
	for r := range requests {
		switch r.Type {
		case "env":
			var v struct{ Name, Value string }
			ssh.Unmarshal(r.Payload, &v)
			if ok := s.version2.Load() && v.Name == "GIT_PROTOCOL"; ok {
				env = append(env, v.Name+"="+v.Value)
			}
			r.Reply(s.version2.Load(), nil)
		case "exec":
			var v struct{ Command string }
			ssh.Unmarshal(r.Payload, &v)
			s.command.Store(v.Command)
			r.Reply(true, nil)
			if words, _ := s.stderr.Load().(string); words != "" {
				io.WriteString(ch.Stderr(), words)
				ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{1}))
				return
			}
			cmd := exec.Command("git", "upload-pack", o.dir)
			cmd.Env, cmd.Stdout, cmd.Stderr = env, ch, ch.Stderr()
			in, _ := cmd.StdinPipe()
			go func() { io.Copy(in, ch); in.Close() }()
			cmd.Run()
			ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{0}))
			return
		default:
			r.Reply(false, nil)
		}
	}
}

func (s *sshServer) open(t *testing.T, key keyPair, knownHosts string) *Mirror {
	t.Helper()
	m, err := Open(t.Context(), t.TempDir(),
		Source{URL: "ssh://git@" + s.Addr().String() + "/srv/it's-here.git",
			Auth: authFor(t, "ssh", key, knownHosts)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestSSH(t *testing.T) {
	o := newOrigin(t)
	s := newSSHServer(t, o)
	known := knownHostsLine(s.Addr().String(), s.host)
	for _, v2 := range []bool{true, false} {
		t.Run(map[bool]string{true: "version 2", false: "version 0"}[v2], func(t *testing.T) {
			s.version2.Store(v2)
			m := s.open(t, s.client, known)
			first := o.set("fleet/fleet.yaml", "1")
			if h := fetch(t, m); h.Commit != first {
				t.Fatal(h)
			}
			if h := fetch(t, m); h.Moved {
				t.Fatal(h)
			}
			second := o.set("fleet/fleet.yaml", "2")
			if h := fetch(t, m); h.Commit != second || h.FirstParent != first {
				t.Fatal(h)
			}
			if got := s.command.Load(); got != `git-upload-pack '/srv/it'\''s-here.git'` {
				t.Fatal(got)
			}
		})
	}
	t.Run("another key of the server than the known one", func(t *testing.T) {
		err := fails(t, s.open(t, s.client, knownHostsLine(s.Addr().String(), sshKeyPair(t))),
			ErrUnavailable)
		if !strings.Contains(err.Error(), "not the one in known_hosts") {
			t.Fatal(err)
		}
	})
	t.Run("a server that is not in known_hosts", func(t *testing.T) {
		err := fails(t, s.open(t, s.client, knownHostsLine("git.example.com:22", s.host)),
			ErrUnavailable)
		if !strings.Contains(err.Error(), "no line for "+s.Addr().String()) {
			t.Fatal(err)
		}
	})
	t.Run("a key that the server does not know", func(t *testing.T) {
		fails(t, s.open(t, sshKeyPair(t), known), ErrUnauthorized)
	})
	t.Run("no key at all", func(t *testing.T) {
		m, err := Open(t.Context(), t.TempDir(),
			Source{URL: "git@" + strings.Replace(s.Addr().String(), "127.0.0.1:", "host:", 1) +
				"/x.git"})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		fails(t, m, ErrRefused)
	})
	t.Run("a token is rejected for ssh", func(t *testing.T) {
		m, err := Open(t.Context(), t.TempDir(), Source{URL: "ssh://" + s.Addr().String() + "/x",
			Auth: func(context.Context) (Auth, error) { return Token("canary"), nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		noCanary(t, fails(t, m, ErrRefused).Error())
	})
	t.Run("the server explains on stderr", func(t *testing.T) {
		s.stderr.Store("ERROR: Repository not found.\n")
		defer s.stderr.Store("")
		if err := fails(t, s.open(t, s.client, known), ErrUnavailable); !strings.Contains(
			err.Error(), "Repository not found.") {
			t.Fatal(err)
		}
	})
}

func TestLocalSource(t *testing.T) {
	o := newOrigin(t)
	first := o.set("fleet/fleet.yaml", "1")
	for name, url := range map[string]string{"path": o.dir, "file URL": "file://" + o.dir} {
		t.Run(name, func(t *testing.T) {
			m := open(t, t.TempDir(), url)
			if h := fetch(t, m); h.Commit != first ||
				files(t, m, h.Commit)["fleet/fleet.yaml"] != "1" {
				t.Fatal(h)
			}
			fetch(t, m)
		})
	}
	t.Run("not a repository", func(t *testing.T) {
		if err := fails(t, open(t, t.TempDir(), t.TempDir()), ErrUnavailable); !strings.Contains(
			err.Error(), "does not appear to be a git repository") {
			t.Fatal(err)
		}
	})
	t.Run("a path that resembles an option", func(t *testing.T) {
		_, err := Open(t.Context(), t.TempDir(), Source{URL: "--upload-pack=touch /tmp/x"},
			AllowLocalPath())
		if !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
	})
}
