package stack_test

import (
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"argosy.dev/argosy/test/stack"
)

func TestARightIsUsedByARequestThatItPermitted(t *testing.T) {
	rights := stack.Rights("argocd", []rbacv1.PolicyRule{
		{APIGroups: []string{"argoproj.io"}, Resources: []string{"applications"}, Verbs: []string{
			"get", "create"}}})
	if len(rights) != 2 || rights[0].String() != "get applications.argoproj.io in argocd" {
		t.Fatalf("rights are %v", rights)
	}
	file := filepath.Join(t.TempDir(), "audit")
	const object = `"objectRef":{"apiGroup":"argoproj.io","resource":"applications","namespace":"argocd","name":"a"`
	for line, used := range map[string][2]bool{
		`{"verb":"get",` + object +
			`},"responseStatus":{"code":200}}`: {true, false},
		`{"verb":"get",` + object +
			`},"responseStatus":{"code":404}}`: {true, false},
		`{"verb":"get",` + object +
			`},"responseStatus":{"code":403}}`: {false, false},
		`{"verb":"get",` + object +
			`},"responseStatus":{"code":401}}`: {false, false},
		`{"verb":"get",` + object +
			`}}`: {false, false},
		`{"verb":"get",` + object +
			`,"subresource":"status"},"responseStatus":{"code":200}}`: {false, false},
		`{"verb":"patch",` + object +
			`},"responseStatus":{"code":201}}`: {false, true},
		`{"verb":"patch",` + object +
			`},"responseStatus":{"code":200}}`: {false, false},
		`{"verb":"get","objectRef":{"resource":"applications"},"responseStatus":{"code":200}}`: {
			false, false},
		`{"verb":"create",` + object[:len(object)-len(`,"name":"a"`)] +
			`},"responseStatus":{"code":201}}`: {false, true},
	} {
		if err := os.WriteFile(file, []byte(line+"\n"+`{"verb":"get","objectRef":{"apiGr`),
			0o600); err != nil {
			t.Fatal(err)
		}
		entries, err := stack.ReadAudit(file)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v: %v", entries, err)
		}
		if got := [2]bool{rights[0].UsedBy(entries[0]), rights[1].UsedBy(entries[0])}; got != used {
			t.Errorf("%s\nuses %v, and not %v", line, got, used)
		}
	}
}
