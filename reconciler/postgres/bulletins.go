package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// Bulletins match Filter.Name, in the order of the Fleet, on one page: a Fleet has at most 50. They
// belong to the platform: a tenant's scope has none.
func (s *Views) Bulletins(ctx context.Context, scope view.Scope, by view.Filter, _ view.Page) (
	all []view.Bulletin, next string, err error) {
	if scope.Tenant != "" {
		return nil, "", nil
	}
	err = s.within(ctx, scope, func(tx pgx.Tx) error {
		declared, err := read(ctx, tx, pgx.RowTo[fleet.Bulletin], `
			SELECT b.body FROM declarations d CROSS JOIN LATERAL
				jsonb_array_elements(coalesce(nullif(d.body #> '{fleet,bulletins}', 'null'), '[]')) WITH ORDINALITY AS b (body, n)
			WHERE d.tenant = '' AND d.kind = 'Fleet' AND $1 IN ('', b.body ->> 'name') ORDER BY b.n`, by.Name)
		if err != nil || len(declared) == 0 {
			return err
		}
		engines, err := read(ctx, tx, pgx.RowToStructByPos[view.EngineVersion], `
			SELECT d.name, coalesce(g.argocd, '') FROM declarations d LEFT JOIN engines g ON g.engine = d.name
			WHERE d.tenant = '' AND d.kind = 'Engine' ORDER BY d.name`)
		for _, b := range declared {
			all = append(all, lacking(b, engines))
		}
		return err
	})
	return all, "", wrap(err, "bulletins")
}

// lacking adds the engines that lack a security release, or may lack it.
func lacking(of fleet.Bulletin, engines []view.EngineVersion) view.Bulletin {
	b := view.Bulletin{Bulletin: of, Lacking: []view.EngineVersion{}, Unknown: []fleet.EngineName{}}
	for _, e := range engines {
		switch {
		case !fleet.KnownVersion(e.Version):
			b.Unknown = append(b.Unknown, e.Engine)
		case of.Lacks(e.Version):
			b.Lacking = append(b.Lacking, e)
		}
	}
	return b
}
