package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// patience bounds how long anything may take on a busy machine; nothing is timed.
const patience = 4 * time.Minute

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

// argosy runs one command as a platform engineer and returns what it prints and its exit code.
func (f *system) argosy(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return f.argosyAs(t, f.plane.Token, args...)
}

func (f *system) argosyAs(t *testing.T, token string, args ...string) (stdout, stderr string,
	code int) {
	t.Helper()
	var out, errs strings.Builder
	c := f.plane.Command(t.Context(), args...)
	c.Env = append(c.Env, "ARGOSY_TOKEN="+token)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("argosy %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// must runs a command that has to end with exit code 0.
func (f *system) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := f.argosy(t, args...)
	if code != 0 {
		t.Fatalf("argosy %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// list asks for a kind and decodes it.
func list[T any](t *testing.T, f *system, args ...string) []T {
	t.Helper()
	out, errs, code := f.argosy(t, append(append([]string{"get"}, args...), "-o", "json")...)
	var answer struct{ Items []T }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Logf("argosy get %v: exit code %d, %v: %s", args, code, err, errs)
		return nil
	}
	return answer.Items
}

// unhealthy returns which of want (deployment@environment, tenant before a slash) are not applied,
// Synced and Healthy, and which Applications exist although they are not wanted.
func (f *system) unhealthy(t *testing.T, want ...string) func() string {
	return func() string {
		t.Helper()
		var left []string
		there := map[string]bool{}
		for _, a := range example.Near(list[view.Application](t, f, "applications")) {
			id := fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
				Environment: a.Environment}.String()
			there[id] = true
			switch {
			case !slices.Contains(want, id):
				left = append(left, id+" is still there")
			case !example.Healthy(a):
				left = append(left, id+" is "+string(a.Apply)+" "+string(a.Sync)+" "+
					string(a.Health)+" "+a.ApplyMessage+a.Message)
			}
		}
		for _, id := range want {
			if !there[id] {
				left = append(left, id+" is not there")
			}
		}
		return strings.Join(left, "; ")
	}
}

var exampleApplications = []string{
	"acme/checkout@prod-eu", "acme/checkout-staging@staging", "acme/storefront@prod-eu",
	"globex/billing@prod-eu", "globex/billing@prod-us", "globex/web@prod-eu", "globex/web@prod-us",
	"initech/portal@prod-us",
}

func (f *system) allHealthy(t *testing.T, more ...string) {
	t.Helper()
	eventually(t, "every Application applied, Synced and Healthy",
		f.unhealthy(t, append(slices.Clone(exampleApplications), more...)...))
}

// commit pushes files to the config repo and waits until the commit is recorded, whatever it leads
// to.
func (f *system) commit(t *testing.T, message string, files map[string]string) fleet.Revision {
	t.Helper()
	id, err := f.Config.Commit(t.Context(), message, files)
	if err != nil {
		t.Fatal(err)
	}
	f.seen(t, id)
	return fleet.Revision(id)
}

func (f *system) remove(t *testing.T, message string, paths ...string) fleet.Revision {
	t.Helper()
	id, err := f.Config.Remove(t.Context(), message, paths...)
	if err != nil {
		t.Fatal(err)
	}
	f.seen(t, id)
	return fleet.Revision(id)
}

func (f *system) seen(t *testing.T, id string) {
	t.Helper()
	eventually(t, "revision "+id+" recorded", func() string {
		for _, r := range list[view.Revision](t, f, "revisions") {
			if string(r.Revision) == id {
				return ""
			}
		}
		return "not in `get revisions`"
	})
}

// deployment is a declaration of the storefront's plain manifests.
func (f *system) deployment(name, environment, namespace, more string) string {
	return "apiVersion: argosy.dev/v1alpha1\nkind: GitOpsDeployment\nmetadata: {name: " + name +
		"}\nspec:\n" +
		"  source: {repoURL: \"" + f.Git.URL +
		"/acme/storefront\", path: deploy, targetRevision: v2.0.1}\n" +
		"  destination: {environments: [" + environment + "], namespace: " + namespace + "}\n" +
		more
}

// deploymentAt is deployment with another target revision.
func (f *system) deploymentAt(name, environment, namespace, revision string) string {
	return strings.Replace(f.deployment(name, environment, namespace, ""), "v2.0.1", revision, 1)
}
