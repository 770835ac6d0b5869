package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	operationUser = "argosy"          // initiatedBy.username of our operations
	operationInfo = "argosy.dev/sync" // names the request in an operation's info
	busyWait      = 2 * time.Second
	parkedWait    = 30 * time.Second
	parkedText    = "the environment's cluster does not respond; the sync starts when it does"
)

// Sync requests one sync at a revision, whether or not the Application is automated. The outcome is
// ApplyApplied once the sync is requested, also for a repeated request, and ApplyPending while
// another operation runs. The result comes as an Observation with the request's ID.
//
// The same write clears the last result: Argo CD merges a new operation with the state of an older
// one, and a full sync would inherit its list of resources, skip all others and report success.
func (e *Engine) Sync(ctx context.Context, q engine.SyncRequest,
	lease mirror.Lease) (engine.Outcome,
	error) {
	if err := e.ready(); err != nil {
		return engine.Outcome{}, err
	}
	if err := exact("revision", q.Revision, maxSources*257); err != nil || q.ID == "" ||
		q.Key.Kind != fleet.ObjectApplication {
		return engine.Outcome{},
			fmt.Errorf("sync of %s: it needs an Application, an id and an exact revision: %w",
				q.Key.Name, err)
	}
	known := e.cache.get(q.Key)
	for range attempts {
		out, err := e.syncStep(ctx, q, lease, known)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(q.Key, err)
		}
		if known, err = e.refetch(ctx, q.Key); err != nil {
			return engine.Outcome{}, e.explain(q.Key, err)
		}
	}
	return engine.Outcome{State: mirror.ApplyPending,
		Message:    "the Application changes too quickly; it is retried",
		RetryAfter: busyWait}, nil
}

