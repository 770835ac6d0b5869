package agentruntime_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent/edge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

var webID = fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "edge"}

// A commit reaches the cluster behind the agent, and the status of its Argo CD reaches the API.
func TestACommitReachesTheClusterAndItsStatusComesBack(t *testing.T) {
	s := newSite(t, "managed", "managed")
	s.join()
	ended := s.run()
	s.until("the agent is connected", func() error {
		a, err := s.agentView()
		return check(err, a.Connected && a.Version == "test" && a.Mode == fleet.AgentManaged, a)
	})

	s.mainJob()

	began := time.Now()
	s.must(s.client.RevokeAgent(t.Context(), "acme.edge"))
	select {
	case err := <-ended:
		var refused *edge.TerminalError
		if !errors.As(err, &refused) || time.Since(began) > 30*time.Second {
			t.Errorf("a revoked agent ends after %s with %v", time.Since(began), err)
		}
	case <-time.After(patience):
		t.Error("a revoked agent goes on")
	}
}

// mainJob deploys and removes an Application: the plan arrives and is applied, and the status of
// its Argo CD comes back.
func (s *site) mainJob() {
	s.Helper()
	s.commit(map[string]string{"tenants/acme/deployments/web.yaml": web})
	apps := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd)
	name := fleet.ApplicationName(webID)
	var app *unstructured.Unstructured
	s.until("the Application is on the cluster", func() (err error) {
		app, err = apps.Get(s.Context(), name, metav1.GetOptions{})
		return err
	})
	if to, _, _ := unstructured.NestedString(app.Object, "spec", "destination",
		"server"); to != fleet.InClusterServer {
		s.Errorf("it goes to %q", to)
	}
	_, err := apps.Patch(s.Context(), name, types.MergePatchType,
		[]byte(
			`{"status":{"sync":{"status":"Synced","revision":"9b2d77c1"},"health":{"status":"Healthy"}}}`), metav1.PatchOptions{})
	s.must(err)
	s.until("its status is in the mirror", func() error {
		v, err := s.client.Application(s.Context(), webID)
		return check(err, v.Apply == mirror.ApplyApplied && v.Sync == mirror.SyncSynced &&
			v.Health == mirror.HealthHealthy && v.SyncedRevision == "9b2d77c1", v)
	})
	s.until("nothing is behind", func() error {
		a, err := s.agentView()
		return check(err, a.Pending == 0 && a.Lag == 0 && a.Orphans == 0, a)
	})

	_, err = s.config.Remove(s.Context(), "web goes", "tenants/acme/deployments/web.yaml")
	s.must(err)
	s.until("it is deleted with its workload", func() error { return s.released(name) })
	s.until("the mirror knows", func() error {
		left, err := s.client.Applications(s.Context(), view.Filter{}, 0)
		a, aerr := s.agentView()
		return errors.Join(check(err, len(left) == 0, left), check(aerr, a.Pending == 0, a))
	})
}

// An environment that is no longer the agent's leaves what served its Applications behind, which
// the agent takes away: when the environment's own people take over, when it is reached in another
// way, and when it is gone.
func TestWhatIsLeftOfAnEnvironmentIsTakenAway(t *testing.T) {
	const path = "tenants/acme/environments/edge.yaml"
	for name, change := range map[string]func(*site) error{
		"autonomous": func(s *site) error {
			_, err := s.config.Commit(s.Context(), "its own people's", map[string]string{
				path: declared(s.argocd, "autonomous")[path]})
			return err
		},
		"reached in another way": func(s *site) error {
			_, err := s.config.Commit(s.Context(), "by its address", map[string]string{
				path: byAddress("edge")})
			return err
		},
		"gone": func(s *site) error {
			// A revision without any tenant's declaration waits for an approval: another is left.
			if _, err := s.config.Commit(s.Context(), "another one", map[string]string{
				"tenants/acme/environments/other.yaml": byAddress("other")}); err != nil {
				return err
			}
			_, err := s.config.Remove(s.Context(), "it goes", path)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "managed", "left-"+name[:4])
			s.join()
			s.run()
			s.commit(map[string]string{"tenants/acme/deployments/web.yaml": web})
			apps := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd)
			ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=argosy"}
			projects := func() ([]unstructured.Unstructured, error) {
				all, err := s.cluster.Dynamic().Resource(appProjects).Namespace(s.argocd).List(
					t.Context(), ours)
				if err != nil {
					return nil, err
				}
				return all.Items, nil
			}
			s.until("the Application and its project are on the cluster", func() error {
				_, err := apps.Get(t.Context(), fleet.ApplicationName(webID), metav1.GetOptions{})
				there, perr := projects()
				return errors.Join(err, check(perr, len(there) == 1, there))
			})
			_, err := s.config.Remove(t.Context(), "web goes", "tenants/acme/deployments/web.yaml")
			s.must(err)
			s.until("the Application is gone", func() error {
				return s.released(fleet.ApplicationName(webID))
			})
			s.until("the mirror knows", func() error {
				left, err := s.client.Applications(t.Context(), view.Filter{}, 0)
				return check(err, len(left) == 0, left)
			})

			s.must(change(s))
			s.until("its project is gone", func() error {
				there, err := projects()
				return check(err, len(there) == 0, there)
			})
			s.until("nothing waits for the agent", func() error {
				a, err := s.agentView()
				return check(err, a.Pending == 0 && a.PendingDeletions == 0, a)
			})
		})
	}
}

