package instance_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/test/stack"
)

var shared struct {
	sync.Mutex
	cluster *stack.Cluster
	audit   string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		_ = os.RemoveAll(filepath.Dir(shared.audit))
	}
	os.Exit(code)
}

// cluster is a real API server with controllers, without Argo CD's kinds.
func cluster(t *testing.T) *stack.Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		dir, err := os.MkdirTemp("", "argosy-instance-")
		check(t, err)
		shared.audit = filepath.Join(dir, "audit.log")
		shared.cluster, err = stack.StartCluster(context.Background(),
			stack.ClusterOptions{Name: "instance", AuditLog: shared.audit})
		check(t, err)
	}
	return shared.cluster
}

// published returns the manifests of a version of Argo CD.
func published(t *testing.T, minor string) (*instance.Manifests, string) {
	t.Helper()
	version, files, err := stack.ArgoManifests(minor)
	check(t, err)
	m, err := instance.Parse(version, files)
	check(t, err)
	return m, fleet.ManifestsDigest(files)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, err error, part string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Errorf("error %v, want one with %q", err, part)
	}
}