func (e *Engine) syncStep(ctx context.Context, q engine.SyncRequest, lease mirror.Lease,
	known *entry) (engine.Outcome, error) {
	switch {
	case known == nil:
		return engine.Outcome{State: mirror.ApplyPending,
			Message: "the Application is not on the engine yet", RetryAfter: busyWait}, nil
	case !known.Ours || known.Tenant != q.Tenant:
		return engine.Outcome{}, fmt.Errorf("%w: it is not synced", engine.ErrForeign)
	case known.fenced(lease.Epoch):
		return engine.Outcome{}, fmt.Errorf("%w: its epoch is %d, this lease's is %d",
			engine.ErrFenced, known.Epoch, lease.Epoch)
	case known.requestedSync == q.ID || known.request == q.ID:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	case known.Deleting:
		return engine.Outcome{}, fmt.Errorf("%w: it is being deleted", engine.ErrRefused)
	case known.move != "":
		return engine.Outcome{State: mirror.ApplyPending, RetryAfter: busyWait,
			Message: "the Application moves to another engine; the sync starts when it has"}, nil
	case known.Parked:
		return engine.Outcome{State: mirror.ApplyPending, Message: parkedText,
			RetryAfter: parkedWait}, nil
	case known.Operating:
		return engine.Outcome{State: mirror.ApplyPending,
			Message:    "another operation is running; the sync is requested when that has ended",
			RetryAfter: busyWait}, nil
	}
	sync := map[string]any{"prune": q.Prune}
	switch revisions := fleet.SplitRevisions(q.Revision); {
	case len(revisions) > 1 || len(known.sources) > 0: // a list of one has revisions too
		// Argo CD 2.14 reads the files of a ref at the operation's revision only if the operation
		// carries the sources (GetRefSources, isRollback)
		sync["revisions"], sync["sources"] = revisions, known.sources
	default:
		sync["revision"] = q.Revision
	}
	if len(known.syncOptions) > 0 {
		// an operation does not inherit them from the policy
		sync["syncOptions"] = known.syncOptions
	}
	patch := map[string]any{"operation": operationOf(q.ID, sync), "status": map[string]any{
		"operationState": nil}}
	setAnnotation(patch, annotationSync, q.ID)
	setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
	m, err := e.merge(ctx, mirror.Row{Key: q.Key, Tenant: q.Tenant}, patch, known)
	if err != nil {
		return engine.Outcome{}, err
	}
	after := *known
	after.ResourceVersion, after.Epoch, after.requestedSync, after.request, after.Operating =
		m.ResourceVersion, lease.Epoch, q.ID, q.ID, true
	e.cache.learn(applications, &after)
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// unreadCluster has the prefixes of Argo CD 2.14 and 3.5 for a failed read of an Application's
// cluster before a comparison or deletion (controller/state.go, controller/cache/cache.go).
var unreadCluster = []struct {
	words  string
	server bool // the server and a colon follow
}{
	{"failed to get cluster version for cluster ", true},
	{"failed to get cluster info for ", true},
	{"error synchronizing cache state : ", false},
	{"failed to sync cluster ", true},
}

// contactOf returns how Argo CD reached the cluster of an Application.
func contactOf(live *engine.Live, stalled bool, o *liveObject) engine.Contact {
	c := engine.Contact{
		Key: live.Key, UID: live.UID, Tenant: live.Tenant, Environment: live.Environment,
		Compared: reconciledAt(o.Status.ReconciledAt), Deleting: live.Deleting,
	}
	if since, err := time.Parse(time.RFC3339,
		o.Metadata.Annotations[annotationParked]); err == nil && stalled {
		c.Parked = since.UTC()
	}
	for _, condition := range o.Status.Conditions {
		if condition.Type != "ComparisonError" && condition.Type != "DeletionError" {
			continue
		}
		if text, unread := clusterError(condition.Message); unread {
			c.Reason, c.Message = unreachableReason(text), withNextStep(text)
			break
		}
		if repoServerError(condition.Message) {
			c.RepoServer = clip(condition.Message, maxText)
			break
		}
	}
	return c
}

// withNextStep clips an error of a cluster. It adds what to do about a missing right to list: the
// error names the account, the kind and the namespace.
func withNextStep(text string) string {
	const grant = "; let this account list and watch every kind there (docs/clusters.md)"
	if !strings.Contains(text, " is forbidden: ") || !strings.Contains(text, " cannot list ") {
		return clip(text, maxText)
	}
	return clip(text, maxText-len(grant)) + grant
}

// repoServerError reports whether the application-controller got no answer from the repo-server:
// codes of gRPC, which the repo-server itself returns as Unknown. It serves Argo CD 2.14 and 3.5
// (controller/state.go, GetRepoObjs).
func repoServerError(message string) bool {
	rest, ok := strings.CutPrefix(message, "Failed to load target state: ")
	if !ok {
		return false
	}
	if after, is := strings.CutPrefix(rest, "failed to generate manifest for source "); is {
		_, rest, _ = strings.Cut(after, ": ")
	}
	for _, code := range []string{"Unavailable", "DeadlineExceeded"} {
		if strings.HasPrefix(rest, "rpc error: code = "+code+" desc = ") {
			return true
		}
	}
	return false
}

// clusterError returns the cause in a condition's message if the cluster could not be read. Argo
// CD's own prefixes come first; output of a repository's tools comes later, if at all.
func clusterError(message string) (string, bool) {
	rest := message
	for _, lead := range []string{"Failed to load target state: ", "Failed to load live state: "} {
		rest = strings.TrimPrefix(rest, lead)
	}
	unread := false
	for again := true; again; {
		again = false
		for _, lead := range unreadCluster {
			after, ok := strings.CutPrefix(rest, lead.words)
			if !ok {
				continue
			}
			unread, again, rest = true, true, after
			if _, cause, named := strings.Cut(after, ": "); lead.server && named {
				rest = cause
			}
		}
	}
	return rest, unread
}

// unreachableReason classifies an error of client-go. Only known errors count as a timeout.
func unreachableReason(text string) mirror.UnreachableReason {
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("TLS handshake timeout", "i/o timeout", "Client.Timeout", "context deadline exceeded",
		"timeout awaiting response headers",
		"unable to return a response in the time allotted", "request canceled while waiting",
		"http2: client connection lost"):
		return mirror.UnreachableTimeout
	case has("connection refused", "no such host", "no route to host", "network is unreachable",
		"connection reset", ": EOF"):
		return mirror.UnreachableRefused
	case has("provide credentials", "Unauthorized", "certificate signed by unknown authority",
		"x509:"):
		return mirror.UnreachableDenied
	}
	return mirror.UnreachableError
}

// Park makes Argo CD ignore one Application, or stop ignoring it. With skip-reconcile: "true", Argo
// CD handles no event of an Application: it neither compares nor syncs it, and a deletion waits.
func (e *Engine) Park(ctx context.Context, q engine.ParkRequest, lease mirror.Lease) error {
	if err := e.ready(); err != nil {
		return err
	}
	known := e.cache.get(q.Key)
	for range attempts {
		err := e.parkStep(ctx, q, lease, known)
		if codeOf(err) != http.StatusConflict {
			return e.explain(q.Key, err)
		}
		if known, err = e.refetch(ctx, q.Key); err != nil {
			return e.explain(q.Key, err)
		}
	}
	return errors.New("the Application changes too quickly; it is retried")
}

