package inspect

import (
	"slices"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet/mirror"
)

// Syncs returns the last syncs of an Application, newest first: the operation that runs or has run
// last, with its results, and those of the history, which succeeded.
func Syncs(app *v1alpha1.Application) []mirror.PastSync {
	all := []mirror.PastSync{}
	history := app.Status.History
	if last := lastSync(app.Status.OperationState); last != nil {
		// The controller writes a sync into the history when it has succeeded.
		if n := len(history); n > 0 && last.Phase == "Succeeded" && !last.DryRun &&
			sameRevisions(last.Revisions, revisionsOf(&history[n-1])) &&
			!history[n-1].DeployedAt.Time.Before(app.Status.OperationState.StartedAt.Time) {
			last.ID = history[n-1].ID
			history = history[:n-1]
		}
		all = append(all, *last)
	}
	for _, h := range slices.Backward(history) {
		if len(all) == mirror.MaxSyncs {
			break
		}
		s := mirror.PastSync{ID: h.ID, Revisions: revisionsOf(&h),
			By: short(h.InitiatedBy.Username), Automated: h.InitiatedBy.Automated,
			Phase: "Succeeded", FinishedAt: timeOf(&h.DeployedAt),
			StartedAt: timeOf(h.DeployStartedAt)}
		all = append(all, s)
	}
	return all
}

func sameRevisions(a, b []string) bool { return slices.Equal(a, b) }

func revisionsOf(h *v1alpha1.RevisionHistory) []string {
	return revisions(h.Revision, h.Revisions)
}

func revisions(one string, several []string) []string {
	if len(several) == 0 && one != "" {
		several = []string{one}
	}
	out := []string{}
	for i, r := range several {
		if i == 20 {
			break
		}
		out = append(out, short(r))
	}
	return out
}

func lastSync(state *v1alpha1.OperationState) *mirror.PastSync {
	if state == nil || state.Operation.Sync == nil {
		return nil
	}
	s := &mirror.PastSync{ID: -1, By: short(state.Operation.InitiatedBy.Username),
		Automated: state.Operation.InitiatedBy.Automated, DryRun: state.Operation.Sync.DryRun,
		Phase: short(string(state.Phase)), Message: message(state.Message),
		StartedAt: timeOf(&state.StartedAt), FinishedAt: timeOf(state.FinishedAt),
		Revisions: revisions(state.Operation.Sync.Revision, state.Operation.Sync.Revisions)}
	result := state.SyncResult
	if result == nil {
		return s
	}
	if all := revisions(result.Revision, result.Revisions); len(all) > 0 {
		s.Revisions = all
	}
	for _, r := range result.Resources {
		s.Results = append(s.Results, resultOf(r))
	}
	slices.SortStableFunc(s.Results, func(a, b mirror.SyncResult) int {
		return failed(a) - failed(b)
	})
	if n := len(s.Results) - mirror.MaxSyncResults; n > 0 {
		s.Results, s.More = s.Results[:mirror.MaxSyncResults], n
	}
	return s
}

// failed orders failed results first.
func failed(r mirror.SyncResult) int {
	switch r.Status {
	case "SyncFailed", "Failed", "Error":
		return 0
	}
	return 1
}

func resultOf(r *v1alpha1.ResourceResult) mirror.SyncResult {
	out := mirror.SyncResult{ResourceRef: mirror.ResourceRef{Group: short(r.Group),
		Kind: short(r.Kind), Namespace: short(r.Namespace), Name: short(r.Name)},
		Status: short(string(r.Status)), Message: message(r.Message),
		Hook: short(string(r.HookType))}
	if out.Hook != "" || out.Status == "" {
		out.Status = short(string(r.HookPhase))
	}
	return out
}
