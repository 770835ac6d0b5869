package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlApply is the apply state of an object, of desired d and status s.
const sqlApply = `CASE
	WHEN d.absent THEN CASE WHEN s.seq = d.seq AND s.state IN ('Failed', 'Conflict', 'Held') THEN s.state ELSE 'Deleting' END
	WHEN d.held THEN 'Held'
	WHEN s.seq = d.seq THEN s.state
	ELSE 'Pending' END`

// sqlBlockedAfter is mirror.DeletionBlockedAfter.
var sqlBlockedAfter = fmt.Sprintf("interval '%d seconds'", mirror.DeletionBlockedAfter/time.Second)

// Applications match Filter.{Tenant, Environment, Deployment, Engine, Revision, Sync, Health,
// Apply, Name, Labels, Text, Image}, ordered by tenant, deployment, environment. They include those
// whose deletion is not proven yet, except that an evacuated engine shows the Applications that it
// has lost only if the filter names it.
func (s *Views) Applications(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Application, string, error) {
	return list(ctx, s.database, scope, listing[view.Application]{
		name: "applications", keys: []string{"d.tenant", "d.deployment", "d.environment",
			"d.engine"}, scan: scanApplication,
		sql: sqlApplications,
		key: func(a view.Application) []string {
			return []string{string(a.Tenant), string(a.Deployment), string(a.Environment),
				string(a.Engine)}
		},
	}, applicationsFilter(scope, by), page, completeApplications)
}

// sqlApplications reads Applications, of desired d, up to WHERE: see scanApplication.
var sqlApplications = `SELECT d.tenant, d.environment, d.deployment, d.name, d.engine, d.revision, d.body, d.created_at, d.changed_at, ` + sqlApply + `,
			concat_ws('; ', CASE WHEN s.seq = d.seq THEN nullif(s.state_message || ` + sqlWaited + `, '') END, unread.why), coalesce(s.sync, 'Unknown'), coalesce(s.health, 'Unknown'),
			coalesce(s.synced_revision, ''), coalesce(s.operation_phase, ''),
			CASE WHEN s.message <> '' THEN s.message ELSE coalesce(s.operation_error, '') END, coalesce(s.resources, 0), s.observed_at,
			` + sqlImages + `, coalesce(s.uid, ''), r.reason, r.message, r.since, r.parked, coalesce(d.absent AND d.deletion <> 'Orphan' AND r.since < now() - ` + sqlBlockedAfter + `, false)` +
	fromRows +
	`LEFT JOIN reach r ON r.engine = d.engine AND r.tenant = d.tenant AND r.environment = d.environment
			LEFT JOIN ` + sqlUnread + ` unread ON unread.engine = d.engine AND unread.tenant = d.tenant AND unread.deployment = d.deployment`

func applicationsFilter(scope view.Scope, by view.Filter) filter {
	f := filter{conditions: []string{"d.kind = 'Application'"}}
	f.tenants("d.tenant", scope, by.Tenant)
	f.equal("d.environment", string(by.Environment))
	f.equal("d.deployment", string(by.Deployment))
	if f.equal("d.engine", string(by.Engine)); by.Engine == "" {
		f.and("NOT (d.absent AND " + sqlLost + ")")
	}
	f.equal("d.revision", string(by.Revision))
	f.equal("d.name", by.Name)
	f.known("s.sync", string(by.Sync), sqlIsSilent)
	switch by.Health {
	case mirror.HealthDegraded, mirror.HealthMissing, mirror.HealthSuspended:
		f.and("s.health = '" + string(by.Health) + "'") // an index has these few
	}
	f.known("s.health", string(by.Health), sqlIsSilent)
	if by.Apply == mirror.ApplyFailed || by.Apply == mirror.ApplyConflict {
		f.and("s.state = '" + string(by.Apply) + "'")
	}
	f.equal(sqlApply, string(by.Apply))
	if by.Labels != nil {
		f.labels(sqlLabels, by.Labels)
	}
	if by.Image != "" {
		f.image(by.Image)
	}
	if by.Text != "" {
		f.contains("d.tenant || '/' || d.deployment || '@' || d.environment", by.Text)
	}
	return f
}

// sqlLabels are the labels of an Application, of desired d: those of its deployment over those of
// its environment.
const sqlLabels = `(
	coalesce((SELECT e.body -> 'labels' FROM declarations e WHERE e.kind = 'ManagedEnvironment' AND e.tenant = d.tenant AND e.name = d.environment), '{}')
	|| coalesce((SELECT e.body -> 'labels' FROM declarations e WHERE e.kind = 'GitOpsDeployment' AND e.tenant = d.tenant AND e.name = d.deployment), '{}'))`

// sqlImages are the images that the Application of desired d runs.
const sqlImages = `ARRAY(SELECT i.value FROM running i WHERE i.engine = d.engine AND i.name = d.name AND i.kind = 'image' ORDER BY i.value)`

// image requires an image, or a repository with any tag or digest.
func (f *filter) image(image string) {
	exact := f.place(text(image))
	f.and(`(d.engine, d.name) IN (SELECT i.engine, i.name FROM running i WHERE i.kind = 'commit' AND i.value = ` + exact + `
		OR i.kind = 'image' AND (i.value = ` + exact + `
		OR i.value >= ` + f.place(text(image)+":") + ` AND i.value < ` + f.place(text(image)+";") + `
		OR i.value >= ` + f.place(text(image)+"@") + ` AND i.value < ` + f.place(text(image)+"A") + `))`)
}

// contains requires a part of an expression, whatever its case.
func (f *filter) contains(expression, part string) {
	f.and("strpos(lower(" + expression + "), " + f.place(strings.ToLower(text(part))) + ") > 0")
}

