package argocd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
)

// Preflight checks whether the instance is the declared one and may be written to: its resource
// tracking, its installationID, Argo CD's kinds, the isolation of tenants in a shared repo-server,
// a `default` project that allows nothing, and our rights. A blocking finding makes every write
// fail with ErrUnfit until a later Preflight finds it fixed: two instances with one installationID
// or with label tracking would take each other's resources for their own (argo-cd#11402, #13079).
// The Argo CD of an environment's own cluster belongs to that cluster's users and is the only one
// there, so its tracking and its installationID are theirs, and only findings that would make our
// writes wrong block. An error means that a check could not run; the last result stays in force.
func (e *Engine) Preflight(ctx context.Context) (engine.Report, error) {
	return preflight{e}.run(ctx)
}

// preflight runs the checks of an engine.
type preflight struct{ *Engine }

func (e preflight) run(ctx context.Context) (engine.Report, error) {
	var report engine.Report
	kinds, err := e.checkKinds(ctx)
	if err != nil {
		return report, fmt.Errorf("preflight of engine %s: %w", e.name, err)
	}
	report.Findings = append(report.Findings, kinds...)
	if report.Version, err = e.version(ctx); err != nil {
		return report, fmt.Errorf("preflight of engine %s: Argo CD's version could not be read: %w",
			e.name, err)
	}
	checks := []func(context.Context, string) ([]engine.Finding, error){e.checkSettings,
		e.checkDefaultProject, e.checkApplications, e.checkRights, e.checkAccounts}
	if len(kinds) > 0 { // without Argo CD's kinds the other checks would only repeat it
		checks = append(checks[:0], func(ctx context.Context, _ string) ([]engine.Finding, error) {
			return e.installFindings(ctx)
		})
	}
	for _, check := range checks {
		found, err := check(ctx, report.Version)
		if err != nil {
			return report, fmt.Errorf("preflight of engine %s: %w", e.name, err)
		}
		report.Findings = append(report.Findings, found...)
	}
	e.argoCD.Store(&report.Version)
	e.judge(report)
	return report, nil
}

func (e preflight) judge(report engine.Report) {
	var unfit, blind *error
	for _, f := range report.Findings {
		reason := func(kind error) *error {
			err := fmt.Errorf("%w: engine %s: %s; %s", kind, e.name, f.Message, f.Fix)
			return &err
		}
		if f.Blocks && unfit == nil {
			unfit = reason(engine.ErrUnfit)
		}
		if f.Blind {
			blind = reason(engine.ErrBlind)
		}
	}
	e.unfit.Store(unfit)
	e.blind.Store(blind)
	if unfit == nil {
		e.fit.Store(true)
	}
}

func (e preflight) get(ctx context.Context, path string, out any) error {
	return e.client.do(ctx, request{method: http.MethodGet, path: path}, out)
}

func (e preflight) checkKinds(ctx context.Context) ([]engine.Finding, error) {
	var list struct{ Resources []struct{ Name string } }
	err := e.get(ctx, "/apis/"+argoAPI, &list)
	if err != nil && codeOf(err) != http.StatusNotFound {
		return nil, err
	}
	for _, r := range []*resource{applications, projects} {
		if !slices.ContainsFunc(list.Resources, func(have struct{ Name string }) bool {
			return have.Name == r.plural
		}) {
			return []engine.Finding{
				{Code: "kinds", Blocks: true, Message: "the cluster does not know Argo CD's kind " +
					r.kind,
					Fix: "install Argo CD's CustomResourceDefinitions, version 2.14 or 3.x"}}, nil
		}
	}
	return nil, nil
}

