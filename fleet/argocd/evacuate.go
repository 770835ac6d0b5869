package argocd

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Evacuee = (*Engine)(nil)

// FreezeAway implements engine.Evacuee. A requested operation is withdrawn: the controller begins
// or resumes an operation only while the Application has it (appcontroller.go,
// processAppOperationQueueItem). A running one
// ends by itself.
func (e *Engine) FreezeAway(ctx context.Context, row mirror.Row, lease mirror.Lease) error {
	return e.repeat(row.Key, func() error {
		for range attempts {
			m, err := e.readMoving(ctx, row)
			if err != nil || m == nil {
				return err
			}
			if !m.Deleting {
				if err := m.mayWrite(lease); err != nil {
					return err
				}
			}
			patch := m.freezesAway()
			if len(patch) == 0 {
				return nil
			}
			if !m.Deleting {
				setAnnotation(patch, annotationEpoch, strconv.FormatInt(lease.Epoch, 10))
			}
			if err := e.mergeMoving(ctx, row, patch, lease, m); err != nil {
				return err
			}
		}
		return waits("another writer changes it on engine %s after each write", e.name)
	})
}

// freezesAway returns the patch that freezes the Application; empty if it is frozen. The annotation
// of a move shows a rebuild that this engine does not serve it. It is pure.
func (m *movingObject) freezesAway() map[string]any {
	patch := orphaning(m.entry)
	if m.automated() {
		patch["spec"] = map[string]any{"syncPolicy": map[string]any{"automated": nil}}
	}
	if m.live.Operation != nil {
		patch["operation"] = nil
	}
	if m.move != m.UID && !m.Deleting {
		setAnnotation(patch, annotationMove, m.UID)
	}
	return patch
}

func joinEngines(all []fleet.EngineName) string {
	names := make([]string, len(all))
	for i, name := range all {
		names[i] = string(name)
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

// enginesIn returns the engines of annotationEvacuated without those that no engine can be.
func enginesIn(text string) (all []fleet.EngineName) {
	if text == "" {
		return nil
	}
	for name := range strings.SplitSeq(text, ",") {
		if fleet.ValidateName(name) == nil {
			all = append(all, fleet.EngineName(name))
		}
	}
	return all
}
