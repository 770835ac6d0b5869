package main

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// binary is the folder of the argosy that the scripts run: the real one, built as `make build`
// builds it.
var binary string

func TestMain(m *testing.M) { os.Exit(withBinary(m)) }

func withBinary(m *testing.M) int {
	var err error
	if binary, err = os.MkdirTemp("", "argosy-scripts-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binary)
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o",
		filepath.Join(binary, "argosy"), ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// TestScripts runs testdata/script/*.txtar: what a person types, what they see, and how it exits.
// Beyond testscript's own commands:
//
//	mirror FILE          serve the mirror in FILE by the real API at $ARGOSY_SERVER, with the
//	                     platform's token in $ARGOSY_TOKEN
//	exits N COMMAND...   the command exits with exactly N
//
// UPDATE_SCRIPTS=1 rewrites what cmp compares with.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
			env.Setenv("HOME", env.WorkDir)
			examples, err := filepath.Abs("../../examples")
			if err != nil {
				return err
			}
			env.Setenv("EXAMPLES", examples)
			env.Setenv("PATH", binary+string(os.PathListSeparator)+env.Getenv("PATH"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mirror": serveMirror, "exits": exits},
		RequireUniqueNames: true,
		UpdateScripts:      os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// workloads is a tree with two workloads of the sources, and one that an operator has made.
func workloads() mirror.Tree {
	node := func(group, kind, name string, parent int) mirror.TreeNode {
		return mirror.TreeNode{ResourceRef: mirror.ResourceRef{Group: group, Kind: kind,
			Namespace: "shop", Name: name, UID: kind + name}, Parent: parent,
			Managed: parent < 0 && name != "of-an-operator"}
	}
	tree := mirror.Tree{Nodes: []mirror.TreeNode{node("apps", "Deployment", "checkout", -1),
		node("apps", "ReplicaSet", "checkout-1", 0), node("", "Pod", "checkout-1-a", 1),
		node("", "Pod", "checkout-1-b", 1), node("apps", "StatefulSet", "db", -1),
		node("", "Pod", "db-0", 4), node("apps", "StatefulSet", "of-an-operator", -1),
		node("", "Service", "checkout", -1)}}
	for i := range tree.Nodes {
		if n := &tree.Nodes[i]; n.Parent >= 0 {
			n.Depth = tree.Nodes[n.Parent].Depth + 1
		}
	}
	return tree
}

// checkoutResources are the resources of the workloads' Application.
func checkoutResources() apitest.Resources {
	ago := func(d time.Duration) *time.Time {
		at := time.Now().Add(-d)
		return &at
	}
	deployment := mirror.ResourceRef{Group: "apps", Kind: "Deployment", Namespace: "shop",
		Name: "checkout", UID: "Deploymentcheckout"}
	pod := mirror.ResourceRef{Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "Poddb-0"}
	return apitest.Resources{Tree: workloads(),
		Diff: mirror.ApplicationDiff{Same: 7, Resources: []mirror.ResourceDiff{{
			ResourceRef: deployment, Change: mirror.ResourceUpdated,
			Diff: "@@ -1,1 +1,1 @@\n-  replicas: 2\n+  replicas: 3\n"}}},
		Events: []mirror.ResourceEvent{{Resource: pod, Type: "Warning", Reason: "BackOff",
			Message: "Back-off restarting failed container \x1b[31mred", Count: 61,
			LastAt: ago(time.Minute), Source: "kubelet"}},
		Details: []mirror.ResourceDetail{{ResourceRef: pod, Version: "v1",
			Live:       "apiVersion: v1\nkind: Pod\n",
			Containers: []mirror.Container{{Name: "db", Image: "db:1"}}}},
		Logs: map[string][]mirror.LogLine{"db-0/db": {{At: ago(time.Minute), Text: "ready"},
			{Text: "panic: \x1b[31mred"}}}}
}

// serve serves the mirror by the real API until the test ends.
func serve(store *apitest.Store, onEnd func(func())) (url string) {
	server := api.New(
		api.Config{
			Reader: api.Reader{Inventory: store, History: store, State: store, PullReader: store,
				AuditReader: store,
				Finder:      store,
				Simulator:   store},
			Decider: store, Tokens: store, Agents: store, Version: "test",
			Inspector: apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{
				drawnID: checkoutResources()})})
	store.OnChange(server.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		server.Run(ctx)
	}()
	web := httptest.NewServer(server)
	onEnd(func() {
		cancel()
		<-ran
		web.Close()
	})
	return web.URL
}

// stores are those of the scripts' servers, by their URL.
var stores sync.Map

func serveMirror(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mirror FILE")
	}
	content, err := apitest.Load(ts.ReadFile(args[0]), time.Now())
	ts.Check(err)
	store := apitest.New(content)
	url := serve(store, ts.Defer)
	stores.Store(url, store)
	ts.Setenv("ARGOSY_SERVER", url)
	ts.Setenv("ARGOSY_TOKEN", "argosy_ops_secret")
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	if store, ok := stores.Load(ts.Getenv("ARGOSY_SERVER")); ok {
		store.(*apitest.Store).KeepAges() // the script may have run for minutes
	}
	code := 0
	var failed *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with %d, not %s", strings.Join(args[1:], " "), code, args[0])
	}
}
