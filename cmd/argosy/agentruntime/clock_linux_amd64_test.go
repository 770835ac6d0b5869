package agentruntime_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/stack"
)

// The shipped program runs on a machine whose clock is two hours off. It joins, applies, reports
// and removes by the hub's time.
func TestAnAgentWorksWithAClockTwoHoursOff(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "argosy")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", binary,
		"argosy.dev/argosy/cmd/argosy").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for name, ahead := range map[string]time.Duration{"ahead": 2 * time.Hour,
		"behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "managed", "clock-"+name)
			m := &machine{site: s, binary: binary, ahead: ahead, folder: t.TempDir()}
			m.write("kubeconfig", m.kubeconfig())
			m.write("ca.pem", s.ca)

			checked := m.outputOf("agent", "join", "--check", s.hub)
			if offset := off.FindStringSubmatch(checked); offset == nil || !m.shifted(offset[1]) {
				t.Errorf("join --check reports of the clock: %v\n%s", offset, checked)
			}
			m.write("token", []byte(m.token()))
			m.outputOf("agent", "join", s.hub, "--token-file", filepath.Join(m.folder, "token"))
			run := m.start("agent", "run", "--hub", s.hub, "--ops", "")
			s.commit(map[string]string{"tenants/acme/deployments/web.yaml": web})
			apps, app := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd),
				fleet.ApplicationName(webID)
			s.until("the Application is on the cluster", func() error {
				_, err := apps.Get(t.Context(), app, metav1.GetOptions{})
				return err
			})
			_, err := apps.Patch(t.Context(), app, types.MergePatchType,
				[]byte(`{"status":{"sync":{"status":"Synced"},"health":{"status":"Healthy"}}}`),
				metav1.PatchOptions{})
			s.must(err)
			s.until("its health is in the mirror", func() error {
				all, err := s.client.Applications(t.Context(), view.Filter{}, 0)
				return check(err, len(all) == 1 && all[0].Health == mirror.HealthHealthy, all)
			})
			_, err = s.config.Remove(t.Context(), "web goes", "tenants/acme/deployments/web.yaml")
			s.must(err)
			s.until("it is removed", func() error { return s.released(app) })
			s.until("nothing waits for the agent", func() error {
				a, err := s.agentView()
				return check(err, a.Connected && a.Pending == 0 && a.PendingDeletions == 0 &&
					a.SeenAt != nil && time.Since(*a.SeenAt).Abs() < time.Minute, a)
			})
			if is := time.Until(run.clock(t)); !m.shifted(is.String()) {
				t.Errorf("the agent's own clock was %s off, so that this shows nothing", is)
			}
		})
	}
}

// machine runs the program next to a cluster, with a clock of its own.
type machine struct {
	*site
	binary string
	ahead  time.Duration
	folder string
}

var off = regexp.MustCompile(`this machine's clock is (\S+) off the hub's`)

// shifted reports whether an offset is the machine's.
func (m *machine) shifted(is string) bool {
	by, err := time.ParseDuration(is)
	return err == nil && (by-m.ahead).Abs() < time.Minute
}

func (m *machine) write(name string, content []byte) {
	m.Helper()
	m.must(os.WriteFile(filepath.Join(m.folder, name), content, 0o600))
}

// kubeconfig skips the check of the API server's certificate, whose validity may begin after the
// machine's time.
func (m *machine) kubeconfig() []byte {
	m.Helper()
	config, err := clientcmd.LoadFromFile(m.cluster.Kubeconfig)
	m.must(err)
	for _, c := range config.Clusters {
		c.InsecureSkipTLSVerify, c.CertificateAuthorityData, c.CertificateAuthority = true, nil, ""
	}
	text, err := clientcmd.Write(*config)
	m.must(err)
	return text
}

func (m *machine) token() (plaintext string) {
	m.Helper()
	m.until("a token is made for the declared environment", func() error {
		made, err := m.client.CreateAgentToken(m.Context(), wire.AgentTokenRequest{
			Tenant: "acme", Environment: "edge"})
		plaintext = made.Plaintext
		return err
	})
	return plaintext
}

// output is the output of a process so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var stamp = regexp.MustCompile(`(?m)^time=(\S+)`)

// clock is the time of the last line of a log, by the clock of its process.
func (o *output) clock(t *testing.T) time.Time {
	t.Helper()
	all := stamp.FindAllStringSubmatch(o.String(), -1)
	if len(all) == 0 {
		t.Fatalf("it has logged nothing: %s", o)
	}
	at, err := time.Parse(time.RFC3339Nano, all[len(all)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// command starts the program with the flags for the cluster and the hub.
func (m *machine) command(args ...string) (*exec.Cmd, *output) {
	m.Helper()
	all := append(args, "--kubeconfig", filepath.Join(m.folder, "kubeconfig"), "--namespace",
		m.agent, "--argocd-namespace", m.argocd, "--ca-file", filepath.Join(m.folder, "ca.pem"))
	cmd, out := exec.Command(m.binary, all...), &output{}
	cmd.Stdout, cmd.Stderr = out, out
	m.must(stack.StartShifted(cmd, m.ahead))
	return cmd, out
}

// outputOf runs the program to its end and returns its output.
func (m *machine) outputOf(args ...string) string {
	m.Helper()
	cmd, out := m.command(args...)
	if err := cmd.Wait(); err != nil {
		m.Fatalf("argosy %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out.String()
}

// start runs the program until the test ends.
func (m *machine) start(args ...string) *output {
	m.Helper()
	cmd, out := m.command(args...)
	m.Cleanup(func() {
		m.must(cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil || m.Failed() {
			m.Errorf("argosy %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	})
	return out
}