// checkSettings reads argocd-cm. Argo CD 3 tracks by annotation by default, 2.14 by label.
func (e preflight) checkSettings(ctx context.Context, version string) ([]engine.Finding, error) {
	var cm struct{ Data map[string]string }
	err := e.get(ctx, e.configMaps()+"/argocd-cm", &cm)
	switch {
	case isMissing(err):
		return []engine.Finding{
			{Code: "settings", Blocks: true,
				Message: "there is no ConfigMap argocd-cm in namespace " + e.namespace,
				Fix:     "declare the namespace that Argo CD runs in, or install it there"}}, nil
	case codeOf(err) == http.StatusForbidden:
		return []engine.Finding{
			{Code: "settings", Blocks: true, Message: "ConfigMap argocd-cm in namespace " +
				e.namespace + " may not be read", Fix: "grant get on configmaps there to " +
				e.actor()}}, nil
	case err != nil:
		return nil, err
	}
	found := e.sightFindings(cm.Data)
	tracking := cm.Data["application.resourceTrackingMethod"]
	if tracking == "" && !strings.HasPrefix(strings.TrimPrefix(version, "v"), "3.") {
		tracking = "label, which an unset value may mean"
	}
	// With annotation+label Argo CD writes both and reads the annotation.
	if tracking != "annotation" && tracking != "annotation+label" && tracking != "" {
		found = append(found, engine.Finding{Code: "tracking", Blocks: !e.name.OfEnvironment(),
			Message: "Argo CD tracks resources by " + clip(tracking, 64),
			Fix: e.prepare("set application.resourceTrackingMethod: annotation in argocd-cm",
				"a change of it by hand untracks the resources of Applications")})
	}
	if e.name.OfEnvironment() {
		return append(found, e.checkOwnCluster(cm.Data)...), nil
	}
	if id := cm.Data["installationID"]; id != e.installation {
		found = append(found, engine.Finding{Code: "installation-id", Blocks: true,
			Message: fmt.Sprintf("Argo CD's installationID is %q, declared is %q", clip(id, 64),
				e.installation),
			Fix: e.prepare("set installationID in argocd-cm to the declared one",
				"a change of it by hand syncs Applications with automation; or connect to the "+
					"right instance")})
	}
	isolation, err := e.checkIsolation(ctx, version, cm.Data)
	return append(found, isolation...), err
}

// checkOwnCluster rejects an Argo CD that may not deploy to its own cluster. An Application with an
// unknown destination loses its finalizers on deletion, and its workload is silently orphaned
// (appcontroller.go, finalizeApplicationDeletion).
func (e preflight) checkOwnCluster(data map[string]string) []engine.Finding {
	if data["cluster.inClusterEnabled"] != "false" {
		return nil
	}
	return []engine.Finding{
		{Code: "in-cluster", Blocks: true,
			Message: "Argo CD may not deploy to the cluster that it runs on " +
				"(cluster.inClusterEnabled: \"false\" in argocd-cm)",
			Fix: "remove the setting, or declare the environment with cluster and let an engine " +
				"reach it"}}
}

// prepare returns the fix of a setting that depends on what runs on the instance. The Argo CD of an
// environment's own cluster is for its users to change.
func (e preflight) prepare(setting, danger string) string {
	if e.name.OfEnvironment() {
		return setting
	}
	return fmt.Sprintf("with Applications on it, run `argosy prepare %s`: %s; on an empty one %s",
		e.name, danger, setting)
}

// actor names the writer to the engine in messages.
func (e preflight) actor() string {
	if e.name.OfEnvironment() {
		return "the agent"
	}
	return "the control plane"
}

func (e preflight) checkDefaultProject(ctx context.Context, _ string) ([]engine.Finding, error) {
	var project struct {
		Spec struct {
			SourceRepos  []string
			Destinations []json.RawMessage
		}
	}
	err := e.get(ctx, projects.object(e.namespace, "default"), &project)
	switch {
	case provesAbsence(err, projects):
		return []engine.Finding{
			{Code: "default-project",
				Message: "there is no AppProject default, and Argo CD makes one that allows " +
					"everything", Fix: "create it with an empty spec"}}, nil
	case codeOf(err) == http.StatusForbidden:
		return nil, nil // checkRights reports it
	case err != nil:
		return nil, err
	case len(project.Spec.SourceRepos) > 0 && len(project.Spec.Destinations) > 0:
		return []engine.Finding{
			{Code: "default-project", Message: "AppProject default allows deployments",
				Fix: e.prepare("empty its sourceRepos and destinations",
					"it is emptied when no Application uses it")}}, nil
	}
	return nil, nil
}

