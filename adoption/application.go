package adoption

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
)

// app is one Application on its way into the config repo.
type app struct {
	Original
	result  Result
	normal  Normal
	tenant  fleet.TenantName
	project string
	cluster *cluster
	env     fleet.EnvironmentName
	draft   *draft
	lost    []Difference // of the metadata
	set     *set         // the ApplicationSet that generates it; nil: none
	alone   *draft       // its own, if draft is joined by overrides
	inexact bool         // the joined deployment does not repeat it exactly
	// of its destination; a joined deployment may have another one
	namespace string
	same      *app   // an equal Application of another file, whose result it has
	parent    bool   // of an app of apps, which needs no declaration
	folded    string // the file of the set that replaces the deployment, or ""
	unplaced  bool   // no engine takes its environment, because of another tenant
	moved     bool   // to the platform's tenant
}

func (a *app) refuse(reason string, args ...any) {
	if len(args) > 0 {
		reason = fmt.Sprintf(reason, args...)
	}
	a.result.Status, a.result.Reason = Refused, reason
}

func (a *app) refused() bool { return a.result.Status == Refused }

// out reports whether no declaration is written for the Application.
func (a *app) out() bool { return a.refused() || a.parent || a.same != nil }

// option is the field of a sync option of Argo CD.
type option struct {
	option, field string
	value         any
	soft          bool // without it, the same objects are deployed
}

var options = []option{
	{"CreateNamespace=true", "spec.sync.createNamespace", true, false},
	{"ServerSideApply=true", "spec.sync.serverSideApply", true, false},
	{"ApplyOutOfSyncOnly=true", "spec.sync.applyOutOfSyncOnly", true, true},
	{"PruneLast=true", "spec.sync.pruneLast", true, true},
	{"PrunePropagationPolicy=background", "spec.sync.prunePropagation", "background", true},
	{"PrunePropagationPolicy=orphan", "spec.sync.prunePropagation", "orphan", true},
	{"RespectIgnoreDifferences=true", "spec.sync.respectIgnoreDifferences", true, false},
	{"Validate=false", "spec.sync.validate", false, false},
	{"Replace=true", "spec.sync.replace", true, false},
	{"SkipDryRunOnMissingResource=true", "spec.sync.skipDryRunOnMissingResource", true, false},
	{"FailOnSharedResource=true", "spec.sync.failOnSharedResource", true, true},
	{"Force=true", "spec.sync.force", true, false},
	{"Prune=false", "spec.sync.pruneObjects", false, true},
	{"Delete=false", "spec.sync.deleteObjects", false, true},
	{"Prune=confirm", "spec.sync.confirmPrune", true, false},
	{"Delete=confirm", "spec.sync.confirmDelete", true, true},
	{"ClientSideApplyMigration=false", "spec.sync.clientSideApplyMigration", false, true},
	{"DisableClientSideApplyMigration=true", "spec.sync.clientSideApplyMigration", false, true},
}

// deployment proposes the declaration of an Application. It proposes Argo CD's own names for the
// fields of a source, so that the decoder alone decides which of them exist.
func (a *app) deployment(name string, chart func(folder string) bool) *draft {
	d := newDraft(fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: a.tenant, Name: name})
	spec := object(a.Object, "spec")
	if sources := list(spec, "sources"); len(sources) > 0 { // Argo CD reads them alone
		all := make([]any, len(sources))
		for i := range all {
			all[i] = map[string]any{}
		}
		put(d.document, steps("spec.sources"), all)
		for i, s := range sources {
			source, _ := s.(map[string]any)
			a.source(d, fmt.Sprintf("spec.sources[%d]", i), source, chart)
		}
	} else {
		a.source(d, "spec.source", object(spec, "source"), chart)
	}
	d.set("spec.destination.environments", []any{string(a.env)})
	namespace := text(spec, "destination", "namespace")
	if namespace == "" {
		namespace = name
	}
	d.set("spec.destination.namespace", namespace)
	a.sync(d, object(spec, "syncPolicy"))
	a.metadata(d)
	d.set("spec.ignoreDifferences", compact(clone(spec["ignoreDifferences"])))
	d.set("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])
	d.set("spec.info", compact(clone(spec["info"])))
	return d
}

