package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// sqlCredentialStates are the states of the Secrets of credentials, by tenant, secret and engine.
// The engines are those of the tenant's environments: desired_credential begins with the engine.
const sqlCredentialStates = `
	SELECT k.tenant, k.secret, d.engine, CASE WHEN s.seq = d.seq THEN s.state ELSE 'Pending' END,
		CASE WHEN s.seq = d.seq THEN coalesce(s.state_message, '') ELSE '' END
	FROM (SELECT DISTINCT tenant, secret FROM unnest($1::text[], $2::text[]) AS k (tenant, secret)) AS k
	CROSS JOIN LATERAL (SELECT DISTINCT p.engine FROM placements p WHERE p.tenant = k.tenant) AS e
	JOIN desired d ON d.engine = e.engine AND d.credential_tenant = k.tenant AND d.credential_name = k.secret
		AND d.kind = 'Repository' AND NOT d.absent
	LEFT JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name
	GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5`

// credentialStates are the states of a credential, the first of which it has.
var credentialStates = []mirror.ApplyState{mirror.ApplyFailed, mirror.ApplyConflict,
	mirror.ApplyDeleting, mirror.ApplyPending, mirror.ApplyApplied}

// Credentials match Filter.{Tenant, Name}, by tenant and name. Credentials that name the same
// secret have one state.
func (s *Views) Credentials(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Credential, string, error) {
	f := filter{conditions: []string{"d.kind = 'RepositoryCredential'"}}
	f.tenants("d.tenant", scope, by.Tenant)
	f.equal("d.name", by.Name)
	return list(ctx, s.database, scope, listing[view.Credential]{
		name: "credentials", keys: []string{"d.tenant", "d.name"},
		sql: `SELECT d.tenant, d.name, d.path, d.body -> 'credential' FROM declarations d`,
		scan: func(row pgx.CollectableRow) (c view.Credential, err error) {
			var spec fleet.CredentialSpec
			err = row.Scan(&c.Tenant, &c.Name, &c.Path, &spec)
			c.RepoURL, c.Type, c.Secret = spec.RepoURL, spec.TypeOf(), spec.CredentialsRef.Name
			c.Engines = []fleet.EngineName{}
			return c, err
		},
		key: func(c view.Credential) []string {
			return []string{string(c.Tenant), string(c.Name)}
		},
	}, f, page, completeCredentials)
}

// credentialState is the state of a secret on one engine.
type credentialState struct {
	Tenant, Secret string
	Engine         fleet.EngineName
	State          mirror.ApplyState
	Message        string
}

func completeCredentials(ctx context.Context, tx pgx.Tx, all []view.Credential) error {
	states, err := read(ctx, tx, pgx.RowToStructByPos[credentialState], sqlCredentialStates,
		column(all, func(c view.Credential) string { return string(c.Tenant) }),
		column(all, func(c view.Credential) string { return c.Secret }))
	if err != nil {
		return err
	}
	worse := func(a, b mirror.ApplyState) bool {
		return slices.Index(credentialStates, a) < slices.Index(credentialStates, b)
	}
	for i := range all {
		c := &all[i]
		for _, s := range states {
			if s.Tenant != string(c.Tenant) || s.Secret != c.Secret {
				continue
			}
			if !slices.Contains(c.Engines, s.Engine) {
				c.Engines = append(c.Engines, s.Engine)
			}
			if c.State == "" || worse(s.State, c.State) {
				c.State, c.Message = s.State, s.Message
			}
		}
	}
	return nil
}

// Policies match Filter.Name, by name. A tenant sees those that evaluate its declarations, without
// the expressions and the list of tenants, which may name others.
func (s *Views) Policies(ctx context.Context, scope view.Scope, by view.Filter,
	page view.Page) ([]view.Policy, string, error) {
	f := filter{conditions: []string{"d.tenant = ''", "d.kind = 'Policy'"}}
	f.equal("d.name", by.Name)
	if scope.Tenant != "" {
		f.and(`(coalesce(jsonb_array_length(d.body #> '{policy,tenants}'), 0) = 0 OR d.body #> '{policy,tenants}' ? ` +
			f.place(text(string(scope.Tenant))) + `)`)
	}
	// within the platform: the row policies hide its declarations from tenants
	return list(ctx, s.database, view.Scope{}, listing[view.Policy]{
		name: "policies", keys: []string{"d.name"},
		sql: `SELECT d.name, d.path, d.body -> 'policy' FROM declarations d`,
		scan: func(row pgx.CollectableRow) (p view.Policy, err error) {
			err = row.Scan(&p.Name, &p.Path, &p.PolicySpec)
			p.Severity = p.Weight()
			if scope.Tenant != "" {
				p = p.ForTenant()
			}
			return p, err
		},
		key: func(p view.Policy) []string { return []string{p.Name} },
	}, f, page, nil)
}
