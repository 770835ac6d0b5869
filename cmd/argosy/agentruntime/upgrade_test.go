package agentruntime_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/cmd/argosy/agentruntime"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// process starts another process of the site's agent, which may replace itself.
func (s *site) process(version string, config *rest.Config) (*agentruntime.Agent, func(),
	<-chan error) {
	return s.processOf("", version, config)
}

// processOf is process for the Pod of an upgrade.
func (s *site) processOf(upgrade, version string, config *rest.Config) (*agentruntime.Agent, func(),
	<-chan error) {
	s.Helper()
	a, err := agentruntime.New(agentruntime.Config{Hub: s.hub, Namespace: s.agent,
		ArgoCDNamespace: s.argocd, CA: s.ca, MaxDeletions: 20, InFlight: 8, SelfUpgrade: true,
		Upgrade: upgrade, SessionWithin: 5 * time.Second, Cluster: config, Version: version,
		Log: slog.New(slog.NewTextHandler(testWriter{s.T}, nil))})
	s.must(err)
	ctx, cancel := context.WithCancel(s.Context())
	result := make(chan error, 1)
	go func() { result <- a.Run(ctx); close(result) }()
	stop := func() {
		cancel()
		for range result {
		}
	}
	s.Cleanup(stop)
	return a, stop, result
}

// works waits until the agent of that version has the session.
func (s *site) works(version string) {
	s.Helper()
	s.until("version "+version+" works", func() error {
		v, err := s.agentView()
		if err == nil && (!v.Connected || v.Version != version) {
			err = fmt.Errorf("%+v", v)
		}
		return err
	})
}

// While a Deployment replaces its Pod, two processes of one agent run. The new one is ready without
// a session, and works once the old one has ended: neither takes over from the other.
func TestANewProcessWaitsForTheOldOne(t *testing.T) {
	s := newSite(t, "managed", "turn")
	s.join()
	config := rest.CopyConfig(s.cluster.REST())
	_, stop, first := s.process("v1", config)
	s.works("v1")
	next, _, second := s.process("v2", config)
	s.until("the new process is ready", func() error {
		if !agentruntime.Ready(next) {
			return errors.New("it is not")
		}
		return nil
	})
	time.Sleep(3 * time.Second)
	if v, err := s.agentView(); err != nil || v.Version != "v1" || !v.Connected {
		t.Errorf("beside a ready process: %+v, %v", v, err)
	}
	for _, ended := range []<-chan error{first, second} {
		select {
		case err := <-ended:
			t.Errorf("a process has ended: %v", err)
		default:
		}
	}
	began := time.Now()
	stop()
	s.works("v2")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("the new process works after %s", took)
	}
	if v, err := s.agentView(); err != nil || v.Cloned || v.RevokedAt != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

