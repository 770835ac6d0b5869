package postgres

// sqlProblems are the problems of the config repo, and those of workers with an unusable
// credential.
const sqlProblems = `(
	SELECT path, kind, tenant, name, n, body, severity FROM problems
	UNION ALL SELECT * FROM ` + sqlUnusables + ` AS unusable
)`

// sqlUnusables are the unusable credentials, by the declaration that refers to them. Failures are
// few, and are found by the rows with a credential (desired_credential).
const sqlUnusables = `(
	SELECT c.path, c.kind, c.tenant, c.name, 1000 AS n, ` + sqlUnusable + ` AS body, 'error' AS severity
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'ManagedEnvironment' AND c.tenant = d.tenant AND c.name = d.environment
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Cluster' AND NOT d.absent
	GROUP BY c.path, c.kind, c.tenant, c.name
	UNION ALL
	SELECT c.path, c.kind, c.tenant, c.name, 1000, ` + sqlUnusable + `, 'error'
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'RepositoryCredential' AND c.tenant = d.tenant
		AND c.body->'credential'->'credentialsRef'->>'name' = d.credential_name
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Repository' AND NOT d.absent
	GROUP BY c.path, c.kind, c.tenant, c.name
)`

// sqlUnusable is a fleet.Problem of declaration c, whose object's worker failed.
const sqlUnusable = `jsonb_build_object(
		'key', jsonb_build_object('kind', c.kind, 'tenant', c.tenant, 'name', c.name), 'path', c.path, 'severity', 'error', 'code', 'unusable-credential',
		'field', CASE c.kind WHEN 'ManagedEnvironment' THEN 'spec.cluster.credentialsRef.name' ELSE 'spec.credentialsRef.name' END,
		'message', 'the engine has not got the secret ' || max(d.credential_name) || ': ' || max(s.state_message),
		'fix', 'correct the secret; it is read again by itself')`

// sqlWaited continues "waits for Cluster x on engine y" with the reason why that Cluster is not
// written.
const sqlWaited = `coalesce((
		SELECT ', whose secret ' || coalesce(c.credential_name, '') || ' cannot be used: ' || w.state_message
		FROM desired c JOIN status w ON w.engine = c.engine AND w.kind = c.kind AND w.name = c.name AND w.seq = c.seq AND w.state = 'Failed'
		WHERE c.engine = d.engine AND c.kind = 'Cluster' AND c.tenant = d.tenant
			AND c.name = substring(s.state_message FROM '^waits for Cluster ([^ ]+) on engine')), '')`

// sqlUnread is, by engine, tenant and deployment, why the credential of the deployment's repository
// is unusable. It is computed once for a list: failures are few.
const sqlUnread = `(
	SELECT d.engine, d.tenant, g.name AS deployment,
		'the secret ' || max(d.credential_name) || ' of its repository cannot be used: ' || max(s.state_message) AS why
	FROM desired d JOIN status s ON s.engine = d.engine AND s.kind = d.kind AND s.name = d.name AND s.seq = d.seq AND s.state = 'Failed'
	JOIN declarations c ON c.kind = 'RepositoryCredential' AND c.tenant = d.tenant
		AND c.body->'credential'->'credentialsRef'->>'name' = d.credential_name
	JOIN declarations g ON g.kind = 'GitOpsDeployment' AND g.tenant = d.tenant
		AND g.body->'deployment'->'source'->>'repoURL' = c.body->'credential'->>'repoURL'
	WHERE d.credential_name IS NOT NULL AND d.kind = 'Repository' AND NOT d.absent
	GROUP BY 1, 2, 3
)`
