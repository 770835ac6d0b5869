package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// SetListings records the status of listed repositories: the commit that was read last, and why the
// last read failed. A status that ended is removed, and one without news writes nothing.
func (s *Plans) SetListings(ctx context.Context, status []mirror.ListingStatus) error {
	var gone, now []mirror.ListingStatus
	for _, l := range status {
		if l.Ended {
			gone = append(gone, l)
		} else {
			now = append(now, l)
		}
	}
	tenant := func(l mirror.ListingStatus) string { return text(string(l.Tenant)) }
	url := func(l mirror.ListingStatus) string { return text(l.RepoURL) }
	revision := func(l mirror.ListingStatus) string { return text(l.TargetRevision) }
	err := s.atomically(ctx, func(b *pgx.Batch) {
		if len(gone) > 0 {
			b.Queue(`
				DELETE FROM listings WHERE (tenant, repo_url, target_revision) IN (
					SELECT * FROM unnest($1::text[], $2::text[], $3::text[]))`,
				column(gone, tenant), column(gone, url), column(gone, revision))
		}
		if len(now) > 0 {
			b.Queue(sqlListed, column(now, tenant), column(now, url), column(now, revision),
				column(now, func(l mirror.ListingStatus) string { return string(l.Commit) }),
				column(now, func(l mirror.ListingStatus) string { return message(l.Error) }))
		}
	})
	return wrap(err, "status of %d listed repositories", len(status))
}

const sqlListed = `
	INSERT INTO listings AS l (tenant, repo_url, target_revision, tenant_uid, commit, error, since)
	SELECT n.tenant, n.url, n.revision, live_tenant(n.tenant), n.commit, n.error, CASE WHEN n.error <> '' THEN now() END
	FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[]) AS n (tenant, url, revision, commit, error)
	ON CONFLICT (tenant, repo_url, target_revision) DO UPDATE SET tenant_uid = excluded.tenant_uid, commit = excluded.commit,
		error = excluded.error,
		changed_at = CASE WHEN l.commit = excluded.commit THEN l.changed_at ELSE now() END,
		since = CASE WHEN excluded.error = '' THEN NULL WHEN l.error = '' THEN now() ELSE l.since END
	WHERE (l.commit, l.error) <> (excluded.commit, excluded.error) OR l.tenant_uid IS DISTINCT FROM excluded.tenant_uid`

// Listings is the status of all listed repositories.
func (s *Plans) Listings(ctx context.Context) (all []mirror.ListingStatus, err error) {
	err = s.within(ctx, view.Scope{}, func(tx pgx.Tx) error {
		all, err = read(ctx, tx, func(row pgx.CollectableRow) (l mirror.ListingStatus, err error) {
			err = row.Scan(&l.Tenant, &l.RepoURL, &l.TargetRevision, &l.Commit, &l.Error)
			return l, err
		}, `SELECT tenant, repo_url, target_revision, commit, error FROM listings
			WHERE tenant_uid IS NOT DISTINCT FROM live_tenant(tenant)
			ORDER BY tenant, repo_url, target_revision`)
		return err
	})
	return all, wrap(err, "status of listed repositories")
}

// listingsOf returns the listings of sets, by tenant and set.
func listingsOf(ctx context.Context, tx pgx.Tx, sets []pair) (map[pair][]view.Listing, error) {
	if len(sets) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT s.tenant, s.name, l #>> '{request,repoURL}', l #>> '{request,targetRevision}', l ->> 'commit',
			coalesce(r.commit, ''), CASE WHEN r.commit <> '' THEN r.changed_at END, coalesce(r.error, ''), r.since
		FROM declarations s CROSS JOIN LATERAL jsonb_array_elements(s.body #> '{set,listings}') WITH ORDINALITY AS x (l, n)
		LEFT JOIN listings r ON r.tenant = s.tenant AND r.repo_url = l #>> '{request,repoURL}'
			AND r.target_revision = l #>> '{request,targetRevision}' AND r.tenant_uid = live_tenant(r.tenant)
		WHERE s.kind = 'GitOpsDeploymentSet' AND (s.tenant, s.name) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY s.tenant, s.name, x.n`, firsts(sets), seconds(sets))
	if err != nil {
		return nil, err
	}
	out := map[pair][]view.Listing{}
	var p pair
	var v view.Listing
	_, err = pgx.ForEachRow(rows, []any{&p[0], &p[1], &v.RepoURL, &v.TargetRevision, &v.Commit,
		&v.Head, &v.HeadAt, &v.Error, &v.Since}, func() error {
		out[p] = append(out[p], v)
		return nil
	})
	return out, err
}

// Sets match Filter.{Tenant, Name}, by tenant and name.
func (s *Views) Sets(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Set, string, error) {
	f := filter{conditions: []string{"e.kind = 'GitOpsDeploymentSet'"}}
	f.tenants("e.tenant", scope, by.Tenant)
	f.equal("e.name", by.Name)
	return list(ctx, s.database, scope, listing[view.Set]{
		name: "sets", keys: []string{"e.tenant", "e.name"}, scan: scanSet,
		sql: `SELECT e.tenant, e.name, ARRAY(SELECT g ->> 'name' FROM jsonb_array_elements(e.body #> '{set,generated}') g)
			FROM declarations e`,
		key: func(v view.Set) []string { return []string{string(v.Tenant), v.Name} },
	}, f, page, completeSets)
}

func scanSet(row pgx.CollectableRow) (v view.Set, err error) {
	err = row.Scan(&v.Tenant, &v.Name, &v.Deployments)
	return v, err
}

// completeSets adds listings and problems. The problems of the deployments of a set are in its
// file.
func completeSets(ctx context.Context, tx pgx.Tx, sets []view.Set) error {
	names := column(sets, func(v view.Set) pair { return pair{string(v.Tenant), v.Name} })
	listings, err := listingsOf(ctx, tx, names)
	if err != nil {
		return err
	}
	problems, err := tally(ctx, tx, names, `
		SELECT e.tenant, e.name, count(*) FROM declarations e JOIN problems p ON p.tenant = e.tenant AND p.path = e.path
		WHERE e.kind = 'GitOpsDeploymentSet' AND (e.tenant, e.name) IN (SELECT * FROM unnest($1::text[], $2::text[])) GROUP BY 1, 2`)
	if err != nil {
		return err
	}
	for i := range sets {
		sets[i].Listings, sets[i].Problems = listings[names[i]], problems[names[i]]
	}
	return nil
}
