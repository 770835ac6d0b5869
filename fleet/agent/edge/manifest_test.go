package edge

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func install() Install { return Install{Hub: "https://hub.example.com", Image: "argosy:v1"} }

func TestManifestMatchesItsGoldenFile(t *testing.T) {
	full := install()
	full.Namespace, full.ArgoCDNamespace, full.Proxy, full.NoProxy, full.MaxDeletions = "edge",
		"gitops", "http://proxy.example.com:3128", "10.0.0.0/8", 5
	full.EgressOnly, full.PublicOnly = true, true
	full.ApplicationNamespaces = []string{"shop-apps", "more-apps"}
	full.Reads, full.ReadNamespaces = true, []string{"shop", "more-apps"}
	full.Restarts = true
	for name, in := range map[string]Install{"manifest.yaml": install(),
		"manifest-full.yaml": full} {
		got, err := in.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if again, _ := in.Manifest(); string(again) != string(got) {
				t.Fatal("the same install gives another manifest")
			}
		}
		path := "testdata/" + name
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s differs; review it and run with -update (%v)", path, err)
		}
	}
}

func TestRightsAreMinimal(t *testing.T) {
	for _, public := range []bool{false, true} {
		in := install().withDefaults()
		in.PublicOnly, in.ApplicationNamespaces = public, []string{"shop-apps"}
		in.Reads = !public // with public it may read the password of Redis alone
		for _, rule := range slices.Concat(in.ownRules(), in.argoRules(), in.clusterRules(),
			applicationRules(), readRules()) {
			if s := strings.Join(slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources),
				" "); strings.Contains(s, "*") {
				t.Errorf("a wildcard: %v", rule)
			}
		}
		for _, rule := range in.clusterRules() {
			if len(rule.ResourceNames) != 1 || !slices.Equal(rule.Verbs, []string{"get"}) {
				t.Errorf("on the whole cluster: %v", rule)
			}
		}
		secrets := slices.ContainsFunc(in.argoRules(), func(r rbac.PolicyRule) bool {
			return slices.Contains(r.Resources, "secrets")
		})
		if secrets == public {
			t.Errorf("public only %v: rights on Secrets %v", public, secrets)
		}
		for _, rule := range in.ownRules() {
			if len(rule.ResourceNames) == 0 && !slices.Equal(rule.Verbs, []string{"create"}) {
				t.Errorf("in its own namespace: %v", rule)
			}
		}
	}
}

func TestInstallRejectsUnsafeOptions(t *testing.T) {
	for name, change := range map[string]func(*Install){
		"plain http":             func(in *Install) { in.Hub = "http://hub.example.com" },
		"one namespace for both": func(in *Install) { in.Namespace = "argocd" },
		"no image":               func(in *Install) { in.Image = "" },
		"a password of the proxy": func(in *Install) {
			in.Proxy = "http://user:canary-1@proxy:3128"
		},
		"a key in the CA file": func(in *Install) {
			in.CA = []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
		},
		"a namespace that is YAML": func(in *Install) { in.Namespace = "a: b" },
		"Applications of all namespaces": func(in *Install) {
			in.ApplicationNamespaces = []string{"*"}
		},
		"Applications of Kubernetes": func(in *Install) {
			in.ApplicationNamespaces = []string{"kube-system"}
		},
		"Applications of the agent": func(in *Install) {
			in.Namespace, in.ApplicationNamespaces = "edge", []string{"edge"}
		},
		"Applications of Argo CD's own namespace": func(in *Install) {
			in.ArgoCDNamespace, in.ApplicationNamespaces = "gitops", []string{"gitops"}
		},
	} {
		in := install()
		change(&in)
		_, err := in.Manifest()
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Reading the resources of workloads is never a right to write, nor to read a Secret.
func TestRightsToReadAreNoOthers(t *testing.T) {
	for _, rule := range readRules() {
		for _, verb := range rule.Verbs {
			if verb != "get" && verb != "list" || slices.Contains(rule.Resources, "secrets") {
				t.Errorf("%v", rule)
			}
		}
	}
	in := install().withDefaults()
	if text := fmt.Sprint(in.argoRules()); strings.Contains(text, "portforward") {
		t.Errorf("without --reads: %s", text)
	}
	in.ReadNamespaces = []string{"shop"}
	if err := in.CheckNamespaces(); err == nil || !strings.Contains(err.Error(), "--reads") {
		t.Errorf("without --reads: %v", err)
	}
	in.Reads = true
	for _, wrong := range []string{"argocd", "argosy-agent", "Shop", "*"} {
		in.ReadNamespaces = []string{wrong}
		if err := in.CheckNamespaces(); err == nil || !strings.Contains(err.Error(),
			"--read-namespaces") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	in.ReadNamespaces, in.ApplicationNamespaces = []string{"shop", "apps"}, []string{"apps"}
	if got := in.furtherNamespaces(); !slices.Equal(got, []string{"apps", "shop"}) {
		t.Errorf("%v", got)
	}
	both := in.furtherRules("apps")
	if len(both) != len(applicationRules())+len(readRules()) {
		t.Errorf("%v", both)
	}
}