// source proposes one source.
func (a *app) source(d *draft, field string, raw map[string]any,
	chartIn func(folder string) bool) {
	url, chart := chartOfRegistry(text(raw, "repoURL"), text(raw, "chart"))
	d.set(field+".repoURL", url, spellingsOf(url)...)
	folder := text(raw, "path")
	d.set(field+".chart", chart)
	ref := text(raw, "ref")
	d.set(field+".ref", ref)
	switch {
	case chart != "":
	case folder == "" && ref == "":
		d.set(field+".path", ".")
	case folder != "" && !path.IsAbs(folder):
		d.set(field+".path", path.Clean(folder))
	default:
		d.set(field+".path", folder)
	}
	revision := text(raw, "targetRevision")
	if revision == "" && chart == "" {
		revision = "HEAD"
	}
	d.set(field+".targetRevision", revision)
	plain := compact(clone(raw["kustomize"])) == nil && compact(clone(raw["directory"])) == nil &&
		raw["plugin"] == nil
	a.helm(d, field+".helm", object(raw, "helm"), chart != "",
		plain && folder != "" && chartIn != nil && chartIn(folder))
	for _, tool := range []string{"kustomize", "directory", "plugin"} {
		block, _ := compact(clone(raw[tool])).(map[string]any)
		for _, k := range keys(block) {
			d.set(field+"."+tool+"."+k, block[k])
		}
		if tool == "plugin" && raw[tool] != nil && len(block) == 0 {
			put(d.document, steps(field+".plugin"), map[string]any{})
		}
	}
	for _, k := range keys(raw) {
		switch k {
		case "repoURL", "chart", "path", "ref", "targetRevision", "helm", "kustomize", "directory",
			"plugin":
		default:
			d.set(field+"."+k, compact(clone(raw[k])))
		}
	}
}

// helm proposes the values given to a chart. The release keeps its name, for which Argo CD takes
// the name of the Application if none is written.
// A folder that holds a chart gets the release's name in any case: without it, Argo CD would take
// the name of the object.
func (a *app) helm(d *draft, field string, raw map[string]any, chart, folder bool) {
	release := text(raw, "releaseName")
	block, _ := compact(clone(any(raw))).(map[string]any)
	if block["version"] == "v3" {
		delete(block, "version")
	}
	delete(block, "values")
	delete(block, "valuesObject")
	values := text(raw, "values")
	if tree, ok := raw["valuesObject"].(map[string]any); ok { // it wins over values
		values = writeYAML(tree)
		d.set(field+".values", clone(tree), values)
	} else if strings.TrimSpace(values) != "" {
		switch tree, err := parse(values); {
		case err == nil && len(tree) == 0: // comments alone
			values = ""
		case err == nil:
			d.set(field+".values", values, writeYAML(tree))
		default:
			d.set(field+".values", values)
		}
	}
	written := chart || len(block) > 0 || strings.TrimSpace(values) != ""
	if release == "" && (written && a.Name != d.key.Name || !written && folder) {
		d.set(field+".releaseName", a.Name)
	}
	for _, k := range keys(block) {
		if k == "parameters" {
			for _, p := range list(block, k) {
				if m, ok := p.(map[string]any); ok && m["value"] == nil {
					m["value"] = ""
				}
			}
		}
		d.set(field+"."+k, block[k])
	}
}

func (a *app) sync(d *draft, raw map[string]any) {
	automated, on := raw["automated"].(map[string]any)
	if written, ok := raw["automated"]; ok && written == nil {
		on = false
	}
	if enabled, written := automated["enabled"].(bool); written && !enabled {
		on = false
	}
	if on {
		d.set("spec.sync.mode", "automated")
		for _, k := range []string{"prune", "selfHeal"} {
			set, _ := automated[k].(bool)
			d.set("spec.sync."+k, set)
		}
		if empty, _ := automated["allowEmpty"].(bool); empty {
			d.set("spec.sync.allowEmpty", true)
		}
	} else {
		d.set("spec.sync.mode", "manual")
	}
	for _, written := range texts(raw, "syncOptions") {
		for _, o := range options {
			if o.option == written {
				d.set(o.field, o.value)
			}
		}
	}
	d.set("spec.sync.retry", compact(clone(raw["retry"])))
	d.set("spec.sync.managedNamespaceMetadata", compact(clone(raw["managedNamespaceMetadata"])))
}

const (
	finalizer  = "resources-finalizer.argocd.argoproj.io"
	waveKey    = "argocd.argoproj.io/sync-wave"
	linkPrefix = "link.argocd.argoproj.io/"
	compareKey = "argocd.argoproj.io/compare-options"
	pathsKey   = "argocd.argoproj.io/manifest-generate-paths"

	subscribePrefix = "notifications.argoproj.io/subscribe."
)

// diffMode is the value of sync.diff for the annotation, or nil. Argo CD reads no other option from
// an Application.
func diffMode(annotation string) any {
	options := map[string]bool{}
	for _, o := range strings.Split(annotation, ",") {
		options[strings.TrimSpace(o)] = true
	}
	switch {
	case options["ServerSideDiff=false"]:
		return "client"
	case options["ServerSideDiff=true"] && options["IncludeMutationWebhook=true"]:
		return "serverWithWebhooks"
	case options["ServerSideDiff=true"]:
		return "server"
	}
	return nil
}