// `argosy rebuild` while the control plane and the agent run: the same process reads all rows
// again, under a higher epoch, finds everything in sync and writes nothing.
func TestARebuildOfTheMirrorWritesNothingBehindTheAgent(t *testing.T) {
	s := newSite(t, "managed", "rebuilt")
	s.join()
	ended := s.run()
	s.commit(map[string]string{"tenants/acme/deployments/web.yaml": web})
	apps := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd)
	name := fleet.ApplicationName(webID)
	applied := func() error {
		select {
		case err := <-ended:
			t.Fatalf("the agent ended: %v", err)
		default:
		}
		all, err := s.client.Applications(t.Context(), view.Filter{}, 0)
		a, aerr := s.agentView()
		return errors.Join(check(err, len(all) == 1 && all[0].Apply == mirror.ApplyApplied, all),
			check(aerr, a.Connected && a.Reachable && a.Pending == 0 && a.Orphans == 0, a))
	}
	s.until("the Application is applied", applied)
	before, err := apps.Get(t.Context(), name, metav1.GetOptions{})
	s.must(err)

	store, err := postgres.Open(t.Context(), s.database, postgres.Options{})
	s.must(err)
	defer store.Close()
	s.must(store.Reset(t.Context()))
	s.until("the mirror is restored, and the agent has reported", applied)
	s.commit(map[string]string{"tenants/acme/deployments/web.yaml": strings.Replace(web,
		"targetRevision: main", "targetRevision: v2", 1)})
	s.until("the next change arrives", func() error {
		app, err := apps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		at, _, _ := unstructured.NestedString(app.Object, "spec", "source", "targetRevision")
		// Its generation counts every change of its spec.
		return check(nil, at == "v2" && app.GetUID() == before.GetUID() &&
			app.GetGeneration() == before.GetGeneration()+1, app)
	})
	select {
	case err := <-ended:
		t.Errorf("the agent ended: %v", err)
	default:
	}
}

// byAddress is an environment that is reached without an agent.
func byAddress(name string) string {
	return "apiVersion: argosy.dev/v1alpha1\nkind: ManagedEnvironment\nmetadata: {name: " + name +
		"}\nspec:\n" +
		"  cluster: {server: \"https://" + name + ".example.com:6443\", credentialsRef: {name: " +
		name + "}}\n  namespaces: [web]\n  region: eu\n"
}

// released takes off the finalizers of an Application that is deleted, as an Argo CD would; nil
// once it is gone.
func (s *site) released(name string) error {
	apps := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd)
	app, err := apps.Get(s.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && app.GetDeletionTimestamp() != nil && len(app.GetFinalizers()) > 0 {
		_, err = apps.Patch(s.Context(), name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	return errors.Join(err, errors.New("it is there"))
}

func check(err error, so bool, is any) error {
	if err == nil && !so {
		err = fmt.Errorf("it is %+v", is)
	}
	return err
}

// An autonomous cluster's Applications are its own people's: they are shown, and synced when
// somebody asks for it.
func TestAnAutonomousClusterIsShownAndAskedToSync(t *testing.T) {
	s := newSite(t, "autonomous", "autonomous")
	apps := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd)
	make := func(name string) {
		t.Helper()
		_, err := apps.Create(t.Context(), object("argoproj.io/v1alpha1", "Application", name,
			s.argocd, map[string]any{"spec": map[string]any{
				"project": "default", "destination": map[string]any{"server": fleet.InClusterServer,
					"namespace": "shop"},
				"source": map[string]any{"repoURL": "https://git.example.com/shop",
					"path":           "deploy",
					"targetRevision": "main"}}}), metav1.CreateOptions{})
		s.must(err)
	}
	make("shop")
	make("cart")
	s.join()
	s.run()
	environment := fleet.EnvironmentID{Tenant: "acme", Name: "edge"}
	own := func() ([]view.Own, error) {
		return s.client.OwnApplications(t.Context(), view.Filter{
			Tenant: "acme", Environment: "edge"}, 0)
	}
	s.until("both are shown", func() error {
		all, err := own()
		return check(err, len(all) == 2 && all[0].Name == "cart" &&
			all[1].RepoURL == "https://git.example.com/shop", all)
	})
	s.must(apps.Delete(t.Context(), "cart", metav1.DeleteOptions{}))
	s.until("what is gone is not", func() error {
		all, err := own()
		return check(err, len(all) == 1, all)
	})

	asked, err := s.client.SyncOwn(t.Context(), environment, s.argocd, "shop", wire.OwnSyncRequest{
		Revision: "v2"})
	s.must(err)
	s.until("Argo CD is asked for it", func() error {
		app, err := apps.Get(t.Context(), "shop", metav1.GetOptions{})
		if err != nil {
			return err
		}
		revision, _, _ := unstructured.NestedString(app.Object, "operation", "sync", "revision")
		return check(nil, revision == "v2", app.Object["operation"])
	})
	s.must(finish(t.Context(), s, "shop", asked.ID))
	s.until("its result is reported", func() error {
		operations, err := s.client.Operations(t.Context(), view.Filter{Tenant: "acme"}, 0)
		return check(err, len(operations) == 1 && operations[0].State == mirror.OperationSucceeded,
			operations)
	})
	if a, err := s.agentView(); err != nil || a.Message != "" || a.Mode != fleet.AgentAutonomous ||
		a.Pending != 0 {
		t.Errorf("the agent is %+v, %v", a, err)
	}
}

// finish does what Argo CD's controller does with an operation.
func finish(ctx context.Context, s *site, name, id string) error {
	patch := fmt.Sprintf(
		`{"operation":null,"status":{"operationState":{"phase":"Succeeded","startedAt":"2026-11-20T12:00:00Z","operation":`+
			`{"initiatedBy":{"username":"argosy"},"info":[{"name":"argosy.dev/sync","value":%q}]}}}}`,
		id)
	_, err := s.cluster.Dynamic().Resource(applications).Namespace(s.argocd).Patch(ctx, name,
		types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}
