package argocd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/jq"
)

// renderSync renders a sync policy. A field with Argo CD's default renders nothing, and the options
// have one order, so that equal policies render equally.
func renderSync(a fleet.Application) (*v1alpha1.SyncPolicy, error) {
	s := a.Sync
	options, err := syncOptions(s)
	if err != nil {
		return nil, err
	}
	policy := v1alpha1.SyncPolicy{SyncOptions: options}
	if s.Automated && a.Hold == "" {
		policy.Automated = &v1alpha1.SyncPolicyAutomated{Prune: s.Prune, SelfHeal: s.SelfHeal,
			AllowEmpty: s.AllowEmpty}
	}
	if policy.Retry, err = renderRetry(s.Retry); err != nil {
		return nil, err
	}
	if policy.ManagedNamespaceMetadata, err = renderNamespace(s); err != nil {
		return nil, err
	}
	if policy.IsZero() {
		return nil, nil
	}
	return &policy, nil
}

func syncOptions(s fleet.Sync) (v1alpha1.SyncOptions, error) {
	var options v1alpha1.SyncOptions
	for _, o := range []struct {
		set  bool
		text string
	}{
		{s.CreateNamespace, "CreateNamespace=true"},
		{s.SkipValidation, "Validate=false"},
		{s.ServerSideApply, "ServerSideApply=true"},
		{s.ApplyOutOfSyncOnly, "ApplyOutOfSyncOnly=true"},
		{s.PruneLast, "PruneLast=true"},
		{s.PrunePropagation != "", "PrunePropagationPolicy=" + string(s.PrunePropagation)},
		{s.RespectIgnoreDifferences, "RespectIgnoreDifferences=true"},
		{s.Replace, "Replace=true"},
		{s.SkipDryRunOnMissingResource, "SkipDryRunOnMissingResource=true"},
		{s.FailOnSharedResource, "FailOnSharedResource=true"},
	} {
		if o.set {
			options = append(options, o.text)
		}
	}
	if !slices.Contains([]fleet.PrunePropagation{"", fleet.PropagateForeground,
		fleet.PropagateBackground, fleet.PropagateOrphan}, s.PrunePropagation) {
		return nil, fmt.Errorf("prunePropagation %q is unknown", s.PrunePropagation)
	}
	return options, nil
}

func renderRetry(r *fleet.Retry) (*v1alpha1.RetryStrategy, error) {
	if r == nil {
		return nil, nil
	}
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("retry.%w", err)
	}
	out := &v1alpha1.RetryStrategy{Limit: int64(r.Limit)}
	if b := r.Backoff; b != nil {
		out.Backoff = &v1alpha1.Backoff{Duration: b.Duration.Short(),
			MaxDuration: b.MaxDuration.Short()}
		if b.Factor != 0 {
			factor := int64(b.Factor)
			out.Backoff.Factor = &factor
		}
	}
	return out, nil
}

func renderNamespace(s fleet.Sync) (*v1alpha1.ManagedNamespaceMetadata, error) {
	m := s.ManagedNamespaceMetadata
	if m.Empty() {
		return nil, nil
	}
	if !s.CreateNamespace {
		return nil, fmt.Errorf("managedNamespaceMetadata: createNamespace is false")
	}
	for _, keys := range []map[string]string{m.Labels, m.Annotations} {
		for key := range keys {
			if err := fleet.CheckNamespaceKey(key); err != nil {
				return nil, fmt.Errorf("managedNamespaceMetadata: key %q: %w", key, err)
			}
		}
	}
	return &v1alpha1.ManagedNamespaceMetadata{Labels: m.Labels, Annotations: m.Annotations}, nil
}

