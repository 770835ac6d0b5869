package review

import (
	"cmp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/plan/report"
)

// verb is what happens to an object, what is hardest to undo first.
type verb int

const (
	deleted verb = iota
	held
	movedTo
	changed
	added
	synced
)

var verbs = map[verb]string{deleted: "**deleted**", held: "**deletion held**", movedTo: "moved",
	changed: "changed", added: "added", synced: "synced"}

// change is one row of the table: an object, an environment that moves, or a sync.
type change struct {
	verb        verb
	key         fleet.ObjectKey // of an object
	tenant      fleet.TenantName
	kind        fleet.ObjectKind // empty: an environment that moves
	name        string           // of the deployment, or of the credential
	environment fleet.EnvironmentName
	engines     []fleet.EngineName // one; of a move from where and to where
	note        string             // prose
	fields      []report.Field
	lines       []string // of fields, as a forge colours them
	kept        bool     // of a deletion: its workload stays
}

// what is the object as the table names it, and subject as a sentence does.
func (c change) what() string {
	switch c.kind {
	case fleet.ObjectApplication:
		return tick(c.name)
	case fleet.ObjectRepository:
		return "credential " + tick(c.name)
	case fleet.ObjectProject:
		return "project"
	}
	return "environment"
}

func (c change) subject() string {
	if c.kind == fleet.ObjectApplication {
		return tick(c.name) + " in " + tick(string(c.environment))
	}
	if c.environment != "" {
		return "environment " + tick(string(c.environment))
	}
	return c.what()
}

// changes is the plan as rows: tenant by tenant, Applications and environments before what serves
// them.
func changes(f Facts, v Verdict) []change {
	cleared := map[fleet.ObjectKey]bool{}
	for _, k := range v.Cleared {
		cleared[k] = true
	}
	var out []change
	for _, t := range f.Plan.Tenants {
		rows := tenantChanges(t, cleared)
		slices.SortStableFunc(rows, func(a, b change) int {
			return cmp.Or(int(a.verb-b.verb), cmp.Compare(b.kind.Rank(), a.kind.Rank()),
				cmp.Compare(a.name, b.name), cmp.Compare(a.environment, b.environment))
		})
		out = append(out, rows...)
	}
	return out
}

func tenantChanges(t report.Tenant, cleared map[fleet.ObjectKey]bool) []change {
	moves := map[fleet.EnvironmentName]report.Move{}
	var out []change
	for _, m := range t.Moves {
		moves[m.Environment] = m
		out = append(out, change{verb: movedTo, tenant: t.Name, environment: m.Environment,
			engines: []fleet.EngineName{m.From, m.To},
			note: "with " + count(m.Applications, "Application") +
				"; the workloads stay as they are"})
	}
	for _, e := range t.Engines {
		for _, c := range e.Changes {
			row := object(t.Name, e.Name, c)
			if m, moves := moves[row.environment]; moves &&
				(e.Name == m.From && c.Action == report.Delete || e.Name == m.To &&
					c.Action == report.Create) {
				continue // the move has told of it
			}
			if row.verb == held && cleared[row.key] {
				row.verb = deleted
			}
			out = append(out, row)
		}
	}
	for _, s := range t.Syncs {
		name, environment, _ := strings.Cut(s.Application, "@")
		out = append(out, change{verb: synced, tenant: t.Name, kind: fleet.ObjectApplication,
			name: name, environment: fleet.EnvironmentName(environment),
			engines: []fleet.EngineName{s.Engine}, note: "at " + tick(s.Revision) + ", by " +
				tick(string(s.SyncRun))})
	}
	return out
}

func object(t fleet.TenantName, engine fleet.EngineName, c report.Change) change {
	row := change{key: fleet.ObjectKey{Engine: engine, Kind: c.Kind, Name: c.Object}, tenant: t,
		kind: c.Kind, name: c.Subject, engines: []fleet.EngineName{engine}, note: c.Note,
		fields: c.Fields}
	switch c.Kind {
	case fleet.ObjectApplication:
		name, environment, _ := strings.Cut(c.Subject, "@")
		row.name, row.environment = name, fleet.EnvironmentName(environment)
	case fleet.ObjectCluster:
		row.environment = fleet.EnvironmentName(c.Subject)
	}
	switch c.Action {
	case report.Create:
		row.verb = added
	case report.Delete:
		row.verb = deleted
	case report.Hold:
		row.verb = held
	default:
		row.verb = changed
		if len(c.Fields) > 0 {
			row.note = fieldsNote(c.Fields)
		}
	}
	if (row.verb == deleted || row.verb == held) && c.Kind == fleet.ObjectApplication {
		row.note = "its workload is deleted"
		if row.kept = c.Keeps; row.kept {
			row.note = "its workload stays (deletionPolicy Orphan)"
		}
	}
	return row
}

// fieldsNote is the field itself, if it is one and short: that is what most pull requests are
// about.
func fieldsNote(fields []report.Field) string {
	f := fields[0]
	if len(fields) > 1 || f.Before == "" || f.After == "" || len(f.Path)+len(f.Before)+
		len(f.After) > 160 {
		return count(len(fields), "field")
	}
	name := f.Path[strings.LastIndexByte(f.Path, '.')+1:]
	return tick(name) + " " + tick(unquoted(f.Before)) + " → " + tick(unquoted(f.After))
}

func unquoted(s string) string {
	if len(s) > 2 && s[0] == '"' && s[len(s)-1] == '"' && !strings.Contains(s, `\`) {
		return s[1 : len(s)-1]
	}
	return s
}

// serves reports whether an object only serves others: it is told of beside the table.
func (c change) serves() bool {
	return c.kind == fleet.ObjectProject || c.kind == fleet.ObjectRepository
}

// longest is the rows with fields that change, those first that take the most room. It writes their
// lines.
func longest(rows []change) []int {
	size := map[int]int{}
	var out []int
	for i, r := range rows {
		if len(r.fields) == 0 {
			continue
		}
		rows[i].lines = r.diff()
		for _, l := range rows[i].lines {
			size[i] += len(l) + 1
		}
		out = append(out, i)
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(size[b], size[a]) })
	return out
}

// diff is the fields of a row as a forge colours them.
func (c change) diff() []string {
	subject := c.subject()
	if c.kind == fleet.ObjectProject {
		subject = "project of " + string(c.tenant)
	}
	lines := []string{clean("! "+strings.ReplaceAll(subject, "`", "")+" on "+string(c.engines[0]),
		mostLine)}
	for _, f := range c.fields {
		if f.Before != "" {
			lines = append(lines, "-   "+clean(f.Path+": "+f.Before, mostLine))
		}
		if f.After != "" {
			lines = append(lines, "+   "+clean(f.Path+": "+f.After, mostLine))
		}
	}
	return lines
}
