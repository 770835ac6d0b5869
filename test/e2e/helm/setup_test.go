// Package helm installs all three charts by `helm install` on real API servers and runs the
// resulting Pods: `argosy serve`, `argosy agent run` and the engines' Argo CD: a complete one, one
// that uses the hub's repo-server and Redis, and a complete one that registers itself. They are
// processes, for the lab's nodes only pretend to run Pods. Each has what its Pod of the API server
// has and nothing else: command, arguments, environment, a read-only root with the image's files
// and the Pod's volumes, the image's user, a token of its ServiceAccount that is bound to the Pod,
// and a network of its own. The API servers' audit logs show missing and unused rights.
//
// Differences from a cluster: Redis is the lab's own, which takes a port instead of Redis'
// arguments; Services are addresses in /etc/hosts; of a Deployment's replicas one runs; Argo CD
// verifies no signatures of commits; network policies are not enforced. It needs root, as a
// container's runtime does.
package helm

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/test/stack"
)

// Where things are.
const (
	hubSpace    = "argosy"
	argoSpace   = "argocd-eu-1" // the engine that the hub writes to
	edgeSpace   = "argosy-agent"
	edgeArgo    = "argocd" // the Argo CD beside the agent
	acmeSpace   = "argosy-tenant-acme"
	globexSpace = "argosy-tenant-globex"
	workSpace   = "acme-web"           // on both clusters
	plantArgo   = "argocd-plant"       // the engine that registers itself, on the agent's cluster
	plantSpace  = "argocd-plant-agent" // its agent
	plantWork   = "acme-plant"
)

// setup is two clusters, and what both reach.
type setup struct {
	t         *testing.T
	dir       string
	image     string // a root folder with what Argosy's image has in it
	hub, edge place
	git       *stack.GitServer
	config    *stack.Repo
	app       *stack.Repo
	database  string // URL
	fresh     string // URL of another, unused one
	ca        []byte // vouches for the Git server, the control plane and the hub's repo-server
	key, cert []byte // of the latter two

	front, repoServer, redis *door
}

// place is a cluster.
type place struct {
	name    string
	cluster *stack.Cluster
	audit   string
}

func open(t *testing.T) *setup {
	t.Helper()
	w := &setup{t: t, dir: t.TempDir()}
	check(t, os.Chmod(w.dir, 0o711))
	w.build()
	w.certify()
	w.git = must(stack.StartGitTLS(t.Context(), ""))(t)
	closing(t, w.git.Stop)
	w.hub, w.edge = w.place("hub"), w.place("edge")
	postgres := must(stack.StartPostgres(t.Context(), ""))(t)
	closing(t, postgres.Stop)
	w.database = must(postgres.NewDatabase(t.Context(), "argosy"))(t)
	w.fresh = must(postgres.NewDatabase(t.Context(), "fresh"))(t)
	w.front, w.repoServer, w.redis = newDoor(t, "127.0.0.1:8080"), newDoor(t, "127.0.0.1:8081"),
		newDoor(t, "127.0.0.1:6379")
	return w
}

func (w *setup) place(name string) place {
	p := place{name: name, audit: filepath.Join(w.dir, name+".audit")}
	p.cluster = must(stack.StartCluster(w.t.Context(), stack.ClusterOptions{
		Name: name, AuditLog: p.audit}))(w.t)
	closing(w.t, p.cluster.Stop)
	return p
}

// instance is an Argo CD.
type instance struct {
	place
	namespace string
	writer    string // namespace of who writes to it
	work      string // namespace that it deploys to
}

func (w *setup) instances() []instance {
	return []instance{{w.hub, argoSpace, hubSpace, workSpace},
		{w.edge, edgeArgo, edgeSpace, workSpace}, {w.edge, plantArgo, plantSpace, plantWork}}
}

func (p place) address() string { return strings.TrimPrefix(p.cluster.Server, "https://") }

func (w *setup) gitAddress() string { return strings.TrimPrefix(w.git.URL, "https://") }

func (w *setup) databaseAddress() string {
	return strings.Split(strings.Split(w.database, "@")[1], "/")[0]
}

// hubURL is where people and agents reach the control plane.
func (w *setup) hubURL() string { return "https://" + w.front.address }

// door is an address of this machine that leads to a port of a Pod, as a Service or an Ingress
// would: always to the Pod that runs.
type door struct {
	address string
	port    string // the Pod's, with its loopback address
	mu      sync.Mutex
	box     *stack.Sandbox
}

func newDoor(t *testing.T, port string) *door {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	d := &door{address: l.Addr().String(), port: port}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go d.carry(in)
		}
	}()
	return d
}

// lead makes the door lead to another Pod; nil: to none.
func (d *door) lead(box *stack.Sandbox) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.box = box
}

func (d *door) dial() (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.box == nil {
		return nil, fmt.Errorf("no process is behind %s", d.address)
	}
	return d.box.Dial(context.Background(), "tcp", d.port)
}

func (d *door) carry(in net.Conn) {
	defer in.Close()
	out, err := d.dial()
	if err != nil {
		return
	}
	defer out.Close()
	go func() {
		defer in.Close()
		defer out.Close()
		_, _ = io.Copy(out, in)
	}()
	_, _ = io.Copy(in, out)
}

// build makes the image's folder: the binary, and what the dynamic loader needs of this machine
// where it is not static.
func (w *setup) build() {
	w.image = filepath.Join(w.dir, "image")
	binary := filepath.Join(w.image, "usr/local/bin/argosy")
	build := exec.CommandContext(w.t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary,
		"argosy.dev/argosy/cmd/argosy")
	if out, err := build.CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	libraries, err := exec.CommandContext(w.t.Context(), "ldd", binary).Output()
	if err != nil {
		return // static
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copied := filepath.Join(w.image, word)
			check(w.t, os.MkdirAll(filepath.Dir(copied), 0o755))
			check(w.t, os.WriteFile(copied, must(os.ReadFile(word))(w.t), 0o755))
		}
	}
}

// certify takes the test server's certificate for 127.0.0.1: the Git server has the same.
func (w *setup) certify() {
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	w.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	w.cert = w.ca
	w.key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
		Bytes: must(x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey))(w.t)})
	check(w.t, os.WriteFile(filepath.Join(w.dir, "ca.pem"), w.ca, 0o644))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must is the value of what has to succeed: must(f())(t).
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func closing(t *testing.T, stop func() error) {
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// patience bounds how long anything may take on a busy machine; nothing is timed.
const patience = 5 * time.Minute

// eventually asks until the answer is empty, which means yes; otherwise it is what is still
// missing.
func eventually(t *testing.T, what string, missing func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if left := stack.Until(ctx, missing); left != "" {
		t.Fatalf("%s: %s", what, left)
	}
}
