package argocd

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// action is an action of the lab's Application.
func (l *inspectLab) action(id string, kind mirror.ActionKind,
	options mirror.ActionOptions) engine.ActionRequest {
	return engine.ActionRequest{ID: id, Kind: kind, Key: l.row.Key, Tenant: acme, Options: options,
		RequestedAt: time.Now()}
}

// ends takes the steps of an action, as a worker does, until it ends.
func (l *inspectLab) ends(q engine.ActionRequest) (last engine.ActionProgress) {
	l.Helper()
	began := time.Now()
	var results []mirror.ResourceResult
	l.until(string(q.Kind)+" "+q.ID+" ends", func() bool {
		out, err := l.e.Act(l.Context(), q, l.lease)
		switch {
		case errors.Is(err, engine.ErrRefused):
			l.Fatal(err)
		case err != nil:
			l.Log(err)
			return false
		}
		if out.Results != nil {
			results = out.Results
		}
		if out.Outcome != "" {
			q.Outcome = out.Outcome
		}
		last = out
		return out.State == mirror.OperationSucceeded || out.State == mirror.OperationFailed
	})
	last.Results = results
	l.Logf("Argo CD %s: %s %s: %s in %s: %s", l.argo.Version, q.Kind, q.ID, last.State,
		time.Since(began).Round(time.Millisecond), last.Message)
	return last
}

func (l *inspectLab) refused(q engine.ActionRequest, why string) {
	l.Helper()
	out, err := l.e.Act(l.Context(), q, l.lease)
	if !errors.Is(err, engine.ErrRefused) || !strings.Contains(err.Error(), why) {
		l.Errorf("%s %s: %+v, %v, not refused with %q", q.Kind, q.ID, out, err, why)
	}
}

// actsOnIt carries out each kind of action.
func (l *inspectLab) actsOnIt() {
	l.Helper()
	l.restarts()
	l.refreshesAndSyncs()
	l.terminates()
}

