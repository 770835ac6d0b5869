package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

const (
	vaultApp    = "acme/cabinet@vault"
	cabinetFile = "tenants/acme/deployments/cabinet.yaml"
)

// TestAClusterSetUpByHandGetsItsCredentialsSealed joins by a token that people put on both sides,
// deploys from a private repository there, and searches database, logs and traffic for secrets. It
// uses every right that the agent has.
func TestAClusterSetUpByHandGetsItsCredentialsSealed(t *testing.T) {
	f := edges.use(t)
	first, second, token := canary(), canary(), canary()
	repo := f.privateRepo(t, first)
	s := f.declareSite(t, "vault", "{argocdNamespace: argocd}", map[string]string{
		"cabinet": strings.NewReplacer("acme/storefront", "acme/cabinet", "v2.0.1", "main").
			Replace(f.deployment("cabinet", "vault", "acme-vault", ""))}, "acme-vault")
	defer func() { f.Edge.Hub.Tap(nil) }()
	defer s.leave(t)
	credential := "tenants/acme/credentials/cabinet.yaml"
	s.files[credential] =
		"apiVersion: argosy.dev/v1alpha1\nkind: RepositoryCredential\nmetadata: {name: cabinet}\n" +
			"spec: {repoURL: \"" + repo.URL + "\", credentialsRef: {name: cabinet-git}}\n"
	f.commit(t, "a credential", map[string]string{credential: s.files[credential]})
	var tapped bytes.Buffer
	s.edge.Hub.Tap(&tapped)

	t.Run("it joins by itself", func(t *testing.T) {
		s.byHand(t, token)
		eventually(t, "it is connected and up to date", s.shows(t, upToDate))
		secret, err := s.edge.Cluster.Client().CoreV1().Secrets(agentNamespace).Get(t.Context(),
			agentNamespace, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, there := secret.Data["registrationToken"]; there || len(secret.Data["agent"]) == 0 {
			t.Error("the token is still in the Secret, or there is no identity")
		}
	})
	t.Run("the older route", func(t *testing.T) { f.olderRoute(t, token) })
	t.Run("it deploys from a private repository", func(t *testing.T) {
		eventually(t, "it is Healthy", f.healthy(t, vaultApp))
		if got := s.password(t); got != first {
			t.Error("the repository Secret has another password")
		}
	})
	t.Run("a new password reaches it without a restart", func(t *testing.T) {
		process := s.agent.PID()
		repo.RequireAuth(example.GitUser, second)
		if err := f.WriteSecret("acme", "cabinet-git", "password", second); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the repository Secret has it", func() string {
			if s.password(t) != second {
				return "it has another"
			}
			return ""
		})
		head, err := repo.Commit(t.Context(), "pushed with the new password", map[string]string{
			"deploy/config.yaml": motd("rotated")})
		if err != nil {
			t.Fatal(err)
		}
		// Argo CD polls a branch's head every three minutes
		s.files[cabinetFile] = strings.Replace(s.files[cabinetFile], "targetRevision: main",
			"targetRevision: "+head, 1)
		f.commit(t, "the newest cabinet", map[string]string{cabinetFile: s.files[cabinetFile]})
		eventually(t, "Argo CD reads the repository with it", f.syncedTo(t, "cabinet", head))
		if ended(s.agent) || s.agent.PID() != process {
			t.Error("the agent was restarted")
		}
	})
	t.Run("it adopts in another namespace than Argo CD's", s.adoptsElsewhere)
	t.Run("it remembers an emergency stop", func(t *testing.T) { s.remembersAStop(t) })
	s.leave(t)
	s.edge.Hub.Tap(nil)
	t.Run("nothing of a secret was left on the way", func(t *testing.T) {
		all := f.places(t, string(s.engine), tapped.Bytes())
		nowhere(t, "the repository's password", first, all)
		nowhere(t, "the repository's new password", second, all)
		// who ends TLS reads the token as it is swapped, this once: it is of no use after that
		delete(all, "what a proxy reads")
		nowhere(t, "the registration token", token, all)
		if n := bytes.Count(tapped.Bytes(), []byte(token)); n != 1 {
			t.Errorf("the registration token was sent %d times", n)
		}
	})
	t.Run("no right was missing, and none is idle", func(t *testing.T) { f.usedRights(t) })
}

