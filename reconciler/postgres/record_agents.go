package postgres

import (
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

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