// checkApplications reads every Application that is not ours, those of further namespaces too,
// which only a Thorough preflight does. It returns states in which automation or a deletion does
// not do what its people expect.
func (e preflight) checkApplications(ctx context.Context, version string) ([]engine.Finding,
	error) {
	if !e.options.Thorough {
		return nil, nil
	}
	var cm struct{ Data map[string]string }
	if err := e.get(ctx, e.configMaps()+"/argocd-cm", &cm); err != nil {
		return nil, nil // checkSettings reports it
	}
	var project struct {
		Spec struct{ SourceRepos, Destinations []json.RawMessage }
	}
	err := e.get(ctx, projects.object(e.namespace, "default"), &project)
	if err != nil && !provesAbsence(err, projects) {
		return nil, nil // checkDefaultProject or checkRights reports it
	}
	locked := err == nil && (len(project.Spec.SourceRepos) == 0 ||
		len(project.Spec.Destinations) == 0)
	all, err := e.people(ctx)
	if err != nil {
		return nil, err
	}
	var inDefault, paused, automated []string
	for _, a := range all {
		if a.Spec.Project == "" || a.Spec.Project == "default" {
			inDefault = append(inDefault, a.Metadata.Name)
		}
		if _, ok := a.Metadata.Annotations[annotationPaused]; ok {
			paused = append(paused, a.Metadata.Name)
		}
		if a.Spec.SyncPolicy.Automated != nil {
			automated = append(automated, a.Metadata.Name)
		}
	}
	var found []engine.Finding
	if locked && len(inDefault) > 0 {
		found = append(found, engine.Finding{Code: "default-in-use",
			Message: fmt.Sprintf("AppProject default is locked, and %d Applications are in it, "+
				"which Argo CD can neither sync nor delete with their resources: %s",
				len(inDefault), named(inDefault)),
			Fix: e.prepare("create Applications in other projects",
				"open the project again, adopt them, then let the command lock it")})
	}
	if len(paused) > 0 {
		found = append(found, engine.Finding{Code: "prepare-interrupted",
			Message: fmt.Sprintf("`argosy prepare` was interrupted, and the automation of %d "+
				"Applications is paused: %s", len(paused), named(paused)),
			Fix: fmt.Sprintf("run `argosy prepare %s` again", e.name)})
	}
	tracking := cm.Data["application.resourceTrackingMethod"]
	byLabel := tracking == "label" || tracking == "" &&
		!strings.HasPrefix(strings.TrimPrefix(version, "v"), "3.")
	if byLabel && len(automated) > 0 {
		found = append(found, engine.Finding{Code: "tracking-in-use",
			Message: fmt.Sprintf("%d Applications with automation depend on tracking by label: %s",
				len(automated), named(automated)),
			Fix: fmt.Sprintf("change application.resourceTrackingMethod by `argosy prepare %s` "+
				"only", e.name)})
	}
	return found, nil
}

// annotationPaused is where `argosy prepare` records automation that it has paused.
const annotationPaused = "argosy.dev/paused-automation"

// peoples is an Application as far as checkApplications reads it.
type peoples struct {
	Metadata struct {
		Name        string
		Annotations map[string]string
	}
	Spec struct {
		Project    string
		SyncPolicy struct{ Automated *json.RawMessage }
	}
}

// people lists the Applications of Argo CD's namespace and of further ones that are not ours. Those
// of a namespace that may not be listed are left out: checkRights reports it.
func (e preflight) people(ctx context.Context) (all []peoples, err error) {
	for _, r := range slices.Concat([]*resource{applications}, e.cache.further) {
		found, err := e.peopleOf(ctx, r)
		if err != nil && codeOf(err) != http.StatusForbidden {
			return nil, err
		}
		for i := range found {
			found[i].Metadata.Name = fleet.JoinObject(r.namespace, found[i].Metadata.Name)
		}
		all = append(all, found...)
	}
	return all, nil
}

