package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// show is what the demo shows, in order.
type show struct {
	ctx    context.Context
	plane  *example.Plane
	fleet  *example.Fleet
	binary string
	pod    string         // Pod/NAME of the shown Application
	agent  *stack.Process // on the cluster behind the firewall, once it has joined
}

const patience = 3 * time.Minute

// expected is how many Applications the example has on its two engines.
const expected = 8

// allHealthy reports whether the engines have n Applications, all of them Healthy. The cluster
// behind the firewall does not count.
func allHealthy(list []view.Application, n int) bool {
	near := example.Near(list)
	return len(near) == n && !slices.ContainsFunc(near, func(a view.Application) bool {
		return !example.Healthy(a)
	})
}

const promo = `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: promo
spec:
  source:
    repoURL: %s/acme/storefront
    path: deploy
    targetRevision: v2.0.1
  destination:
    environments: [staging]
    namespace: acme-staging
`

const wrong = `apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: landing
spec:
  source:
    repoURL: %s/acme/storefront
    path: deploy
    targetRevison: v2.0.1
  destination:
    environments: [stagin]
    namespace: acme-staging
`

func (s *show) run() error {
	for _, part := range []func() error{s.everything, s.inside, s.addition, s.mistake,
		s.removal, s.joining, s.outage} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

// recorded shows the recorded commit and the page, before Argo CD runs.
func (s *show) recorded() error {
	headline("the config repo is read; the Applications wait for Argo CD")
	err := s.plane.Await(s.ctx, "every Application listed", patience,
		func(list []view.Application) bool { return len(example.Near(list)) == expected })
	s.plane.Print(s.ctx, "get", "revisions")
	fmt.Printf("\nthe page is %s/; sign in with the token %s\n", s.plane.URL, s.plane.Token)
	return err
}

func (s *show) everything() error {
	headline("the config repo becomes Applications on two Argo CD instances")
	err := s.plane.Await(s.ctx, "every Application Synced and Healthy", patience,
		func(list []view.Application) bool {
			return allHealthy(list, expected)
		})
	s.plane.Print(s.ctx, "get", "applications")
	s.plane.Print(s.ctx, "get", "engines")
	return err
}

// shown is the Application whose resources the demo shows.
const shown = "globex/billing@prod-us"

// inside shows the resources of an Application, what a container has printed, and what differs from
// Git.
func (s *show) inside() error {
	headline("why is an Application as it is: its resources, its log, its difference from Git")
	tree, err := s.eventually("tree", shown, "-o", "json")
	if err != nil {
		return err
	}
	if s.pod, err = firstPod(tree); err != nil {
		return err
	}
	s.plane.Print(s.ctx, "tree", shown)
	for _, args := range [][]string{{"logs", shown, "--resource", s.pod}, {"diff", shown}} {
		if _, err := s.eventually(args...); err != nil {
			return err
		}
		s.plane.Print(s.ctx, args...)
	}
	headline("which version runs where")
	s.plane.Print(s.ctx, "matrix")
	return nil
}

// firstPod returns the first Pod of a tree in JSON, as Pod/NAME.
func firstPod(tree []byte) (string, error) {
	var t view.Tree
	if err := json.Unmarshal(tree, &t); err != nil {
		return "", fmt.Errorf("argosy tree -o json: %w", err)
	}
	i := slices.IndexFunc(t.Nodes, func(n view.TreeNode) bool { return n.Kind == "Pod" })
	if i < 0 {
		return "", fmt.Errorf("%s has no Pod", shown)
	}
	return "Pod/" + t.Nodes[i].Name, nil
}

// eventually runs a command until it succeeds: an Argo CD that has just started has no tree yet.
func (s *show) eventually(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	for {
		c := s.plane.Command(ctx, args...)
		var failure bytes.Buffer
		c.Stderr = &failure
		out, err := c.Output()
		if err == nil {
			return out, nil
		}
		select {
		case <-ctx.Done():
			if s.ctx.Err() != nil {
				return nil, s.ctx.Err()
			}
			return nil, fmt.Errorf("argosy %s: not within %s: %w: %s", args[0], patience, err,
				failure.Bytes())
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (s *show) addition() error {
	headline("a tenant commits a new deployment")
	if err := s.commit("promo in staging", "tenants/acme/deployments/promo.yaml",
		fmt.Sprintf(promo, s.fleet.Git.URL)); err != nil {
		return err
	}
	return s.plane.Await(s.ctx, "promo Healthy", patience, func(list []view.Application) bool {
		return slices.ContainsFunc(list, func(a view.Application) bool {
			return a.Deployment == "promo" && example.Healthy(a)
		})
	})
}

func (s *show) mistake() error {
	headline("a tenant commits a file with two mistakes, and a good change beside it")
	if err := s.commit("landing page", "tenants/acme/deployments/landing.yaml",
		fmt.Sprintf(wrong, s.fleet.Git.URL)); err != nil {
		return err
	}
	limit := time.Now().Add(patience)
	for time.Now().Before(limit) {
		if out, err := s.plane.Command(s.ctx, "get", "problems", "-o",
			"name").Output(); err == nil && len(out) > 0 {
			s.plane.Print(s.ctx, "get", "problems")
			return s.plane.Await(s.ctx, "the others undisturbed", patience,
				func(list []view.Application) bool {
					return allHealthy(list, expected+1)
				})
		}
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
	}
	return fmt.Errorf("the bad file is not named within %s", patience)
}

func (s *show) removal() error {
	headline(
		"a tenant removes a deployment that runs in two environments; within the guard, so it goes")
	if _, err := s.fleet.Config.Remove(s.ctx, "web is retired",
		"tenants/globex/deployments/web.yaml",
		"tenants/acme/deployments/landing.yaml"); err != nil {
		return err
	}
	err := s.plane.Await(s.ctx, "web gone", patience, func(list []view.Application) bool {
		return allHealthy(list, expected-1)
	})
	s.plane.Print(s.ctx, "get", "revisions")
	s.plane.Print(s.ctx, "explain", "environment", "acme/prod-eu")
	return err
}

func (s *show) joining() error {
	headline("a cluster behind a firewall joins: one token, one command there, outbound HTTPS only")
	fmt.Println("$ argosy agent token create acme/factory-berlin > token")
	token, err := s.plane.Command(s.ctx, "agent", "token", "create", "acme/factory-berlin").Output()
	if err != nil {
		return fmt.Errorf("argosy agent token create: %w", err)
	}
	fmt.Printf("factory$ argosy agent join %s --token-file token\n", s.fleet.Edge.URL)
	printed, err := s.fleet.Edge.Join(s.binary, string(bytes.TrimSpace(token)))
	fmt.Print(printed)
	if err != nil {
		return err
	}
	if s.agent, err = s.fleet.Edge.StartAgent(s.ctx, s.binary); err != nil {
		return err
	}
	err = s.plane.Await(s.ctx, "the factory's Application Healthy", patience, factory)
	s.plane.Print(s.ctx, "get", "agents")
	return err
}

func (s *show) outage() error {
	headline("the factory cannot reach the control plane; a commit waits for it; then it can again")
	s.fleet.Edge.Hub.Block(true)
	defer s.fleet.Edge.Hub.Block(false)
	before, err := s.plane.Applications(s.ctx)
	if err != nil {
		return err
	}
	path := "tenants/acme/deployments/plc.yaml"
	text, err := s.fleet.Config.Git(s.ctx, "show", "main:"+path)
	if err != nil {
		return err
	}
	if err := s.commit("nothing of the factory is pruned any more", path,
		text+"\n  sync: {mode: automated, prune: false}\n"); err != nil {
		return err
	}
	changed := func(list []view.Application) bool {
		return !slices.Equal(revisions(before), revisions(list))
	}
	err = s.plane.Await(s.ctx, "the commit recorded", patience, changed)
	s.plane.Print(s.ctx, "get", "agents")
	s.fleet.Edge.Hub.Block(false)
	if err != nil {
		return err
	}
	return s.plane.Await(s.ctx, "the factory up to date", patience, factory)
}

// factory reports whether the Application behind the firewall is Healthy.
func factory(list []view.Application) bool {
	return slices.ContainsFunc(list, func(a view.Application) bool {
		return a.Environment == "factory-berlin" && example.Healthy(a)
	})
}

// revisions are those that last changed each Application.
func revisions(list []view.Application) []string {
	var all []string
	for _, a := range list {
		all = append(all, a.Name+" "+string(a.Revision))
	}
	slices.Sort(all)
	return all
}

func (s *show) commit(message, path, content string) error {
	_, err := s.fleet.Config.Commit(s.ctx, message, map[string]string{path: content})
	return err
}

func (s *show) invite() {
	headline("look around; Ctrl-C ends everything")
	fmt.Printf(`
  export ARGOSY_SERVER=%[1]s ARGOSY_TOKEN=%[2]s
  bin/argosy get applications --engine eu-1
  bin/argosy describe agent acme/factory-berlin
  bin/argosy get applications --watch

why is it so:
  bin/argosy tree %[7]s    resources down to the Pods
  bin/argosy diff %[7]s    what a sync would change; exit code 1 with a difference
  bin/argosy logs %[7]s -f --resource %[8]s
  bin/argosy events %[7]s

what runs where:
  bin/argosy search billing    a name, a commit, an image
  bin/argosy matrix            which version each environment runs

the same in a browser, with the token:
  Services          %[1]s/services
  Tree, diff, logs  %[1]s/tenants/globex/applications/billing/prod-us
  Search            press /

  the page         %[1]s/
  the config repo  git clone %[3]s
  Kubernetes       kubectl --kubeconfig %[4]s get applications -A
                   kubectl --kubeconfig %[5]s get applications -A
  settings         %[6]s

`, s.plane.URL, s.plane.Token, s.fleet.Config.URL, s.fleet.Places[0].Cluster.Kubeconfig, s.fleet.Places[1].Cluster.Kubeconfig, s.plane.Config, shown, s.pod)
}
