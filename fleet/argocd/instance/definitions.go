package instance

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keeps reports whether the live CustomResourceDefinition stays although another one is at hand.
// The definitions belong to the cluster: an instance of an earlier version must not take fields
// away from one of a later version. A definition without a version, which a person has applied,
// stays if it only adds properties to ours.
func keeps(live, ours *unstructured.Unstructured) bool {
	mine, err := semver.NewVersion(ours.GetAnnotations()[annotationVersion])
	if err != nil {
		return true
	}
	if theirs, err := semver.NewVersion(live.GetAnnotations()[annotationVersion]); err == nil {
		return theirs.GreaterThan(mine)
	}
	have, bring := properties(live), properties(ours)
	more, less := false, false
	for path := range have {
		more = more || !bring[path]
	}
	for path := range bring {
		less = less || !have[path]
	}
	return more && !less
}

// properties returns the paths of all properties of a CustomResourceDefinition.
func properties(o *unstructured.Unstructured) map[string]bool {
	all := map[string]bool{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, next := range value {
				if below, ok := next.(map[string]any); ok && key == "properties" {
					for name := range maps.Keys(below) {
						all[path+"."+name] = true
						walk(path+"."+name, below[name])
					}
					continue
				}
				walk(path, next)
			}
		case []any:
			for _, next := range value {
				walk(path, next)
			}
		}
	}
	walk("", o.Object["spec"])
	return all
}

const (
	establishWithin = 30 * time.Second
	establishEvery  = 200 * time.Millisecond
)

// define brings one CustomResourceDefinition to the cluster and waits until the API server serves
// it. The write carries the resourceVersion, so that of two instances the later version wins.
func (t *Target) define(ctx context.Context, ours *unstructured.Unstructured) (string, error) {
	live, err := t.get(ctx, ours)
	changed := ""
	switch {
	case apierrors.IsNotFound(err):
		err := t.client.Create(ctx, ours.DeepCopy(), client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", refused(err, "create "+name(ours))
		}
		changed = name(ours)
	case err != nil:
		return "", refused(err, "get "+name(ours))
	case keeps(live, ours):
	default:
		ours = ours.DeepCopy()
		ours.SetResourceVersion(live.GetResourceVersion())
		entry, err := t.manager.Apply(ctx, ours, options())
		if err != nil {
			return "", refused(err, "apply "+name(ours))
		}
		if entry.Action != ssa.UnchangedAction {
			changed = name(ours)
		}
	}
	return changed, t.established(ctx, ours)
}

func (t *Target) established(ctx context.Context, o *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, establishWithin)
	defer cancel()
	for {
		live, err := t.get(ctx, o)
		if err == nil {
			var s *status.Result
			if s, err = status.Compute(live); err == nil && s.Status == status.CurrentStatus {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not serve %s yet: %w", name(o),
				firstError(err, context.Cause(ctx)))
		case <-time.After(establishEvery):
		}
	}
}

func firstError(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// name is "Kind name" of an object.
func name(o *unstructured.Unstructured) string {
	return strings.TrimSpace(o.GetKind() + " " + o.GetName())
}