// privateRepo is acme/cabinet with a copy of the storefront, for who has the password; and the
// secret with it, as a file of the tenant's.
func (f *system) privateRepo(t *testing.T, password string) *stack.Repo {
	t.Helper()
	repo, err := f.Git.CreateRepo(t.Context(), "acme/cabinet")
	if err != nil {
		t.Fatal(err)
	}
	files, err := stack.Files(os.DirFS("../../examples/app-repos/acme/storefront"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Commit(t.Context(), "first version", files); err != nil {
		t.Fatal(err)
	}
	repo.RequireAuth(example.GitUser, password)
	for key, value := range map[string]string{"username": example.GitUser, "password": password} {
		if err := f.WriteSecret("acme", "cabinet-git", key, value); err != nil {
			t.Fatal(err)
		}
	}
	return repo
}

func motd(text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: storefront}\ndata: {motd: " + text +
		"}\n"
}

// byHand does the steps of an admin who trusts no command with the kubeconfig: the manifest, a
// Secret with the token, and the token's registration at the control plane.
func (s *site) byHand(t *testing.T, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := s.argosy(t, "agent", "token", "create", s.name, "--legacy", "--from-file",
		file); code != 0 || strings.Contains(out+errs, token) {
		t.Fatalf("exit code %d, or the token is printed", code)
	}
	manifest := s.must(t, "agent", "manifest", "--hub", s.edge.URL, "--ca-file", s.edge.CAFile,
		"--image", "registry.example.com/argosy:latest", "--application-namespaces",
		example.EdgeApplications)
	for _, text := range strings.Split("\n"+manifest, "\n---\n")[1:] {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if err := s.edge.Cluster.Apply(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
	}
	s.clear(t)
	_, err := s.edge.Cluster.Client().CoreV1().Secrets(agentNamespace).Create(t.Context(),
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: agentNamespace}, StringData: map[string]string{
				"registrationToken": token},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.start(t)
}

// password is that of the one repository Secret that the site has.
func (s *site) password(t *testing.T) string {
	t.Helper()
	found := s.ours(t, secrets)
	if len(found) != 1 {
		return fmt.Sprintf("there are %d Secrets", len(found))
	}
	secret, err := s.edge.Cluster.Client().CoreV1().Secrets("argocd").Get(t.Context(),
		found[0].GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return string(secret.Data["password"])
}

// olderRoute asks for the manifests with the token in the path: of a replica where that is off, and
// of one where it is on.
func (f *system) olderRoute(t *testing.T, token string) {
	on, err := f.StartPlane(t.Context(), example.PlaneOptions{Binary: binary, Name: "older",
		Database: f.database, More: "agents: {legacyTokenPath: true}\n",
		Progress: func(string, ...any) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Stop()
	ask := func(url, token string) (*http.Response, []byte) {
		t.Helper()
		return get(t, url+"/api/v1/cluster/"+token+"/applications")
	}
	eventually(t, "it knows that nothing is stopped", func() string {
		if answer, _ := ask(on.URL, token); answer.StatusCode == http.StatusServiceUnavailable {
			return answer.Status
		}
		return ""
	})
	off, _ := ask(f.plane.URL, token)
	wrong, _ := ask(on.URL, canary())
	if off.StatusCode != http.StatusNotFound || wrong.StatusCode != http.StatusNotFound {
		t.Errorf("where it is off: %s; with an unknown token: %s", off.Status,
			wrong.Status)
	}
	answer, body := ask(on.URL, token)
	var list struct {
		Kind  string
		Items []struct{ Kind string }
	}
	if err := json.Unmarshal(body, &list); err != nil || answer.StatusCode != http.StatusOK ||
		list.Kind != "List" {
		t.Fatalf("%s, %v: %s", answer.Status, err, body)
	}
	kinds := map[string]int{}
	for _, item := range list.Items {
		kinds[item.Kind]++
	}
	if kinds["Application"] != 1 || kinds["AppProject"] != 1 || kinds["Secret"] != 0 {
		t.Errorf("it lists %v", kinds)
	}
	if answer.Header.Get("Deprecation") == "" || answer.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("it is answered with %v", answer.Header)
	}
	if text, err := os.ReadFile(filepath.Join(f.Dir, "older.log")); err != nil ||
		bytes.Contains(text, []byte(token)) {
		t.Errorf("its log has the token, or cannot be read: %v", err)
	}
}

// get asks without a token in any header.
func get(t *testing.T, url string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// remembersAStop stops the tenant and waits for the marker on the cluster, which the agent
// recreates.
func (s *site) remembersAStop(t *testing.T) {
	markers := s.edge.Cluster.Client().CoreV1().ConfigMaps("argocd")
	const marker = "argosy-emergency-stop"
	if err := markers.Delete(t.Context(), marker, metav1.DeleteOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	marked := func(want bool) func() string {
		return func() string {
			found, err := markers.Get(context.Background(), marker, metav1.GetOptions{})
			if exists := err == nil && len(found.Data) > 0; exists != want {
				return fmt.Sprintf("%v, %v", err, found)
			}
			return ""
		}
	}
	s.must(t, "stop", "--yes", "--tenant", "acme", "--reason", "a test")
	defer s.argosy(t, "resume", "--tenant", "acme") // a second time where all is well
	eventually(t, "the stop is kept on the cluster", marked(true))
	s.must(t, "resume", "--tenant", "acme")
	eventually(t, "and taken off again", marked(false))
}