func (e preflight) peopleOf(ctx context.Context, r *resource) (all []peoples, err error) {
	query := url.Values{"limit": {"500"}, "labelSelector": {"!" + labelTenant}}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []peoples
		}
		if err := e.client.do(ctx, request{method: http.MethodGet,
			path: e.places.collection(r), query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// named lists at most five names.
func named(names []string) string {
	const most = 5
	for i := range names {
		names[i] = clip(names[i], 320)
	}
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

// right is a permission in a namespace: the instance's, if the field is empty.
type right struct{ namespace, group, resource, name, verb string }

func neededRights(o Options) []right {
	var all []right
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		all = append(all, right{"", "argoproj.io", "applications", "", verb},
			right{"", "argoproj.io", "appprojects", "", verb})
		if !o.Public {
			all = append(all, right{"", "", "secrets", "", verb})
		}
	}
	return all
}

// stopRights are the rights for the stop marker. Without them only the database stores emergency
// stops.
func stopRights() []right {
	return []right{{"", "", "configmaps", "", "create"}, {"", "", "configmaps", stopMarker, "get"},
		{"", "", "configmaps", stopMarker, "patch"}}
}

// rightsTTL is how long complete rights are not checked again: a forbidden write fails anyway.
const rightsTTL = 10 * time.Minute

func (e preflight) checkRights(ctx context.Context, _ string) ([]engine.Finding, error) {
	if seen := e.rightsCheckedAt.Load(); seen != 0 &&
		e.options.Now().Sub(time.Unix(seen, 0)) < rightsTTL {
		return nil, nil
	}
	var found []engine.Finding
	missing, err := e.missingRights(ctx, neededRights(e.options))
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		found = append(found, engine.Finding{Code: "rights", Blocks: true,
			Message: e.actor() + " may not " + strings.Join(missing, ", ") + " in namespace " +
				e.namespace,
			Fix: "bind it to a Role there that grants them"})
	}
	if missing, err = e.missingRights(ctx, stopRights()); err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		found = append(found, engine.Finding{Code: "stop-marker", Message: e.actor() + " may not " +
			strings.Join(missing, ", ") + " in namespace " + e.namespace +
			", so that the database alone stores emergency stops",
			Fix: "grant create on configmaps, and get and patch on " + stopMarker + ", there"})
	}
	further, err := e.checkNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	restarts, err := e.restartFindings(ctx)
	if err != nil {
		return nil, err
	}
	fences, err := e.fenceFindings(ctx)
	if err != nil {
		return nil, err
	}
	install, err := e.installFindings(ctx)
	if err != nil {
		return nil, err
	}
	inspects, err := e.inspectFindings(ctx)
	if err != nil {
		return nil, err
	}
	found = slices.Concat(found, restarts, fences, install, inspects)
	if found = append(found, further...); len(found) == 0 {
		e.rightsCheckedAt.Store(e.options.Now().Unix())
	}
	return found, nil
}

// furtherVerbs are the rights on Applications in a further namespace: none is created there.
var furtherVerbs = []string{"get", "list", "watch", "patch", "delete"}

// checkNamespaces checks that the Applications of each further namespace are served by Argo CD and
// that we may write them. A finding concerns one tenant, and blocks no other.
func (e preflight) checkNamespaces(ctx context.Context) (found []engine.Finding, err error) {
	if len(e.places.further) == 0 {
		return nil, nil
	}
	served, known, err := e.servedNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range e.cache.further {
		ns := r.namespace
		var needed []right
		for _, verb := range furtherVerbs {
			needed = append(needed, right{ns, "argoproj.io", "applications", "", verb})
		}
		missing, err := e.missingRights(ctx, needed)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			found = append(found, engine.Finding{Code: "application-namespace",
				Message: fmt.Sprintf("%s may not %s in namespace %s of tenant %s, so that its "+
					"Applications keep their last good state", e.actor(),
					strings.Join(missing, ", "), ns, e.places.further[ns]),
				Fix: "create a Role in namespace " + ns + " that grants it " +
					strings.Join(furtherVerbs, ", ") + " on applications.argoproj.io, or add the " +
					"namespace to applicationNamespaces in the values of the chart: rbac of " +
					"argosy, argocd of argosy-agent"})
		}
		if known && !servesNamespace(served, ns) {
			found = append(found, engine.Finding{Code: "application-namespace",
				Message: fmt.Sprintf("Argo CD does not serve the Applications of namespace %s of "+
					"tenant %s", ns, e.places.further[ns]),
				Fix: "add it to application.namespaces in " + paramsName + " of namespace " +
					e.namespace + ", and restart the application-controller and argocd-server"})
		}
	}
	return found, nil
}

// servedNamespaces returns the namespaces whose Applications the application-controller serves
// beside its own, if the ConfigMap or its arguments may be read.
func (e preflight) servedNamespaces(ctx context.Context) (served string, known bool, err error) {
	var params struct{ Data map[string]string }
	err = e.get(ctx, e.configMaps()+"/"+paramsName, &params)
	switch {
	case codeOf(err) == http.StatusForbidden:
		return "", false, nil
	case err != nil && !isMissing(err):
		return "", false, err
	}
	served = params.Data["application.namespaces"]
	controllers, err := e.controllers(ctx)
	if err != nil {
		return "", false, err
	}
	for _, one := range controllers {
		for _, c := range one.Spec.Template.Spec.Containers {
			for i, arg := range append(c.Command, c.Args...) {
				value, is := strings.CutPrefix(arg, "--application-namespaces")
				if next := append(c.Command, c.Args...)[i+1:]; is && value == "" && len(next) > 0 {
					value = next[0]
				}
				if is {
					served += "," + strings.TrimPrefix(value, "=")
				}
			}
		}
	}
	return served, true, nil
}