// labels requires labels of a jsonb object, as fleet.LabelSelector selects; nil adds no condition.
func (f *filter) labels(expression string, by *fleet.LabelSelector) {
	if by == nil {
		return
	}
	labels := "coalesce(" + expression + ", '{}')"
	if len(by.MatchLabels) == 0 && len(by.MatchExpressions) == 0 {
		f.and("false")
	}
	if len(by.MatchLabels) > 0 {
		f.and(labels + " @> " + f.place(by.MatchLabels) + "::jsonb")
	}
	for _, r := range by.MatchExpressions {
		value := "(" + labels + " ->> " + f.place(text(r.Key)) + ")"
		in := func() string {
			return "coalesce(" + value + " = ANY(" + f.place(column(r.Values, text)) +
				"::text[]), false)"
		}
		switch r.Operator {
		case fleet.SelectorIn:
			f.and(in())
		case fleet.SelectorNotIn:
			f.and("NOT " + in())
		case fleet.SelectorExists:
			f.and(value + " IS NOT NULL")
		case fleet.SelectorDoesNotExist:
			f.and(value + " IS NULL")
		default:
			f.and("false")
		}
	}
}

// sqlLost is whether the engine of desired d is evacuated and has lost the environment.
const sqlLost = `EXISTS (SELECT FROM placements p WHERE p.tenant = d.tenant AND p.environment = d.environment
	AND p.body -> 'evacuated' ? d.engine)`

// sqlSilent is when the engine or the cluster of desired d, with its reach r, was last seen; NULL
// while it is not silent. Its states are from before that time.
const sqlSilent = `least(r.since, silent_since(d.engine))`

// sqlIsSilent is whether sqlSilent is not NULL, for conditions: the silent engines are read once,
// and not for each of many rows.
const sqlIsSilent = `(r.since IS NOT NULL OR d.engine IN (SELECT silent_engines()))`

// known requires a state of a column. A silent engine's or cluster's Applications are Unknown,
// also if they were last observed otherwise.
func (f *filter) known(column, state, silent string) {
	switch state {
	case "":
	case string(mirror.HealthUnknown):
		f.and("(coalesce(" + column + ", 'Unknown') = 'Unknown' OR " + silent + ")")
	default:
		f.equal(column, state)
		f.and("NOT " + silent)
	}
}

// completeApplications adds since when engines are silent, of which each is asked about once, and
// the pull requests of rollbacks.
func completeApplications(ctx context.Context, tx pgx.Tx, all []view.Application) error {
	engines := column(all, func(a view.Application) string { return string(a.Engine) })
	slices.Sort(engines)
	type silent struct {
		engine fleet.EngineName
		since  *time.Time
	}
	found, err := read(ctx, tx, func(row pgx.CollectableRow) (s silent, err error) {
		return s, row.Scan(&s.engine, &s.since)
	}, `SELECT engine, silent_since(engine) FROM unnest($1::text[]) AS engine`,
		slices.Compact(engines))
	if err != nil {
		return err
	}
	since := map[fleet.EngineName]*time.Time{}
	for _, s := range found {
		since[s.engine] = s.since
	}
	for i := range all {
		unseen(&all[i], since[all[i].Engine])
	}
	return addRollbackPulls(ctx, tx, all)
}

// unseen makes the states of an Application unknown since its engine or cluster was last seen.
func unseen(a *view.Application, since *time.Time) {
	if since == nil {
		return
	}
	if a.LastSeenAt == nil || since.Before(*a.LastSeenAt) {
		a.LastSeenAt = since
	}
	a.Sync, a.Health = mirror.SyncUnknown, mirror.HealthUnknown
}

func scanApplication(row pgx.CollectableRow) (view.Application, error) {
	var a view.Application
	var u unreachable
	var body pgtype.DriverBytes // not copied: it is read before the next row
	err := row.Scan(&a.Tenant, &a.Environment, &a.Deployment, &a.Name, &a.Engine, &a.Revision,
		&body, &a.CreatedAt, &a.ChangedAt, &a.Apply,
		&a.ApplyMessage, &a.Sync, &a.Health, &a.SyncedRevision, &a.OperationPhase, &a.Message,
		&a.Resources, &a.ObservedAt, &a.Images,
		&a.UID, &u.reason, &u.message, &u.since, &u.parked, &a.DeletionBlocked)
	a.Unreachable = u.view()
	unseen(&a, u.since)
	if err != nil {
		return a, err
	}
	type source struct {
		RepoURL        string `json:"repoURL"`
		TargetRevision string `json:"targetRevision"`
	}
	var manifest struct {
		Metadata struct {
			Namespace   string `json:"namespace"`
			Name        string `json:"name"`
			Annotations struct {
				Hold fleet.SyncRunName `json:"argosy.dev/hold"`
			} `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			Source  source   `json:"source"`
			Sources []source `json:"sources"`
		} `json:"spec"`
	}
	// We wrote the manifest. An invalid one is no reason to hide its Application.
	_ = json.Unmarshal(body, &manifest)
	first := manifest.Spec.Source
	if a.Sources = len(manifest.Spec.Sources); a.Sources > 0 {
		first = manifest.Spec.Sources[0]
	}
	a.RepoURL, a.TargetRevision = first.RepoURL, first.TargetRevision
	a.Hold = manifest.Metadata.Annotations.Hold
	if m := manifest.Metadata; m.Name != "" && m.Name != a.Name {
		a.Adopted = fleet.JoinObject(m.Namespace, m.Name)
	}
	return a, nil
}