// subscription is an entry of notifications: the key names the trigger and the service.
func subscription(key, recipients string) map[string]any {
	n := map[string]any{}
	trigger, service, both := strings.Cut(strings.TrimPrefix(key, subscribePrefix), ".")
	if !both {
		trigger, service = "", trigger
	}
	n["service"] = service
	if trigger != "" {
		n["trigger"] = trigger
	}
	var all []any
	for _, r := range strings.Split(recipients, ";") {
		if r = strings.TrimSpace(r); r != "" {
			all = append(all, r)
		}
	}
	if len(all) > 0 {
		n["recipients"] = all
	}
	return n
}

// watchPaths are the paths of the annotation. Of one source, a path above the source's is written
// from the root of the repository.
func (a *app) watchPaths(annotation string) (paths []any) {
	folder := text(a.Object, "spec", "source", "path")
	for _, p := range strings.Split(annotation, ";") {
		p = strings.TrimSpace(p)
		switch joined := path.Clean("/" + path.Join(folder, p)); {
		case p == "":
			continue
		case strings.HasPrefix(p, "/"):
			p = path.Clean(p)
		case strings.HasPrefix(p, "..") && folder != "":
			p = joined
		default:
			p = path.Clean(p)
		}
		if !slices.Contains(paths, any(p)) {
			paths = append(paths, p)
		}
	}
	return paths
}

// machinery are annotations that kubectl and Argo CD write for themselves.
var machinery = map[string]bool{"kubectl.kubernetes.io/last-applied-configuration": true,
	"argocd.argoproj.io/tracking-id": true, "argocd.argoproj.io/installation-id": true,
	"argocd.argoproj.io/refresh": true, "argocd.argoproj.io/hydrate": true}

// metadata proposes labels, the wave, links and the deletion policy.
func (a *app) metadata(d *draft) {
	for _, k := range keys(object(a.Object, "metadata", "labels")) {
		d.set(`metadata.labels`+key(k), text(a.Object, "metadata", "labels", k))
	}
	annotations := object(a.Object, "metadata", "annotations")
	var links, subscriptions []any
	for _, k := range keys(annotations) {
		v := text(annotations, k)
		switch {
		case k == waveKey:
			if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil && n != 0 {
				d.set("spec.wave", n)
			}
		case strings.HasPrefix(k, linkPrefix):
			links = append(links, map[string]any{"title": strings.TrimPrefix(k, linkPrefix),
				"url": v})
		case strings.HasPrefix(k, subscribePrefix):
			subscriptions = append(subscriptions, subscription(k, v))
		case k == compareKey:
			d.set("spec.sync.diff", diffMode(v))
		case k == pathsKey:
			d.set("spec.watchPaths", a.watchPaths(v))
		}
	}
	d.set("spec.links", links)
	d.set("spec.notifications", subscriptions)
	policy := "Orphan"
	for _, f := range texts(a.Object, "metadata", "finalizers") {
		if strings.HasPrefix(f, finalizer) {
			policy = "Delete"
		}
	}
	d.set("spec.deletionPolicy", policy)
}

