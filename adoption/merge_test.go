package adoption

import (
	"strings"
	"testing"
)

const earlierTenant = `# Shop
apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata:
  name: shop
spec:
  owners:
    - group:shop
  quota:
    environments: 10
    deployments: 40
    applications: 10
  repositories:
    - https://git.example.com/acme/checkout
  clusterResources:
    - group: ""
      kind: Namespace
  environments:
    - name: main
      namespaces:
        - kube-system
  allow:
    plugins:
      - vault
`

const laterTenant = `apiVersion: argosy.dev/v1alpha1
kind: Tenant
metadata:
  name: shop
spec:
  owners:
    - group:shop
  quota:
    environments: 12
    deployments: 10
    applications: 10
  repositories:
    - https://git.example.com/acme/cart
  environments:
    - name: main
      namespaces:
        - default
  allow:
    replace: true
`

// A grant that either part has is in the result, and to merge again changes nothing.
func TestALaterPartTakesNoGrantOfAnEarlierOne(t *testing.T) {
	t.Parallel()
	got, err := Merge([]byte(earlierTenant), []byte(laterTenant))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Shop\n", "environments: 12", "deployments: 40",
		"    - https://git.example.com/acme/cart\n    - https://git.example.com/acme/checkout\n",
		"kind: Namespace", "        - default\n        - kube-system\n", "- vault",
		"replace: true"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
	if n := strings.Count(string(got), "name: main"); n != 1 {
		t.Errorf("main is granted %d times", n)
	}
	for _, part := range []string{earlierTenant, laterTenant, string(got)} {
		again, err := Merge(got, []byte(part))
		if err != nil || string(again) != string(got) {
			t.Errorf("merged again: %v\n%s", err, again)
		}
	}
}

func TestAnEnvironmentIsReachedInOneWay(t *testing.T) {
	t.Parallel()
	environment := func(spec string) []byte {
		return []byte("apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\nmetadata:\n" +
			"  name: eu\nspec:\n" + spec)
	}
	got, err := Merge(environment("  agent: {}\n  namespaces: [a]\n"),
		environment("  cluster: {server: 'https://x.example.com'}\n  allNamespaces: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(got), "agent") || strings.Contains(string(got), "namespaces:") ||
		!strings.Contains(string(got), "allNamespaces: true") {
		t.Errorf("%s", got)
	}
}