// restarts: each Pod of the named workload is replaced, once, and Argo CD sees no difference.
func (l *inspectLab) restarts() {
	l.Helper()
	before := l.tree("the Pods are there", func(mirror.Tree) bool { return true })
	pod, _ := nodeNamed(before, "Pod", "web-")
	other, _ := nodeNamed(before, "Pod", "broken-")
	web := mirror.ActionResource{Group: "apps", Kind: "Deployment", Name: "web"}
	of := func(r mirror.ActionResource) mirror.ActionOptions {
		return mirror.ActionOptions{Resources: []mirror.ActionResource{r}}
	}
	replaced := web
	replaced.UID = "another"
	l.refused(l.action("restart-uid", mirror.ActionRestart, of(replaced)),
		"was replaced by another")
	l.refused(l.action("restart-foreign", mirror.ActionRestart, of(mirror.ActionResource{
		Group: "apps", Kind: "Deployment", Name: "foreign"})), "of its sources")

	q := l.action("restart-1", mirror.ActionRestart, of(web))
	out := l.ends(q)
	if out.State != mirror.OperationSucceeded || len(out.Results) != 1 ||
		out.Results[0].Status != "Restarted" ||
		out.Results[0].String() != "apps/Deployment/"+l.spaceA+"/web" {
		l.Errorf("the restart: %+v", out)
	}
	l.tree("the Pod is replaced", func(t mirror.Tree) bool {
		now, there := nodeNamed(t, "Pod", "web-")
		return there && now.UID != pod.UID && now.Ready == "1/1"
	})
	deployments := l.cluster.Client().AppsV1().Deployments(l.spaceA)
	version := func() string {
		d, err := deployments.Get(l.Context(), "web", metav1.GetOptions{})
		if err != nil {
			l.Fatal(err)
		}
		return fmt.Sprint(d.Generation, d.Spec.Template.Annotations[annotationRestarted])
	}
	was := version()
	if again := l.ends(q); again.State != mirror.OperationSucceeded || version() != was {
		l.Errorf("a repeated step restarts again: %+v, %s, then %s", again, was, version())
	}
	after := l.tree("compared again", func(t mirror.Tree) bool {
		d, ok := nodeNamed(t, "Deployment", "web")
		return ok && d.Sync == mirror.SyncSynced
	})
	if now, _ := nodeNamed(after, "Pod", "broken-"); now.UID != other.UID {
		l.Error("a workload that was not named was restarted")
	}
	if _, err := deployments.Patch(l.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"paused":true}}`), metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
	out = l.ends(l.action("restart-2", mirror.ActionRestart, mirror.ActionOptions{}))
	if out.State != mirror.OperationFailed || len(out.Results) != 2 ||
		!strings.Contains(out.Message, "1 of 2 workloads restarted") ||
		!strings.Contains(out.Message, "it is paused") {
		l.Errorf("the restart of a paused Deployment: %+v", out)
	}
	if _, err := deployments.Patch(l.Context(), "web", types.MergePatchType,
		[]byte(`{"spec":{"paused":null}}`), metav1.PatchOptions{}); err != nil {
		l.Fatal(err)
	}
}

// refreshesAndSyncs: a dry run names the edit by hand and changes nothing; a sync of one resource
// corrects that one; a whole sync corrects the others.
func (l *inspectLab) refreshesAndSyncs() {
	l.Helper()
	for _, hard := range []bool{false, true} {
		out := l.ends(l.action(fmt.Sprintf("refresh-%t", hard), mirror.ActionRefresh,
			mirror.ActionOptions{Hard: hard}))
		if out.State != mirror.OperationSucceeded || !strings.Contains(out.Message, "OutOfSync") {
			l.Errorf("the refresh: %+v", out)
		}
	}
	l.refused(l.action("sync-revision", mirror.ActionSync, mirror.ActionOptions{
		Revision: strings.Repeat("a", 40)}), "and would return to that")

	dry := l.ends(l.action("sync-dry", mirror.ActionSync, mirror.ActionOptions{DryRun: true}))
	if value, _ := l.value(l.spaceA, "settings"); value != "by hand" ||
		dry.State != mirror.OperationSucceeded || len(dry.Results) != 4 {
		l.Errorf("the dry run: %+v; the value is %q", dry, value)
	}
	one := l.ends(l.action("sync-one", mirror.ActionSync, mirror.ActionOptions{
		Resources: []mirror.ActionResource{{Kind: "ConfigMap", Name: "settings"}}}))
	if value, _ := l.value(l.spaceA, "settings"); value != "one" ||
		one.State != mirror.OperationSucceeded || len(one.Results) != 1 ||
		one.Results[0].Status != "Synced" {
		l.Errorf("the sync of one resource: %+v; the value is %q", one, value)
	}
	all := l.ends(l.action("sync-all", mirror.ActionSync, mirror.ActionOptions{Prune: true}))
	if all.State != mirror.OperationSucceeded || len(all.Results) != 4 {
		l.Errorf("the sync: %+v", all)
	}
	l.until("nothing differs", func() bool {
		live, _ := l.e.Live(l.row.Key)
		return live.Sync == mirror.SyncSynced && !live.Operating
	})
}

// terminates ends a sync that waits for a hook without an end.
func (l *inspectLab) terminates() {
	l.Helper()
	l.refused(l.action("terminate-none", mirror.ActionTerminate, mirror.ActionOptions{}),
		"no operation is running")
	l.commit(map[string]string{"web/all.yaml": inspectedManifests + endlessHook})
	stuck := l.action("sync-stuck", mirror.ActionSync, mirror.ActionOptions{})
	l.until("the sync has begun", func() bool {
		if _, err := l.e.Act(l.Context(), stuck, l.lease); err != nil {
			l.Fatal(err)
		}
		a, err := l.e.readActed(l.Context(), l.row.Key)
		return err == nil && a != nil && a.running && a.operation == stuck.ID
	})
	q := l.action("terminate-1", mirror.ActionTerminate, mirror.ActionOptions{Operation: stuck.ID})
	if out := l.ends(q); out.State != mirror.OperationSucceeded {
		l.Errorf("the terminate: %+v", out)
	}
	if out := l.ends(stuck); out.State != mirror.OperationFailed {
		l.Errorf("the sync that was ended: %+v", out)
	}
	l.commit(map[string]string{"web/all.yaml": inspectedManifests})
	l.ends(l.action("refresh-last", mirror.ActionRefresh, mirror.ActionOptions{}))
}

const endlessHook = `---
apiVersion: batch/v1
kind: Job
metadata:
  name: endless
  annotations: {argocd.argoproj.io/hook: PreSync}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: c, image: example.com/none}]}}
`