func (e *Engine) parkStep(ctx context.Context, q engine.ParkRequest, lease mirror.Lease,
	known *entry) error {
	since := ""
	if !q.Since.IsZero() {
		since = q.Since.UTC().Format(time.RFC3339)
	}
	switch {
	case known == nil || known.UID != q.UID:
		return nil // it was deleted
	case !known.Ours || known.Tenant != q.Tenant:
		return fmt.Errorf("%w: it is not parked", engine.ErrForeign)
	case known.fenced(lease.Epoch):
		return fmt.Errorf("%w: its epoch is %d, this lease's is %d", engine.ErrFenced, known.Epoch,
			lease.Epoch)
	case since == "" && !known.Parked, since != "" && known.skipReconcile:
		return nil // already so; and an annotation of others stays
	}
	patch := map[string]any{}
	setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
	if since != "" {
		setAnnotation(patch, annotationParked, since)
		setAnnotation(patch, annotationSkipReconcile, "true")
	} else {
		setAnnotation(patch, annotationParked, nil)
		setAnnotation(patch, annotationSkipReconcile, nil)
	}
	defer e.cache.expect(q.Key, stamp{lease.Epoch, known.applied})()
	m, err := e.merge(ctx, mirror.Row{Key: q.Key, Tenant: q.Tenant}, patch, known)
	if err != nil {
		return err
	}
	after := *known
	after.ResourceVersion, after.Epoch, after.skipReconcile = m.ResourceVersion, lease.Epoch,
		since != ""
	after.Parked, after.contact.Parked = after.skipReconcile, q.Since.UTC().Truncate(time.Second)
	e.cache.learn(applications, &after)
	return nil
}

// stopMarker is the ConfigMap that stores emergency stops on the engine: they survive the loss of
// the database.
const stopMarker = "argosy-emergency-stop"

func (e *Engine) configMaps() string {
	return "/api/v1/namespaces/" + url.PathEscape(e.namespace) + "/configmaps"
}

// stopStore is the marker ConfigMap of an engine.
type stopStore struct{ *Engine }

func stopName(scope mirror.StopScope, name string) string {
	if name == "" {
		return string(scope)
	}
	return string(scope) + "." + name
}

// SetStop stores a stop on the engine in addition to the existing ones. It does not write to a
// tenant's object and needs no preflight.
func (e *Engine) SetStop(ctx context.Context, stop mirror.Stop) error {
	text, err := json.Marshal(stop)
	if err != nil {
		return fmt.Errorf("stop %s: %w", stopName(stop.Scope, stop.Name), err)
	}
	return stopStore{e}.write(ctx, stopName(stop.Scope, stop.Name), string(text))
}

// ClearStop removes a stop from the engine. A missing one is no error.
func (e *Engine) ClearStop(ctx context.Context, scope mirror.StopScope, name string) error {
	return stopStore{e}.write(ctx, stopName(scope, name), nil)
}

// write patches the marker, or creates it. It retries if the marker is created or deleted
// meanwhile.
func (e stopStore) write(ctx context.Context, name string, value any) error {
	data := map[string]any{"data": map[string]any{name: value}}
	for range attempts {
		patch, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
		err = e.client.do(ctx, request{method: http.MethodPatch, path: e.configMaps() + "/" +
			stopMarker, contentType: mergePatch, accept: metadataOnly,
			query: url.Values{"fieldManager": {fieldManager}}, body: patch}, nil)
		if !isMissing(err) {
			return e.error(err)
		}
		if value == nil {
			return nil
		}
		marker, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"data": data["data"],
			"metadata": map[string]any{"name": stopMarker, "labels": map[string]any{
				labelManagedBy: managedBy}}})
		if err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
		err = e.client.do(ctx, request{method: http.MethodPost, path: e.configMaps(),
			contentType: plainJSON, accept: metadataOnly,
			query: url.Values{"fieldManager": {fieldManager}}, body: marker}, nil)
		if codeOf(err) != http.StatusConflict {
			return e.error(err)
		}
	}
	return fmt.Errorf("stop %s: ConfigMap %s keeps being created and deleted", name, stopMarker)
}

// ReadStops returns the stored stops, sorted. An unreadable entry stops the engine without a time,
// so that only its removal ends the stop.
func (e *Engine) ReadStops(ctx context.Context) ([]mirror.Stop, error) {
	var marker struct {
		Metadata struct{ UID string }
		Data     map[string]string
	}
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.configMaps() + "/" +
		stopMarker}, &marker)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, stopStore{e}.error(err)
	}
	var stops []mirror.Stop
	for _, name := range slices.Sorted(maps.Keys(marker.Data)) {
		var stop mirror.Stop
		if err := json.Unmarshal([]byte(marker.Data[name]), &stop); err != nil ||
			stopName(stop.Scope, stop.Name) != name {
			stop = mirror.Stop{Scope: mirror.StopEngine, Name: string(e.name), By: "argosy",
				Reason: fmt.Sprintf(
					"entry %q of ConfigMap %s on engine %s cannot be read; fix or remove it",
					clip(name, 64), stopMarker, e.name)}
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

func isMissing(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.named == "configmaps"
}

func (e stopStore) error(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ConfigMap %s in namespace %s: %w", stopMarker, e.namespace, err)
}