// servesNamespace reports whether a list of Argo CD's has a namespace: by its name, by a pattern,
// or by a regular expression between slashes (util/glob, MatchStringInList).
func servesNamespace(list, namespace string) bool {
	for item := range strings.SplitSeq(list, ",") {
		item = strings.TrimSpace(item)
		if expression, is := strings.CutPrefix(item, "/"); is && strings.HasSuffix(item, "/") {
			matches, err := regexp.MatchString(strings.TrimSuffix(expression, "/"), namespace)
			if err != nil || matches {
				return true // Argo CD has another dialect
			}
		} else if matches, err := path.Match(item, namespace); err != nil || matches ||
			strings.ContainsAny(item, "{}") {
			return true
		}
	}
	return false
}

// missingRights returns those of the rights that we do not have.
func (e preflight) missingRights(ctx context.Context, rights []right) ([]string, error) {
	allowed, errs := make([]bool, len(rights)), make([]error, len(rights))
	var all sync.WaitGroup
	for i, r := range rights {
		all.Go(func() { allowed[i], errs[i] = e.allowed(ctx, r) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	var missing []string
	for i, r := range rights {
		if !allowed[i] {
			missing = append(missing, r.verb+" "+r.resource)
		}
	}
	return missing, nil
}

func (e preflight) allowed(ctx context.Context, r right) (bool, error) {
	r.namespace = cmp.Or(r.namespace, e.namespace)
	return e.client.allowed(ctx, r)
}

// allowed reports whether the client has the right; an empty namespace means all.
func (c *client) allowed(ctx context.Context, r right) (bool, error) {
	kind, part, _ := strings.Cut(r.resource, "/")
	body, err := json.Marshal(map[string]any{"apiVersion": "authorization.k8s.io/v1",
		"kind": "SelfSubjectAccessReview", "spec": map[string]any{
			"resourceAttributes": map[string]any{"namespace": r.namespace,
				"group": r.group, "resource": kind, "subresource": part, "name": r.name,
				"verb": r.verb}}})
	if err != nil {
		return false, fmt.Errorf("access review: %w", err)
	}
	var review struct{ Status struct{ Allowed bool } }
	err = c.do(ctx, request{method: http.MethodPost,
		path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", contentType: plainJSON,
		body: body}, &review)
	return review.Status.Allowed, err
}

// versionLabel is the charts' version label, for images without a tag.
const versionLabel = "app.kubernetes.io/version"

// controller has the fields of Argo CD's controller workload that the checks read.
type controller struct {
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		Template struct {
			Spec struct{ Containers []container }
		}
	}
}

func (c controller) version() string {
	for _, one := range c.Spec.Template.Spec.Containers {
		if v := imageVersion(one.Image); v != "" {
			return v
		}
	}
	return tagVersion(c.Metadata.Labels[versionLabel])
}

// version returns Argo CD's version from the image of its controller or its label, or else from the
// CRD's schema; "" if none may be read. A read that fails is an error: it proves nothing about the
// version.
func (e preflight) version(ctx context.Context) (string, error) {
	controllers, err := e.controllers(ctx)
	if err != nil {
		return "", err
	}
	for _, item := range controllers {
		if v := item.version(); v != "" {
			return v, nil
		}
	}
	return e.schemaVersion(ctx)
}

// controllers returns the workloads of the application-controller that may be listed.
func (e preflight) controllers(ctx context.Context) (all []controller, err error) {
	for _, kind := range []string{"statefulsets", "deployments"} {
		found, err := e.workloads(ctx, kind, "application-controller")
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// workloads returns the workloads of a component of Argo CD; none if they may not be listed.
func (e preflight) workloads(ctx context.Context, kind, component string) ([]controller, error) {
	var list struct{ Items []controller }
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: "/apis/apps/v1/namespaces/" + url.PathEscape(e.namespace) + "/" + kind,
		query: url.Values{"labelSelector": {"app.kubernetes.io/part-of=argocd," +
			"app.kubernetes.io/component=" + component}}}, &list)
	if err != nil && !isDenied(err) {
		return nil, fmt.Errorf("list %s in namespace %s: %w", kind, e.namespace, err)
	}
	return list.Items, nil
}

// isDenied reports whether an error is the server's answer that we may not read something, or that
// it is not there. Every other error leaves both open.
func isDenied(err error) bool {
	return codeOf(err) == http.StatusForbidden || codeOf(err) == http.StatusNotFound
}

// imageVersion returns the tag of an image if it is a version: v3.5.7 for
// quay.io/argoproj/argocd:v3.5.7@sha256:….
func imageVersion(image string) string {
	image, _, _ = strings.Cut(image, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	return tagVersion(tag)
}

func tagVersion(tag string) string {
	if v := strings.TrimPrefix(tag, "v"); len(v) < 3 || v[0] < '2' || v[0] > '9' || v[1] != '.' {
		return ""
	}
	return clip(tag, 64)
}

// schemaVersion distinguishes 3.x from 2.x by a field of the newer CRD. It reads the CRD only if it
// may: the control plane's Roles are namespaced and do not allow it.
func (e preflight) schemaVersion(ctx context.Context) (string, error) {
	may, err := e.allowed(ctx, right{"", "apiextensions.k8s.io", "customresourcedefinitions",
		"applications.argoproj.io", "get"})
	var raw json.RawMessage
	if may && err == nil {
		err = e.get(ctx,
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/applications.argoproj.io",
			&raw)
	}
	switch {
	case isDenied(err) || err == nil && !may:
		return "", nil
	case err != nil:
		return "", fmt.Errorf("the CustomResourceDefinition of Applications: %w", err)
	case strings.Contains(string(raw), `"ignoreMissingComponents"`):
		return "3.x", nil
	}
	return "2.x", nil
}

// Keys of argocd-cm and argocd-cmd-params-cm that isolate tenants in a shared repo-server.
const (
	paramsName     = "argocd-cmd-params-cm"
	jsonnetKey     = "jsonnet.enable"
	schemesKey     = "helm.valuesFileSchemes"
	buildOptionKey = "kustomize.buildOptions"
	submodulesKey  = "reposerver.enable.git.submodule"
)

// openOptions are kustomize options that run programs, fetch charts or read outside the repository.
var openOptions = []string{"--enable-helm", "--enable-exec", "--enable-alpha-plugins",
	"--load-restrictor", "--network"}

// isolationFindings returns the settings with which a tenant reaches beyond its own repositories
// through a shared repo-server. Findings that expose secrets of other tenants or of the engine
// block.
func isolationFindings(settings map[string]string) []engine.Finding {
	var found []engine.Finding
	if v := settings[jsonnetKey]; v == "" || v == "true" {
		found = append(found, engine.Finding{Code: "jsonnet", Blocks: true,
			Message: "Argo CD evaluates *.jsonnet of repositories, which reads every file of " +
				"the repo-server that its tenants share",
			Fix: `set jsonnet.enable: "false" in argocd-cm, or dedicate the engine to one tenant (spec.dedicatedTo)`})
	}
	schemes, set := settings[schemesKey]
	if !set {
		schemes = "https, http"
	}
	if strings.Trim(schemes, ", \t\n") != "" {
		found = append(found, engine.Finding{Code: "values-schemes", Blocks: true,
			Message: "Argo CD fetches Helm value files by " + clip(schemes, 64) +
				" for any repository with .argocd-source.yaml, from any address that the " +
				"repo-server reaches",
			Fix: `set helm.valuesFileSchemes: "" in argocd-cm, or dedicate the engine to one tenant (spec.dedicatedTo)`})
	}
	var open []string
	for key, options := range settings {
		if key != buildOptionKey && !strings.HasPrefix(key, buildOptionKey+".") {
			continue
		}
		for _, option := range openOptions {
			if strings.Contains(options, option) {
				open = append(open, option+" in "+clip(key, 64))
			}
		}
	}
	if slices.Sort(open); len(open) > 0 {
		found = append(found, engine.Finding{Code: "kustomize-options", Blocks: true,
			Message: "Argo CD runs kustomize with " + strings.Join(open, ", ") +
				": repositories may run programs, fetch charts or read files of the repo-server " +
				"that its tenants share",
			Fix: "remove the options from argocd-cm, or dedicate the engine to one tenant " +
				"(spec.dedicatedTo)"})
	}
	return found
}

// submoduleFindings checks argocd-cmd-params-cm.
func submoduleFindings(params map[string]string) []engine.Finding {
	if on, err := strconv.ParseBool(params[submodulesKey]); err == nil && !on {
		return nil
	}
	return []engine.Finding{{Code: "submodules",
		Message: "the repo-server fetches Git submodules of any repository",
		Fix:     `set reposerver.enable.git.submodule: "false" in argocd-cmd-params-cm and restart the repo-server, or dedicate the engine to one tenant (spec.dedicatedTo)`}}
}

// timeoutFindings reports an Argo CD without a timeout of its requests to clusters: 3.6 removed it
// (argo-cd#28977).
func timeoutFindings(version string) []engine.Finding {
	minor, found := strings.CutPrefix(strings.TrimPrefix(version, "v"), "3.")
	minor, _, _ = strings.Cut(minor, ".")
	if n, err := strconv.Atoi(minor); !found || err != nil || n < 6 {
		return nil
	}
	return []engine.Finding{{Code: "request-timeout",
		Message: "Argo CD " + clip(version, 64) + " waits without a limit for a cluster that " +
			"accepts requests and answers none, and a tenant's clusters may occupy all its " +
			"processors",
		Fix: "run Argo CD 3.5, or dedicate the engine to one tenant (spec.dedicatedTo)"}}
}

// gitConfigFindings checks the repo-server's container.
func gitConfigFindings(c container) []engine.Finding {
	if slices.ContainsFunc(c.Env, func(e envVar) bool {
		return e.Name == "GIT_CONFIG_GLOBAL" &&
			e.Value != ""
	}) {
		return nil
	}
	return []engine.Finding{{Code: "git-config",
		Message: "the repo-server merges .argocd-source.yaml of repositories over what is " +
			"declared, and kustomize fetches remote bases",
		Fix: "mount the Git settings of charts/argosy-engine (docs/security.md, " +
			"Engines), or dedicate the engine to one tenant (spec.dedicatedTo)"}}
}

// shared reports whether several tenants use the engine's repo-server.
func (e preflight) shared() bool { return !e.name.OfEnvironment() && e.tenants != 1 }

// checkIsolation checks the isolation of the engine's tenants; data is the content of argocd-cm of
// an Argo CD of the version.
func (e preflight) checkIsolation(ctx context.Context, version string,
	data map[string]string) ([]engine.Finding, error) {
	if !e.shared() {
		return nil, nil
	}
	found := append(isolationFindings(data), timeoutFindings(version)...)
	if !e.options.NoParams {
		submodules, err := e.checkSubmodules(ctx)
		if err != nil {
			return nil, err
		}
		found = append(found, submodules...)
	}
	for i := range found {
		found[i].Blocks = found[i].Blocks && !e.options.Advise
	}
	repoServer, err := e.repoServer(ctx)
	for _, c := range repoServer {
		found = append(found, gitConfigFindings(c)...)
	}
	return found, err
}

// checkSubmodules reads argocd-cmd-params-cm, which is optional.
func (e preflight) checkSubmodules(ctx context.Context) ([]engine.Finding, error) {
	var params struct{ Data map[string]string }
	err := e.get(ctx, e.configMaps()+"/"+paramsName, &params)
	switch {
	case codeOf(err) == http.StatusForbidden:
		return []engine.Finding{{Code: "params",
			Message: e.actor() + " may not get ConfigMap " + paramsName + " in namespace " +
				e.namespace +
				", so that it is unknown whether the repo-server fetches Git submodules",
			Fix: "grant get on it there"}}, nil
	case err != nil && !isMissing(err):
		return nil, err
	}
	return submoduleFindings(params.Data), nil
}

type envVar struct{ Name, Value string }

// container holds the fields of a workload's container that the checks read.
type container struct {
	Name, Image   string
	Env           []envVar
	Command, Args []string
}

// repoServer returns the repo-server's container; none if Deployments may not be listed.
func (e preflight) repoServer(ctx context.Context) ([]container, error) {
	found, err := e.workloads(ctx, "deployments", "repo-server")
	for _, item := range found {
		for _, c := range item.Spec.Template.Spec.Containers {
			if c.Name == "argocd-repo-server" || c.Name == "repo-server" {
				return []container{c}, nil
			}
		}
	}
	return nil, err
}
