package argocd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// unreadCluster has the prefixes of Argo CD 2.14 and 3.2 for a failed read of an Application's
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
			c.Reason, c.Message = unreachableReason(text), clip(text, maxText)
			break
		}
	}
	return c
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
	case known.Epoch > lease.Epoch:
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
	e.cache.put(applications, &after)
	return nil
}