// An agent with exactly the rights of its manifest changes the image of its Deployment, stays in
// the repository, and returns to the image before.
func TestAnAgentReplacesAndReturnsItsImage(t *testing.T) {
	s := newSite(t, "managed", "image")
	s.join()
	ctx, client := t.Context(), s.cluster.Client()
	in := edge.Install{Namespace: s.agent, ArgoCDNamespace: s.argocd, Hub: s.hub,
		Image: "mirror.example.com:5000/argosy:v1", SelfUpgrade: true}
	objects, err := in.Objects()
	s.must(err)
	deployment := objects[len(objects)-1].(*appsv1.Deployment)
	bare := in
	bare.SelfUpgrade = false
	s.grant(bare)
	_, err = client.AppsV1().Deployments(s.agent).Create(ctx, deployment, metav1.CreateOptions{})
	s.must(err)
	config := rest.CopyConfig(s.cluster.REST())
	config.Impersonate.UserName = "system:serviceaccount:" + s.agent + ":" + edge.Name
	digest := func(n string) string { return "sha256:" + strings.Repeat(n, 64) }
	wanted := mirror.Instance{AgentVersion: "1", AgentDigest: digest("a")}

	// without the rights
	rightless, err := agentruntime.New(agentruntime.Config{Hub: s.hub, Namespace: s.agent,
		ArgoCDNamespace: s.argocd, CA: s.ca, SelfUpgrade: true, Cluster: config, Version: "v1",
		Log: slog.New(slog.DiscardHandler)})
	s.must(err)
	if _, err := agentruntime.Upgrade(rightless, ctx, wanted); !errors.Is(err,
		engine.ErrStopped) {
		t.Errorf("before the emergency stops are known: %v", err)
	}
	s.grant(in)
	a, _, _ := s.process("v1", config)
	s.works("v1")
	step := func() (waits string) {
		t.Helper()
		s.until("a step", func() (err error) {
			waits, err = agentruntime.Upgrade(a, ctx, wanted)
			return err
		})
		return waits
	}
	image := func() string {
		t.Helper()
		d, err := client.AppsV1().Deployments(s.agent).Get(ctx, edge.Name, metav1.GetOptions{})
		s.must(err)
		return d.Spec.Template.Spec.Containers[0].Image
	}
	settled := func(part string) {
		t.Helper()
		s.until("the steps end with "+part, func() error {
			if waits := step(); !strings.Contains(waits, part) || part == "" && waits != "" {
				return errors.New(waits)
			}
			return nil
		})
	}
	settled("")
	if got := image(); got != "mirror.example.com:5000/argosy@"+digest("a") {
		t.Errorf("image %s", got)
	}
	wanted.AgentVersion = "2" // this process is v1 and claims the image
	settled("has version v1, and the ring declares 2")

	// the node has no room for a second Pod: the old one goes on, and the agent returns
	_, err = client.CoreV1().ResourceQuotas(s.agent).Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1")}}},
		metav1.CreateOptions{})
	s.must(err)
	wanted.AgentDigest = digest("b")
	settled("the Pod with the image mirror.example.com:5000/argosy@" + digest("b") +
		" is not ready")
	wanted.AgentVersion, wanted.AgentDigest = "", fleet.PreviousAgent
	settled("")
	if got := image(); got != "mirror.example.com:5000/argosy@"+digest("a") {
		t.Errorf("it returned to %s", got)
	}
	settled("") // and stays
	if got := image(); got != "mirror.example.com:5000/argosy@"+digest("a") {
		t.Errorf("a second time, it returned to %s", got)
	}
	s.grant(bare)
	s.until("a missing right is named", func() error {
		_, err := agentruntime.Upgrade(a, ctx, wanted)
		if !errors.Is(err, engine.ErrRefused) || !strings.Contains(err.Error(), "selfUpgrade") {
			return fmt.Errorf("error %w", err)
		}
		return nil
	})
}

// grant gives the agent exactly the Roles of an installation.
func (s *site) grant(in edge.Install) {
	s.Helper()
	objects, err := in.Objects()
	s.must(err)
	rbac := s.cluster.Client().RbacV1()
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			_, err = s.cluster.Client().CoreV1().ServiceAccounts(o.Namespace).Create(s.Context(), o,
				metav1.CreateOptions{})
		case *rbacv1.Role:
			_ = rbac.Roles(o.Namespace).Delete(s.Context(), o.Name, metav1.DeleteOptions{})
			_, err = rbac.Roles(o.Namespace).Create(s.Context(), o, metav1.CreateOptions{})
		case *rbacv1.RoleBinding:
			_, err = rbac.RoleBindings(o.Namespace).Create(s.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRole:
			_, err = rbac.ClusterRoles().Create(s.Context(), o, metav1.CreateOptions{})
		case *rbacv1.ClusterRoleBinding:
			_, err = rbac.ClusterRoleBindings().Create(s.Context(), o, metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.Fatal(err)
		}
	}
}

