package postgres

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// tenantSteps gives a new tenant a uid, and ends that of a removed one: a tenant that is created
// again with the same name inherits no token, no history and no status.
func tenantSteps(r *mirror.Record) ([]step, error) {
	var gone, there []string
	for _, k := range r.Removed {
		if k.Kind == fleet.KindTenant {
			gone = append(gone, k.Name)
		}
	}
	for _, d := range r.Declarations {
		if d.Key.Kind == fleet.KindTenant {
			there = append(there, d.Key.Name)
		}
	}
	var steps []step
	if len(gone) > 0 {
		steps = append(steps,
			step{
				`UPDATE tokens SET revoked_at = now() WHERE tenant = ANY($1::text[]) AND revoked_at IS NULL`, []any{gone}},
			step{
				`UPDATE agent_tokens SET revoked_at = now() WHERE tenant = ANY($1::text[]) AND revoked_at IS NULL`, []any{gone}},
			step{
				`UPDATE tenants SET removed_at = now() WHERE tenant = ANY($1::text[]) AND removed_at IS NULL`, []any{gone}})
	}
	if len(there) > 0 {
		steps = append(steps, step{`
			WITH born AS (
				INSERT INTO tenants (tenant) SELECT unnest($1::text[]) ON CONFLICT (tenant) WHERE removed_at IS NULL DO NOTHING RETURNING tenant)
			DELETE FROM status s USING born WHERE s.tenant = born.tenant`, []any{there}})
		steps = append(steps, formerAgents(there)...)
	}
	return steps, nil
}

func declarationSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if len(r.Removed) > 0 {
		steps = append(steps, step{`
			DELETE FROM declarations d USING unnest($1::text[], $2::text[], $3::text[]) AS k (kind, tenant, name)
			WHERE d.kind = k.kind AND d.tenant = k.tenant AND d.name = k.name`, keyColumns(r.Removed)})
	}
	for part := range chunks(r.Declarations) {
		bodies, err := encoded(part)
		if err != nil {
			return nil, err
		}
		args := append(
			keyColumns(column(part, func(d fleet.Declaration) fleet.Key { return d.Key })),
			column(part, func(d fleet.Declaration) string { return text(d.Path) }),
			column(part, func(d fleet.Declaration) string { return d.Blob }), bodies)
		steps = append(steps, step{`
			INSERT INTO declarations (kind, tenant, name, path, blob, body)
			SELECT kind, tenant, name, path, blob, body::jsonb
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) AS d (kind, tenant, name, path, blob, body)
			ON CONFLICT (kind, tenant, name) DO UPDATE SET path = excluded.path, blob = excluded.blob, body = excluded.body`, args})
	}
	engines, err := engineSteps(r)
	return append(steps, engines...), err
}