// key is a step of a field's path for a key that may hold dots or slashes.
func key(k string) string {
	if plainKey.MatchString(k) {
		return "." + k
	}
	return `["` + k + `"]`
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// metadataLost returns the fields of the metadata that the fitted draft lacks. namespace is that of
// the Application that Argosy creates or adopts.
func (a *app) metadataLost(namespace string) (lost []Difference) {
	d := a.draft
	if a.Namespace != "" && a.Namespace != namespace {
		lost = append(lost, Difference{Path: "metadata.namespace", From: a.Namespace, To: namespace,
			Reason: "Argosy writes Applications into Argo CD's own namespace"})
	}
	labels := object(a.Object, "metadata", "labels")
	for _, k := range keys(labels) {
		if k == "app.kubernetes.io/instance" && a.set != nil || d.has("metadata.labels"+key(k)) {
			continue
		}
		lost = append(lost, Difference{Path: "metadata.labels" + key(k), From: labels[k],
			Reason: d.reason("metadata.labels" + key(k))})
	}
	annotations := object(a.Object, "metadata", "annotations")
	for _, k := range keys(annotations) {
		if machinery[k] {
			continue
		}
		diff := Difference{Path: "metadata.annotations" + key(k), From: annotations[k]}
		var reason string
		reason, diff.hard = a.unannotated(k)
		switch {
		case k == waveKey:
			if d.has("spec.wave") || strings.TrimSpace(text(annotations, k)) == "0" {
				continue
			}
			diff.Reason = d.reason("spec.wave")
		case strings.HasPrefix(k, linkPrefix):
			if d.has("spec.links") && d.reason("spec.links") == "" {
				continue
			}
			diff.Reason = d.reason("spec.links")
		case counterparts[k] != "" || strings.HasPrefix(k, subscribePrefix):
			field := cmp.Or(counterparts[k], "spec.notifications")
			if d.has(field) && d.reason(field) == "" {
				continue
			}
			diff.Reason = cmp.Or(d.reason(field), "Argo CD does not read it from an Application")
		default:
			diff.Reason = reason
		}
		lost = append(lost, diff)
	}
	for i, f := range texts(a.Object, "metadata", "finalizers") {
		if f == finalizer || f == finalizer+"/foreground" {
			continue
		}
		reason := "Argosy deletes in the foreground"
		if !strings.HasPrefix(f, finalizer) {
			reason = "no declaration has finalizers"
		}
		lost = append(lost, Difference{Path: fmt.Sprintf("metadata.finalizers[%d]", i), From: f,
			Reason: reason})
	}
	return lost
}

// counterparts are the fields of annotations.
var counterparts = map[string]string{compareKey: "spec.sync.diff", pathsKey: "spec.watchPaths"}

// counterpart is the field of a declaration for a path of an Application.
func counterpart(path string) string {
	if rest, ok := strings.CutPrefix(path, "spec.syncPolicy.syncOptions["); ok {
		for _, o := range options {
			if o.option == strings.TrimSuffix(rest, "]") {
				return o.field
			}
		}
	}
	if rest, ok := strings.CutPrefix(path, "spec.syncPolicy.automated"); ok {
		return "spec.sync" + rest
	}
	if rest, ok := strings.CutPrefix(path, "spec.syncPolicy."); ok {
		return "spec.sync." + rest
	}
	return path
}

// soft are the paths of an Application whose loss leaves the deployed objects as they are.
var soft = []string{"spec.syncPolicy.retry", "spec.syncPolicy.automated.allowEmpty",
	"spec.revisionHistoryLimit", "spec.info"}

// hardDifference reports whether the workload would behave otherwise.
func hardDifference(d Difference, spec map[string]any) bool {
	if rest, ok := strings.CutPrefix(d.Path, "spec.syncPolicy.syncOptions["); ok {
		written := strings.TrimSuffix(rest, "]")
		if written == "RespectIgnoreDifferences=true" {
			return len(list(spec, "ignoreDifferences")) > 0
		}
		i := slices.IndexFunc(options, func(o option) bool { return o.option == written })
		return i >= 0 && !options[i].soft
	}
	if d.From == nil && d.Path == "spec.destination.namespace" ||
		d.From == nil && strings.HasSuffix(d.Path, ".path") {
		return false
	}
	for _, s := range soft {
		if d.Path == s || strings.HasPrefix(d.Path, s+".") || strings.HasPrefix(d.Path, s+"[") {
			return false
		}
	}
	return true
}

// chartOfRegistry returns the folder and the name of a chart in a registry of OCI artifacts that is
// written by its host alone: registry.example.com and team/app are registry.example.com/team and
// app. Argo CD joins the two.
func chartOfRegistry(repoURL, chart string) (folder, name string) {
	i := strings.LastIndexByte(chart, '/')
	if i <= 0 || strings.ContainsAny(repoURL, "/@") || !strings.Contains(repoURL, ".") {
		return repoURL, chart
	}
	return repoURL + "/" + chart[:i], chart[i+1:]
}

// spellingsOf are other spellings of one repository.
func spellingsOf(url string) (others []any) {
	trimmed := strings.TrimSuffix(strings.TrimSpace(url), "/")
	if trimmed != url {
		others = append(others, trimmed)
	}
	if !strings.Contains(trimmed, "://") {
		if host, rest, ok := strings.Cut(trimmed, ":"); ok && strings.Contains(host, "@") {
			others = append(others, "ssh://"+host+"/"+strings.TrimPrefix(rest, "/"))
		}
		return others
	}
	scheme, rest, _ := strings.Cut(trimmed, "://")
	host, folder, _ := strings.Cut(rest, "/")
	if lower := strings.ToLower(scheme + "://" + host); lower != scheme+"://"+host {
		others = append(others, lower+"/"+folder)
	}
	return others
}

// compact removes what has the meaning of a field that is left out: null, false, "", empty lists
// and maps.
func compact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if e = compact(e); e == nil {
				delete(v, k)
			} else {
				v[k] = e
			}
		}
		if len(v) == 0 {
			return nil
		}
	case []any:
		for i, e := range v {
			if _, isText := e.(string); !isText {
				if c := compact(e); c != nil {
					v[i] = c
				}
			}
		}
		if len(v) == 0 {
			return nil
		}
	case string:
		if v == "" {
			return nil
		}
	case bool:
		if !v {
			return nil
		}
	}
	return v
}