// deployed returns the image of the site's agent, the upgrade of its Pod, and the annotations.
func (s *site) deployed() (image, upgrade string, annotations map[string]string) {
	s.Helper()
	d, err := s.cluster.Client().AppsV1().Deployments(s.agent).Get(s.Context(), edge.Name,
		metav1.GetOptions{})
	s.must(err)
	c := d.Spec.Template.Spec.Containers[0]
	for _, e := range c.Env {
		if e.Name == agentruntime.EnvUpgrade {
			upgrade = e.Value
		}
	}
	return c.Image, upgrade, d.Annotations
}

// install creates the Deployment of an agent that may change its own image. It returns how the
// agent's account reaches the cluster.
func (s *site) install(image string) *rest.Config {
	s.Helper()
	in := edge.Install{Namespace: s.agent, ArgoCDNamespace: s.argocd, Hub: s.hub, Image: image,
		SelfUpgrade: true}
	objects, err := in.Objects()
	s.must(err)
	s.grant(in)
	_, err = s.cluster.Client().AppsV1().Deployments(s.agent).Create(s.Context(),
		objects[len(objects)-1].(*appsv1.Deployment), metav1.CreateOptions{})
	s.must(err)
	config := rest.CopyConfig(s.cluster.REST())
	config.Impersonate.UserName = "system:serviceaccount:" + s.agent + ":" + edge.Name
	return config
}