// engineSteps stores the specs of engines, which outlive their declarations. A new engine has no
// objects, unless the database went back in time: then the engine may only be new to it. An empty
// mirror does not need to know, since a recovery reads its engines.
func engineSteps(r *mirror.Record) ([]step, error) {
	var names []string
	var specs []*fleet.EngineSpec
	for i := range r.Declarations {
		if d := &r.Declarations[i]; d.Key.Kind == fleet.KindEngine && d.Engine != nil {
			names, specs = append(names, d.Key.Name), append(specs, d.Engine)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	bodies, err := encoded(specs)
	return []step{{`
		INSERT INTO engines AS e (engine, spec, inventoried)
			SELECT engine, spec::jsonb, CASE WHEN m.applied = '' OR m.confirmed_in = incarnation() THEN incarnation() ELSE '' END
			FROM unnest($1::text[], $2::text[]) AS n (engine, spec), mirror m
		ON CONFLICT (engine) DO UPDATE SET spec = excluded.spec WHERE e.spec IS DISTINCT FROM excluded.spec`, []any{names, bodies}}}, err
}

// sealedSteps keeps the SOPS-encrypted files that a declaration or an object refers to, and no
// other. It runs after the steps that write the two.
func sealedSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if len(r.Sealed) > 0 {
		steps = append(steps, step{`
			INSERT INTO sealed (blob, tenant, bytes) SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[]) ON CONFLICT DO NOTHING`, []any{
			column(r.Sealed, func(b mirror.SealedBlob) string { return b.Blob }),
			column(r.Sealed, func(b mirror.SealedBlob) string { return string(b.Tenant) }),
			column(r.Sealed, func(b mirror.SealedBlob) []byte { return b.Bytes })}})
	}
	touched := map[fleet.TenantName]bool{}
	for i := range r.Sealed {
		touched[r.Sealed[i].Tenant] = true
	}
	for _, k := range r.Removed {
		if k.Kind == fleet.KindSealedSecret {
			touched[k.Tenant] = true
		}
	}
	if len(touched) > 0 {
		steps = append(steps, step{`
			DELETE FROM sealed s
			WHERE s.tenant = ANY($1::text[])
			  AND NOT EXISTS (SELECT FROM declarations d WHERE d.kind = 'SealedSecret' AND d.tenant = s.tenant AND d.blob = s.blob)
			  AND (SELECT d.seq FROM desired d WHERE d.credential_sealed = s.blob AND d.credential_sealed <> '' LIMIT 1) IS NULL`,
			[]any{
				column(sortedKeys(touched), func(t fleet.TenantName) string { return string(t) })}})
	}
	return steps, nil
}

// problemSteps replaces the problems of every declaration that the record lists.
func problemSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if named := namedKeys(r); len(named) > 0 {
		steps = append(steps, step{`
			DELETE FROM problems p USING unnest($1::text[], $2::text[], $3::text[]) AS k (kind, tenant, name)
			WHERE p.kind = k.kind AND p.tenant = k.tenant AND p.name = k.name`, keyColumns(named)})
	}
	if len(r.Problems) > 0 {
		bodies, err := encoded(r.Problems)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{`
			INSERT INTO problems (kind, tenant, name, path, severity, body, n)
			SELECT kind, tenant, name, path, severity, body::jsonb, n
			FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[]) WITH ORDINALITY AS p (kind, tenant, name, path, severity, body, n)`,
			append(keyColumns(column(r.Problems, func(p fleet.Problem) fleet.Key { return p.Key })),
				column(r.Problems, func(p fleet.Problem) string {
					return cut(text(p.Path), maxPath)
				}),
				column(r.Problems, func(p fleet.Problem) string { return string(p.Severity) }),
				bodies)})
	}
	if len(r.Cleared) > 0 {
		steps = append(steps, step{`
			DELETE FROM quarantines q USING unnest($1::text[], $2::text[], $3::text[]) AS k (kind, tenant, name)
			WHERE q.kind = k.kind AND q.tenant = k.tenant AND q.name = k.name`, keyColumns(r.Cleared)})
	}
	if len(r.Quarantined) > 0 {
		bodies, err := encoded(r.Quarantined)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{`
			INSERT INTO quarantines (kind, tenant, name, body)
			SELECT kind, tenant, name, body::jsonb FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS q (kind, tenant, name, body)
			ON CONFLICT (kind, tenant, name) DO UPDATE SET body = excluded.body`,
			append(keyColumns(column(r.Quarantined, func(q fleet.Quarantine) fleet.Key {
				return q.Key
			})), bodies)})
	}
	return steps, nil
}

// namedKeys are the evaluated declarations, each once.
func namedKeys(r *mirror.Record) []fleet.Key {
	seen := make(map[fleet.Key]bool, len(r.Declarations))
	var keys []fleet.Key
	add := func(k fleet.Key) {
		if !seen[k] {
			seen[k] = true
			keys = append(keys, k)
		}
	}
	for i := range r.Declarations {
		add(r.Declarations[i].Key)
	}
	for i := range r.Quarantined {
		add(r.Quarantined[i].Key)
	}
	for _, list := range [][]fleet.Key{r.Removed, r.Cleared, r.Checked} {
		for _, k := range list {
			add(k)
		}
	}
	for i := range r.Problems {
		add(r.Problems[i].Key)
	}
	return keys
}

// keptAlternatives is the number of rejected engines that are stored with a placement, best first,
// as an explanation for people.
const keptAlternatives = 5

func placementSteps(r *mirror.Record) ([]step, error) {
	var steps []step
	if len(r.Unplaced) > 0 {
		steps = append(steps, step{`
			DELETE FROM placements p USING unnest($1::text[], $2::text[], $3::text[]) AS e (tenant, environment, slice)
			WHERE p.tenant = e.tenant AND p.environment = e.environment AND p.slice = e.slice`, []any{
			column(r.Unplaced, func(id fleet.SliceID) string { return string(id.Tenant) }),
			column(r.Unplaced, func(id fleet.SliceID) string { return string(id.Environment) }),
			column(r.Unplaced, func(id fleet.SliceID) string { return string(id.Slice) })}})
	}
	var whole, parts []fleet.Placement
	for _, p := range r.Placements {
		if p.Slice == "" {
			whole = append(whole, p)
		} else {
			parts = append(parts, p)
		}
	}
	for _, part := range [][]fleet.Placement{whole, parts} {
		if len(part) == 0 {
			continue
		}
		place, err := placeStep(part)
		if err != nil {
			return nil, err
		}
		steps = append(steps, place)
	}
	return steps, nil
}