// renderDetails adds what Argo CD ignores in comparisons, keeps and shows to a spec.
func renderDetails(spec *v1alpha1.ApplicationSpec, a fleet.Application) error {
	for n, i := range a.IgnoreDifferences {
		if err := i.Check(jq.Check); err != nil {
			return fmt.Errorf("ignoreDifferences[%d]: %w", n, err)
		}
		spec.IgnoreDifferences = append(spec.IgnoreDifferences,
			v1alpha1.ResourceIgnoreDifferences{Group: i.Group, Kind: i.Kind, Name: i.Name,
				Namespace: i.Namespace, JSONPointers: i.JSONPointers,
				JQPathExpressions:     i.JQPathExpressions,
				ManagedFieldsManagers: i.ManagedFieldsManagers})
	}
	if n := a.RevisionHistoryLimit; n != nil {
		if *n < 0 || *n > fleet.MaxRevisionHistory {
			return fmt.Errorf("revisionHistoryLimit %d is not 0 to %d", *n,
				fleet.MaxRevisionHistory)
		}
		limit := int64(*n)
		spec.RevisionHistoryLimit = &limit
	}
	for n, i := range a.Info {
		if err := fleet.CheckInfoValue(i.Value); err != nil {
			return fmt.Errorf("info[%d].value: %w", n, err)
		}
		spec.Info = append(spec.Info, v1alpha1.Info{Name: i.Name, Value: i.Value})
	}
	return nil
}

// linkAnnotations are the annotations of links. Their number is fixed, so that a removed link is
// noticed and removed.
var linkAnnotations = func() []string {
	names := make([]string, fleet.MaxLinks)
	for i := range names {
		names[i] = fmt.Sprintf("link.argocd.argoproj.io/%d", i+1)
	}
	return names
}()

const (
	annotationCompare = "argocd.argoproj.io/compare-options"
	annotationPaths   = "argocd.argoproj.io/manifest-generate-paths"
	// notificationDomain and the name of a subscription are the keys of its annotation. Annotations
	// of this domain that do not begin so are the notifications-controller's.
	notificationDomain = "notifications.argoproj.io/"
	subscriptionPrefix = notificationDomain + "subscribe."
)

// diffOptions are the options of a comparison that Argo CD reads from an Application. It reads the
// others from single resources.
var diffOptions = map[fleet.DiffMode]string{"": "", fleet.DiffClient: "ServerSideDiff=false",
	fleet.DiffServer:             "ServerSideDiff=true",
	fleet.DiffServerWithWebhooks: "ServerSideDiff=true,IncludeMutationWebhook=true"}

// renderAnnotations adds the annotations on which Argo CD acts, and those that it shows.
func renderAnnotations(into map[string]string, a fleet.Application) error {
	options, known := diffOptions[a.Sync.Diff]
	if !known {
		return fmt.Errorf("sync.diff %q is unknown", a.Sync.Diff)
	}
	if options != "" {
		into[annotationCompare] = options
	}
	if len(a.WatchPaths) > fleet.MaxWatchPaths {
		return fmt.Errorf("watchPaths: %d; at most %d are allowed", len(a.WatchPaths),
			fleet.MaxWatchPaths)
	}
	for n, p := range a.WatchPaths {
		if err := fleet.CheckWatchPath(p); err != nil {
			return fmt.Errorf("watchPaths[%d]: %w", n, err)
		}
	}
	if len(a.WatchPaths) > 0 {
		into[annotationPaths] = strings.Join(a.WatchPaths, ";")
	}
	if len(a.Notifications) > fleet.MaxNotifications {
		return fmt.Errorf("notifications: %d; at most %d are allowed", len(a.Notifications),
			fleet.MaxNotifications)
	}
	for i, n := range a.Notifications {
		key := notificationDomain + n.AnnotationName()
		if err := n.Check(); err != nil {
			return fmt.Errorf("notifications[%d].%w", i, err)
		} else if _, twice := into[key]; twice {
			return fmt.Errorf("notifications[%d]: %s is named twice", i, n.AnnotationName())
		}
		into[key] = strings.Join(n.Recipients, ";")
	}
	return renderLinks(into, a.Links)
}

// renderLinks adds the links of an Application to its annotations.
func renderLinks(into map[string]string, links []fleet.Link) error {
	if len(links) > len(linkAnnotations) {
		return fmt.Errorf("links: %d; at most %d are allowed", len(links), len(linkAnnotations))
	}
	for n, l := range links {
		if err := fleet.CheckLinkURL(l.URL); err != nil {
			return fmt.Errorf("links[%d].url: %w", n, err)
		}
		if err := fleet.CheckLinkTitle(l.Title); err != nil {
			return fmt.Errorf("links[%d].title: %w", n, err)
		}
		text := l.URL
		if l.Title != "" {
			text = l.Title + "|" + l.URL
		}
		into[linkAnnotations[n]] = text
	}
	return nil
}