// The new process gets an access token, so that its Pod is ready and the old one ends, and then
// opens no session. It returns the image by itself, although it ends and starts again meanwhile;
// the old version comes back, reports why, and tries again only when a person asks for it.
func TestAnUpgradeWithoutASessionIsUndone(t *testing.T) {
	s := newSite(t, "managed", "undone")
	s.join()
	ctx := t.Context()
	const before = "mirror.example.com:5000/argosy:v1"
	config := s.install(before)
	first := time.Date(2026, 11, 28, 7, 0, 0, 123456000, time.UTC)
	wanted := mirror.Instance{AgentVersion: "v2", AgentDigest: "sha256:" + strings.Repeat("b", 64),
		Since: first}
	newImage := "mirror.example.com:5000/argosy@" + wanted.AgentDigest
	became := func(want string) (upgrade string) {
		t.Helper()
		s.until("the image is "+want, func() error {
			image, named, _ := s.deployed()
			if upgrade = named; image != want {
				return errors.New(image)
			}
			return nil
		})
		return upgrade
	}
	upgrades := func(old *agentruntime.Agent) (upgrade string) {
		t.Helper()
		s.until("the upgrade begins", func() error {
			_, err := agentruntime.Upgrade(old, ctx, wanted)
			return err
		})
		if upgrade = became(newImage); upgrade == "" {
			t.Fatal("the new Pod does not know that it has to prove the upgrade")
		}
		return upgrade
	}

	old, stopOld, _ := s.process("v1", config)
	s.works("v1")
	s.sessions.refuse("v2")
	upgrade := upgrades(old)
	_, stopNew, _ := s.processOf(upgrade, "v2", config)
	time.Sleep(7 * time.Second) // the old process works, so that the time does not run
	if became(newImage) != upgrade {
		t.Error("the upgrade has another name")
	}
	stopOld()
	s.until("the new process gets its turn", func() error {
		if _, _, a := s.deployed(); a["argosy.dev/upgrade-began"] == "" {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
	stopNew() // it ends and starts again
	_, stopNew, _ = s.processOf(upgrade, "v2", config)
	if left := became(before); left != "" {
		t.Errorf("the image is back, and the Pod has the upgrade %s to prove", left)
	}
	stopNew()
	old, stopOld, _ = s.process("v1", config)
	s.works("v1")
	refusal := ""
	s.until("the old version reports the upgrade", func() error {
		_, err := agentruntime.Upgrade(old, ctx, wanted)
		if !errors.Is(err, engine.ErrRefused) {
			return fmt.Errorf("error %w", err)
		}
		refusal = err.Error()
		return nil
	})
	for _, part := range []string{newImage, "version v2, proved no session with the control " +
		"plane within 5s", "the hub answers 400", "has returned the image " + before} {
		if !strings.Contains(refusal, part) {
			t.Errorf("%q is missing in %s", part, refusal)
		}
	}
	became(before)

	s.sessions.refuse("") // a person has removed the cause, and resumes the ring
	wanted.Since = first.Add(time.Hour)
	upgrade = upgrades(old)
	_, _, _ = s.processOf(upgrade, "v2", config)
	stopOld()
	s.works("v2")
	s.until("the upgrade is proven", func() error {
		_, _, a := s.deployed()
		if a["argosy.dev/upgrade"] != "" || a["argosy.dev/upgrade-began"] != "" ||
			a["argosy.dev/upgrade-failed"] != "" || a["argosy.dev/previous-image"] != before {
			return fmt.Errorf("%v", a)
		}
		return nil
	})
}

const ringImage = "mirror.example.com:5000/argosy@"

func digestOf(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// ring declares a ring of agents, which acme's environments follow.
func (s *site) ring(version, digest string) {
	s.Helper()
	files := declared(s.argocd, "managed")
	files["fleet/fleet.yaml"] += fmt.Sprintf("  rings:\n    - name: edges\n      version: 3.5.7\n"+
		"      manifests: {directory: argocd/3.5.7, digest: %q}\n      soak: 1s\n"+
		"      agent: {version: %s, digest: %q}\n", digestOf("1"), version, digest)
	files["fleet/tenants/acme.yaml"] += "  agentRing: edges\n"
	s.commit(files)
}

// ringIs waits until the ring of agents has a state, and a message with all of the parts.
func (s *site) ringIs(state mirror.RingState, parts ...string) (r mirror.Ring) {
	s.Helper()
	s.until("the ring is "+string(state), func() error {
		all, err := s.client.Rings(s.Context(), view.Filter{}, 0)
		if err != nil || len(all) != 1 {
			return fmt.Errorf("%+v, %w", all, err)
		}
		r = all[0]
		for _, part := range parts {
			if !strings.Contains(r.Message, part) {
				return fmt.Errorf("%q is missing in %+v", part, r)
			}
		}
		return check(nil, r.State == state && len(r.Engines) == 1, r)
	})
	return r
}

// imageIs waits until the Deployment has an image and no Pod of another one. It returns the upgrade
// that the Pod has to prove.
func (s *site) imageIs(image string) (upgrade string) {
	s.Helper()
	s.until("the Deployment has only Pods with "+image, func() error {
		now, named, _ := s.deployed()
		upgrade = named
		pods, err := s.cluster.Client().CoreV1().Pods(s.agent).List(s.Context(),
			metav1.ListOptions{})
		if err == nil && now == image && len(pods.Items) == 1 &&
			pods.Items[0].Spec.Containers[0].Image == image {
			return nil
		}
		return fmt.Errorf("image %s, %d Pods, %w", now, len(pods.Items), err)
	})
	return upgrade
}

// The agent of an environment, with exactly the rights of its manifest, follows the ring that the
// platform names in the Tenant: real control plane, real API server, real Deployment. The test runs
// the program of the Pod, as a kubelet would.
func TestTheAgentOfAnEnvironmentFollowsARing(t *testing.T) {
	s := newSite(t, "managed", "ring")
	s.join()
	ctx := t.Context()
	config := s.install("mirror.example.com:5000/argosy:v0.4.0")
	upgradeIs := func(version string, state mirror.InstanceState, part string) {
		t.Helper()
		s.until("get agents shows the upgrade to "+version, func() error {
			v, err := s.agentView()
			return check(err, v.Upgrade != nil && v.Upgrade.Ring == "edges" &&
				v.Upgrade.Version == version && v.Upgrade.State == state &&
				strings.Contains(v.Upgrade.Message, part), v.Upgrade)
		})
	}

	_, stop, _ := s.process("0.4.0", config)
	s.works("0.4.0")
	s.ring("0.5.0", digestOf("5"))
	upgrade := s.imageIs(ringImage + digestOf("5"))
	_, stopNew, _ := s.processOf(upgrade, "0.5.0", config)
	stop()
	s.works("0.5.0")
	r := s.ringIs(mirror.RingDone)
	if i := r.Engines[0]; i.Engine != "acme.edge" || !i.AgentOnly() || !i.Passed() ||
		i.AgentVersion != "0.5.0" {
		t.Errorf("%+v", i)
	}
	upgradeIs("0.5.0", mirror.InstanceRunning, "")

	// one that opens no session: the ring is halted by what the old version reports
	stop = stopNew
	s.sessions.refuse("0.6.0")
	s.ring("0.6.0", digestOf("6"))
	upgrade = s.imageIs(ringImage + digestOf("6"))
	_, stopNew, _ = s.processOf(upgrade, "0.6.0", config)
	stop()
	s.imageIs(ringImage + digestOf("5"))
	stopNew()
	_, stop, _ = s.process("0.5.0", config)
	s.ringIs(mirror.RingHalted, "engine acme.edge cannot have agent 0.6.0: ", ringImage+
		digestOf("6")+", version 0.6.0, proved no session with the control plane within 5s",
		"has returned the image "+ringImage+digestOf("5"), "github:example/platform decide")
	s.works("0.5.0")
	upgradeIs("0.5.0", mirror.InstanceRunning, "")

	// the cause is removed, and a person resumes the ring
	s.sessions.refuse("")
	_, err := s.client.DecideRing(ctx, "resume", mirror.RingDecision{Ring: "edges",
		Reason: "fixed"})
	s.must(err)
	upgrade = s.imageIs(ringImage + digestOf("6"))
	_, stopNew, _ = s.processOf(upgrade, "0.6.0", config)
	stop()
	s.works("0.6.0")
	s.ringIs(mirror.RingDone)

	// an image that no registry has: its Pod is never ready, and the agent works all the time
	s.ring("0.7.0", digestOf("0"))
	s.until("a Pod waits for its image", func() error {
		pods, err := s.cluster.Client().CoreV1().Pods(s.agent).List(ctx, metav1.ListOptions{})
		s.must(err)
		for _, p := range pods.Items {
			if c := p.Status.ContainerStatuses; len(c) == 1 && c[0].State.Waiting != nil &&
				c[0].State.Waiting.Reason == "ImagePullBackOff" {
				return nil
			}
		}
		return fmt.Errorf("%d Pods", len(pods.Items))
	})
	upgradeIs("0.7.0", mirror.InstanceInstalling, "is not ready")
	s.works("0.6.0")
	_, err = s.client.DecideRing(ctx, "return", mirror.RingDecision{Ring: "edges",
		Reason: "no image"})
	s.must(err)
	s.imageIs(ringImage + digestOf("6"))
	s.ringIs(mirror.RingHalted, "returned by")
	s.works("0.6.0")

	// without the right, the agent stays as it is and reports that; the ring goes on
	stopNew()
	s.run()
	s.works("test")
	s.ring("0.8.0", digestOf("8"))
	s.ringIs(mirror.RingDone)
	upgradeIs("0.8.0", mirror.InstanceRunning, "may not replace itself (selfUpgrade of the chart "+
		"argosy-agent)")
	s.imageIs(ringImage + digestOf("6"))
}

// An agent that may not replace itself reports that once its ring brings a version.
func TestAnAgentWithoutTheRightReportsIt(t *testing.T) {
	s := newSite(t, "managed", "noright")
	s.join()
	s.run()
	s.works("test")
	s.ring("0.5.0", digestOf("5"))
	s.until("its status names the right", func() error {
		v, err := s.agentView()
		return check(err, strings.Contains(v.Message, "does not get 0.5.0 of its ring, because it "+
			"may not replace itself; the admin of the cluster sets selfUpgrade"), v)
	})
}
