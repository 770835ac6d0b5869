package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

const (
	maxTerms = 5 // of a search's text; the rest is ignored
	// entries of an index that one term may read for each kind, so that a search costs the same in
	// any fleet
	maxWordsRead   = 500
	maxRunningRead = 20_000
	minCommit      = 4 // digits of a commit
	pullsSearched  = 500
)

// Search finds objects of the scope: see ADR 0095. Each part reads the beginning of a range of an
// index, at most maxWordsRead or maxRunningRead entries.
func (s *Views) Search(ctx context.Context, scope view.Scope, query string,
	limit int) (view.SearchResult, error) {
	found := search{scope: scope}
	result := view.SearchResult{Query: query, Hits: []view.Hit{}}
	if found.whole = strings.ToLower(strings.TrimSpace(text(query))); found.whole == "" {
		return result, nil
	}
	if len(query) > view.MaxSearchText {
		return result, fmt.Errorf("search: the text has %d bytes; at most %d are allowed",
			len(query), view.MaxSearchText)
	}
	found.terms = termsOf(found.whole)
	err := s.within(ctx, scope, func(tx pgx.Tx) error {
		found.ranked = nil
		for _, part := range []func(context.Context, pgx.Tx) error{found.declarations,
			found.applications, found.running, found.revisions, found.pulls, found.operations,
			found.rings} {
			if err := part(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return result, fmt.Errorf("search: %w", err)
	}
	result.Hits, result.More = found.best(limit)
	return result, nil
}

// termsOf splits a text at blanks and at the separators of tenant/deployment@environment.
func termsOf(text string) []string {
	terms := strings.FieldsFunc(text, func(r rune) bool {
		return r == ' ' || r == '\t' || r == '/' || r == '@'
	})
	slices.Sort(terms)
	terms = slices.Compact(terms)
	return terms[:min(len(terms), maxTerms)]
}

// search collects the hits of one text.
type search struct {
	scope  view.Scope
	whole  string   // the text in lower case
	terms  []string // of it
	ranked []rankedHit
}

// rankedHit is a hit with its rank: 0, the name is the text; 1, it begins with it; 2, one of its
// words does; 3, everything else.
type rankedHit struct {
	view.Hit
	rank int
}

func (s *search) add(h view.Hit, name string) {
	rank := 3
	switch name = strings.ToLower(name); {
	case name == s.whole || slices.Contains(s.terms, name):
		rank = 0
	case strings.HasPrefix(name, s.whole):
		rank = 1
	case slices.ContainsFunc(s.terms, func(t string) bool { return strings.HasPrefix(name, t) }):
		rank = 2
	}
	s.ranked = append(s.ranked, rankedHit{h, rank})
}

// ends returns, for each beginning, the text that follows every text with that beginning: the
// database compares text by its bytes, and U+10FFFF is the last character.
func ends(beginnings []string) []string {
	return column(beginnings, func(s string) string { return s + "\U0010ffff" })
}

// kindsOfHits are the kinds of declarations that a search finds; Agent is an environment's.
var kindsOfHits = map[string]view.HitKind{
	string(fleet.KindTenant):              view.HitTenant,
	string(fleet.KindManagedEnvironment):  view.HitEnvironment,
	string(fleet.KindGitOpsDeployment):    view.HitDeployment,
	string(fleet.KindGitOpsDeploymentSet): view.HitSet,
	string(fleet.KindEngine):              view.HitEngine,
	string(fleet.KindEnginePool):          view.HitPool,
	"Agent":                               view.HitAgent,
}

// sqlOthers is whether every term is a part of an expression.
func sqlOthers(terms, expression string) string {
	return "NOT EXISTS (SELECT FROM unnest(" + terms + "::text[]) AS o (term) WHERE strpos(lower(" +
		expression + "), o.term) = 0)"
}

// declarations finds declarations by the words of their names.
func (s *search) declarations(ctx context.Context, tx pgx.Tx) error {
	var f filter
	terms, next := f.place(s.terms), f.place(ends(s.terms))
	f.and("w.kind = k.kind AND w.word >= t.term AND w.word < t.next")
	f.tenants("w.tenant", s.scope, "")
	f.and(sqlOthers(terms, "w.tenant || '/' || w.name"))
	kinds := []string{}
	for kind := range kindsOfHits {
		kinds = append(kinds, kind)
	}
	rows, err := tx.Query(ctx, `
		SELECT DISTINCT found.kind, found.tenant, found.name, coalesce(p.engine, '')
		FROM unnest(`+f.place(kinds)+`::text[]) AS k (kind)
			CROSS JOIN unnest(`+terms+`::text[], `+next+`::text[]) AS t (term, next)
			CROSS JOIN LATERAL (SELECT w.kind, w.tenant, w.name FROM search_words w`+f.where()+`
				ORDER BY w.word LIMIT `+strconv.Itoa(maxWordsRead)+`) AS found
			LEFT JOIN placements p ON found.kind = 'ManagedEnvironment' AND p.tenant = found.tenant AND p.environment = found.name`,
		f.args...)
	if err != nil {
		return err
	}
	var kind, tenant, name, engine string
	_, err = pgx.ForEachRow(rows, []any{&kind, &tenant, &name, &engine}, func() error {
		h := view.Hit{Kind: kindsOfHits[kind], Tenant: fleet.TenantName(tenant), Name: name}
		switch h.Kind {
		case view.HitEnvironment:
			h.Environment, h.Title = fleet.EnvironmentName(name), engine
		case view.HitDeployment:
			h.Deployment = fleet.DeploymentName(name)
		case view.HitAgent:
			h.Environment = fleet.EnvironmentName(name)
			h.Name = string(fleet.AgentEngine(fleet.EnvironmentID{Tenant: h.Tenant,
				Name: h.Environment}))
		}
		s.add(h, name)
		return nil
	})
	return err
}

// applications finds Applications by the words of their deployment, where the other terms are parts
// of the tenant or the environment, and by the beginning of their object's name.
func (s *search) applications(ctx context.Context, tx pgx.Tx) error {
	var f, byName filter
	terms, next := f.place(s.terms), f.place(ends(s.terms))
	f.and("w.kind = 'GitOpsDeployment' AND w.word >= t.term AND w.word < t.next")
	f.tenants("w.tenant", s.scope, "")
	byName.args = f.args
	byName.and("d.kind = 'Application' AND NOT d.absent AND d.name >= " + byName.place(s.whole) +
		" AND d.name < " + byName.place(ends([]string{s.whole})[0]))
	byName.tenants("d.tenant", s.scope, "")
	rows, err := tx.Query(ctx, `
		SELECT d.tenant, d.deployment, d.environment, ''
		FROM (SELECT DISTINCT found.tenant, found.name
			FROM unnest(`+terms+`::text[], `+next+`::text[]) AS t (term, next)
			CROSS JOIN LATERAL (SELECT w.tenant, w.name FROM search_words w`+f.where()+`
				ORDER BY w.word LIMIT `+strconv.Itoa(maxWordsRead)+`) AS found) AS e
			JOIN desired d ON d.kind = 'Application' AND NOT d.absent AND d.tenant = e.tenant AND d.deployment = e.name
		WHERE `+sqlOthers(terms, "d.tenant || '/' || d.deployment || '@' || d.environment")+`
		UNION (SELECT d.tenant, d.deployment, d.environment, d.name FROM desired d`+byName.where()+`
			ORDER BY d.name LIMIT `+strconv.Itoa(view.MaxHits+1)+`)
		LIMIT `+strconv.Itoa(maxWordsRead), byName.args...)
	if err != nil {
		return err
	}
	var id fleet.ApplicationID
	var object string
	_, err = pgx.ForEachRow(rows, []any{&id.Tenant, &id.Deployment, &id.Environment, &object},
		func() error {
			name := string(id.Deployment)
			if len(s.terms) > 1 || object != "" {
				name = cmp.Or(object, id.String())
			}
			s.add(view.Hit{Kind: view.HitApplication, Tenant: id.Tenant,
				Environment: id.Environment, Deployment: id.Deployment, Name: id.String()}, name)
			return nil
		})
	return err
}

// running finds images and commits that Applications run.
func (s *search) running(ctx context.Context, tx pgx.Tx) error {
	if strings.ContainsAny(s.whole, " \t") || len(s.whole) < 2 {
		return nil
	}
	var f filter
	from, to := f.place(s.whole), f.place(ends([]string{s.whole})[0])
	within := ""
	if s.scope.Tenant != "" {
		within = " AND r.tenant = " + f.place(text(string(s.scope.Tenant)))
	}
	limit := strconv.Itoa(maxRunningRead)
	commits := `'` + runningImage + `'`
	if len(s.whole) >= minCommit {
		commits += `, '` + runningCommit + `'`
	}
	part := func(column, kinds string) string {
		return `(SELECT r.kind, r.value, r.tenant, '` + column + `' AS matched FROM running r
			WHERE r.` + column + ` >= ` + from + ` AND r.` + column + ` < ` + to + kinds +
			within + ` LIMIT ` + limit + `)`
	}
	rows, err := tx.Query(ctx, `
		SELECT kind, value, max(n) FROM (
			SELECT kind, value, matched, count(*) AS n FROM (`+
		part("value", ` AND r.kind IN (`+commits+`)`)+` UNION ALL `+
		part("short", ` AND r.kind = '`+runningImage+`'`)+` UNION ALL `+
		part("tag", ` AND r.kind = '`+runningImage+`'`)+`) AS one GROUP BY 1, 2, 3) AS found
		GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT `+strconv.Itoa(view.MaxHits+1), f.args...)
	if err != nil {
		return err
	}
	var kind string
	h := view.Hit{}
	_, err = pgx.ForEachRow(rows, []any{&kind, &h.Name, &h.Applications}, func() error {
		if h.Kind = view.HitImage; kind == runningCommit {
			h.Kind = view.HitCommit
		}
		s.add(h, h.Name[strings.LastIndexByte(h.Name, '/')+1:])
		return nil
	})
	return err
}

// revisions finds recorded commits of the config repo by their beginning.
func (s *search) revisions(ctx context.Context, tx pgx.Tx) error {
	if s.scope.Tenant != "" || len(s.whole) < minCommit ||
		strings.Trim(s.whole, "0123456789abcdef") != "" {
		return nil
	}
	return s.texts(ctx, tx, view.HitRevision, `
		SELECT revision, subject, '' FROM revisions WHERE revision >= $1 AND revision < $2 ORDER BY revision LIMIT $3`,
		s.whole, ends([]string{s.whole})[0], view.MaxHits+1)
}

// pulls finds pull requests by their number, and the newest ones by a part of their title.
func (s *search) pulls(ctx context.Context, tx pgx.Tx) error {
	number, err := strconv.Atoi(strings.TrimPrefix(s.whole, "#"))
	if err == nil && number > 0 && number <= 1<<31-1 {
		from, f := pullsWithin(s.scope, view.Filter{Pull: number})
		return s.texts(ctx, tx, view.HitPull, `SELECT p.number::text, coalesce(p.body ->> 'title', ''), ''`+from.sql+
			f.where(), f.args...)
	}
	if len(s.whole) < 3 {
		return nil
	}
	from, f := pullsWithin(s.scope, view.Filter{})
	newest := `SELECT p.number, coalesce(p.body ->> 'title', '') AS title` + from.sql + f.where() +
		` ORDER BY ` + from.number + ` DESC LIMIT ` + strconv.Itoa(pullsSearched)
	return s.texts(ctx, tx, view.HitPull, `
		SELECT number::text, title, title FROM (`+newest+`) AS p WHERE `+
		sqlOthers(f.place(strings.Fields(s.whole)), "title")+` ORDER BY number DESC LIMIT `+
		strconv.Itoa(view.MaxHits+1), f.args...)
}

// operations finds operations by the beginning of their ID.
func (s *search) operations(ctx context.Context, tx pgx.Tx) error {
	if len(s.whole) < minCommit ||
		strings.Trim(s.whole, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return nil
	}
	var f filter
	f.and("o.id >= " + f.place(s.whole) + " AND o.id < " + f.place(ends([]string{s.whole})[0]))
	if f.tenants("o.tenant", s.scope, ""); s.scope.Tenant != "" {
		f.and("o.tenant_uid = live_tenant(o.tenant)")
	}
	return s.texts(ctx, tx, view.HitOperation, `SELECT o.id, concat_ws(' ', o.kind, o.subject), '' FROM operations o`+
		f.where()+` ORDER BY o.id LIMIT `+strconv.Itoa(view.MaxHits+1), f.args...)
}

// rings finds rings, of which a Fleet has a few.
func (s *search) rings(ctx context.Context, tx pgx.Tx) error {
	if s.scope.Tenant != "" {
		return nil
	}
	return s.texts(ctx, tx, view.HitRing, `
		SELECT name, '', '' FROM rings WHERE strpos(lower(name), $1) > 0 ORDER BY name LIMIT $2`, s.whole,
		view.MaxHits+1)
}

// texts adds hits of one kind from rows of a name, a title, and the text that ranks them unless it
// is the name.
func (s *search) texts(ctx context.Context, tx pgx.Tx, kind view.HitKind, sql string,
	args ...any) error {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	h, by := view.Hit{Kind: kind}, ""
	_, err = pgx.ForEachRow(rows, []any{&h.Name, &h.Title, &by}, func() error {
		s.add(h, cmp.Or(by, h.Name))
		return nil
	})
	return err
}

// kindOrder is the order of equally good hits.
var kindOrder = []view.HitKind{view.HitTenant, view.HitApplication, view.HitDeployment,
	view.HitEnvironment, view.HitEngine, view.HitAgent, view.HitSet, view.HitRing, view.HitPool,
	view.HitRevision, view.HitCommit, view.HitImage, view.HitPull, view.HitOperation}

// best returns at most limit hits, the best first, and whether there are more. No kind takes the
// place of another: a kind has at most a quarter of the limit unless the others leave it more.
func (s *search) best(limit int) ([]view.Hit, bool) {
	slices.SortFunc(s.ranked, func(a, b rankedHit) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank),
			cmp.Compare(slices.Index(kindOrder, a.Kind), slices.Index(kindOrder, b.Kind)),
			cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Tenant, b.Tenant))
	})
	s.ranked = slices.CompactFunc(s.ranked, func(a, b rankedHit) bool {
		return a.Kind == b.Kind && a.Name == b.Name && a.Tenant == b.Tenant
	})
	share, kept := max(limit/4, 1), make([]bool, len(s.ranked))
	of, n := map[view.HitKind]int{}, 0
	for _, most := range []int{share, limit} {
		for i, h := range s.ranked {
			if !kept[i] && n < limit && of[h.Kind] < most {
				kept[i] = true
				of[h.Kind]++
				n++
			}
		}
	}
	hits := make([]view.Hit, 0, n)
	for i, h := range s.ranked {
		if kept[i] {
			hits = append(hits, h.Hit)
		}
	}
	return hits, len(s.ranked) > n
}