// placeStep stores placements, either of whole environments or of slices.
func placeStep(all []fleet.Placement) (step, error) {
	bodies, err := encoded(column(all, func(p fleet.Placement) fleet.Placement {
		p.Alternatives = nil
		return p
	}))
	if err != nil {
		return step{}, err
	}
	others, err := encoded(column(all, func(p fleet.Placement) []fleet.Alternative {
		return append([]fleet.Alternative{},
			p.Alternatives[:min(len(p.Alternatives), keptAlternatives)]...)
	}))
	if err != nil {
		return step{}, err
	}
	table, key := tableOf("placements", all[0].Slice)
	return step{`
		INSERT INTO ` + table + ` (tenant, environment, slice, engine, applications, body, alternatives)
		SELECT tenant, environment, slice, engine, applications, body::jsonb, alternatives::jsonb
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[])
			AS p (tenant, environment, slice, engine, applications, body, alternatives)
		ON CONFLICT ` + key + ` DO UPDATE SET
			engine = excluded.engine, applications = excluded.applications, body = excluded.body, alternatives = excluded.alternatives`, []any{
		column(all, func(p fleet.Placement) string { return string(p.Environment.Tenant) }),
		column(all, func(p fleet.Placement) string { return string(p.Environment.Name) }),
		column(all, func(p fleet.Placement) string { return string(p.Slice) }),
		column(all, func(p fleet.Placement) string { return string(p.Engine) }),
		column(all, func(p fleet.Placement) int32 { return int32(p.Applications) }),
		bodies, others}}, nil
}

// agentSteps updates agents after their declarations: sessions of agents whose declaration is new,
// changed or deleted have to start again, the lease of an engine that its agent no longer serves is
// released, and own Applications of a cluster that is no longer autonomous are deleted. It runs
// after the steps that write declarations.
func agentSteps(r *mirror.Record) ([]step, error) {
	var named []fleet.Key
	add := func(k fleet.Key) {
		switch k.Kind {
		case fleet.KindEngine, fleet.KindManagedEnvironment:
			named = append(named, k)
		}
	}
	for i := range r.Declarations {
		add(r.Declarations[i].Key)
	}
	for _, k := range r.Removed {
		add(k)
	}
	if len(named) == 0 {
		return nil, nil
	}
	args := []any{column(named, func(k fleet.Key) string { return string(k.Tenant) }),
		column(named, func(k fleet.Key) string { return k.Name })}
	return []step{{sqlFreeLeases, args}, {sqlNewGeneration, args}, {sqlEndOwn, args}}, nil
}

const (
	sqlNamed = `unnest($1::text[], $2::text[]) AS k (tenant, name)`

	sqlFreeLeases = `
		UPDATE leases l SET holder = '', epoch = l.epoch + 1, expires_at = '-infinity'
		FROM ` + sqlNamed + ` JOIN agents a ON a.tenant = k.tenant AND a.name = k.name AND a.ended_at IS NULL
		WHERE l.name = 'engine/' || a.engine AND starts_with(l.holder, 'agent/') AND agent_stand(a.tenant, a.name) <> 'declared'`

	sqlNewGeneration = `
		UPDATE agents a SET generation = generation + 1, changed_at = clock_timestamp(), declared = agent_stand(a.tenant, a.name) = 'declared'
		FROM ` + sqlNamed + ` WHERE a.tenant = k.tenant AND a.name = k.name AND a.ended_at IS NULL`

	sqlEndOwn = `
		WITH over AS (
			SELECT k.tenant, k.name FROM ` + sqlNamed + ` WHERE k.tenant <> '' AND NOT EXISTS (
				SELECT FROM declarations d WHERE d.kind = 'ManagedEnvironment' AND d.tenant = k.tenant AND d.name = k.name
					AND d.body #>> '{environment,agent,mode}' = 'autonomous')),
		gone AS (DELETE FROM own_applications o USING over v WHERE o.tenant = v.tenant AND o.environment = v.name),
		ended AS (
			UPDATE syncs q SET state = 'Failed', message = 'the environment is no longer autonomous' FROM over v
			WHERE q.tenant = v.tenant AND q.environment = v.name AND q.deployment = '' AND q.state IN ('Pending', 'Running') RETURNING q.operation)
		UPDATE operations o SET state = 'Failed', message = 'the environment is no longer autonomous', ended_at = now() FROM ended e WHERE o.id = e.operation`
)

// formerAgents ends agents of earlier tenants with these names: no tenant inherits an agent, and no
// agent serves another tenant.
func formerAgents(names []string) []step {
	args := []any{names}
	return []step{
		{
			`UPDATE leases l SET holder = '', epoch = l.epoch + 1, expires_at = '-infinity' FROM agents a
			WHERE a.tenant = ANY($1::text[]) AND a.ended_at IS NULL AND NOT still_of(a.tenant, a.tenant_uid) AND l.name = 'engine/' || a.engine`, args},
		{`WITH ended AS (
				UPDATE agents a SET ended_at = clock_timestamp(), ended = 'revoked', connected_to = ''
				WHERE a.tenant = ANY($1::text[]) AND a.ended_at IS NULL AND NOT still_of(a.tenant, a.tenant_uid) RETURNING a.id)
			DELETE FROM agent_access t USING ended e WHERE t.agent = e.id`, args},
		{
			`DELETE FROM own_applications o WHERE o.tenant = ANY($1::text[]) AND NOT still_of(o.tenant, o.tenant_uid)`, args},
	}
}
