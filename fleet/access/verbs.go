package access

import (
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// Verb is something that a caller may do to a thing.
type Verb string

// Verbs. See Table for what each one means.
const (
	View      Verb = "view"
	Logs      Verb = "logs"
	Audit     Verb = "audit"
	Refresh   Verb = "refresh"
	Sync      Verb = "sync"
	Terminate Verb = "terminate"
	Rollback  Verb = "rollback"
	Restart   Verb = "restart"
	Pause     Verb = "pause"
	Approve   Verb = "approve"
	Stop      Verb = "stop"
	Resume    Verb = "resume"
	Remove    Verb = "remove"
	Join      Verb = "join"
	Notify    Verb = "notify"
	Operate   Verb = "operate"
	Issue     Verb = "issue"
)

// Kind is a kind of thing.
type Kind string

// Kinds of the platform, then those of a tenant.
const (
	Fleet   Kind = "fleet"
	Engine  Kind = "engine"
	Ring    Kind = "ring"
	Pool    Kind = "pool"
	Token   Kind = "token"
	Session Kind = "session"

	Tenant      Kind = "tenant"
	Environment Kind = "environment"
	Deployment  Kind = "deployment"
	Application Kind = "application"
	Rollout     Kind = "rollout"
	Agent       Kind = "agent"
)

// Kinds are all kinds of things.
func Kinds() []Kind {
	return []Kind{Fleet, Engine, Ring, Pool, Token, Session, Tenant, Environment, Deployment,
		Application, Rollout, Agent}
}

// OfTenant reports whether things of the kind belong to a tenant.
func (k Kind) OfTenant() bool { return slices.Index(Kinds(), k) >= slices.Index(Kinds(), Tenant) }

// Thing is what a verb is done to. Tenant is empty for things of the platform; an agent of an
// Engine is one of them.
type Thing struct {
	Kind   Kind
	Tenant fleet.TenantName
	Name   string // for people; no decision depends on it
}

// ParseThing parses "fleet", "engine/eu-1", "tenant/acme" or "application/acme/web@prod": a kind,
// and for a kind of a tenant its tenant and, if one is named, its name.
func ParseThing(s string) (Thing, error) {
	kind, rest, named := strings.Cut(s, "/")
	t := Thing{Kind: Kind(kind)}
	if !slices.Contains(Kinds(), t.Kind) {
		return t, fmt.Errorf("%q is no kind of thing; the kinds are %s", kind, words(Kinds()))
	}
	if t.Kind == Fleet {
		if named {
			return t, fmt.Errorf("the fleet has no name: write fleet, not %q", s)
		}
		return t, nil
	}
	if !named || rest == "" {
		return t, fmt.Errorf("name the %s: %s", kind, t.Kind.example())
	}
	if !t.Kind.OfTenant() {
		t.Name = rest
		return t, nil
	}
	tenant, name, _ := strings.Cut(rest, "/")
	t.Tenant, t.Name = fleet.TenantName(tenant), name
	if err := fleet.ValidateName(tenant); err != nil {
		return t, fmt.Errorf("the tenant of %s: %w", s, err)
	}
	return t, nil
}

func (k Kind) example() string {
	switch k {
	case Tenant:
		return "tenant/acme"
	case Application:
		return "application/acme/web@prod"
	case Engine:
		return "engine/eu-1"
	}
	if k.OfTenant() {
		return string(k) + "/acme/NAME"
	}
	return string(k) + "/NAME"
}

// String is the thing as ParseThing takes it.
func (t Thing) String() string {
	s := string(t.Kind)
	if t.Tenant != "" {
		s += "/" + string(t.Tenant)
	}
	if t.Name != "" {
		s += "/" + t.Name
	}
	return s
}

// Rule is one row of the table: who may do a verb.
type Rule struct {
	Verb Verb
	Doc  string // what it covers, for people
	// the kinds that it is done to
	Kinds []Kind
	// least role of the tenant, for things of a tenant; empty: none may
	Tenant Role
	// least role of the platform, for every thing
	Platform Role
}

var table = []Rule{
	{View, "lists, details, plans, diffs, resource trees, events, history", Kinds(), Viewer,
		Viewer},
	{Logs, "logs of containers", []Kind{Application}, Viewer, Viewer},
	{Audit, "the audit log", []Kind{Fleet, Tenant}, Member, Viewer},
	{Refresh, "let Argo CD compare again", []Kind{Application}, Member, Operator},
	{Sync, "sync, with or without a dry run", []Kind{Application}, Member, Operator},
	{Terminate, "end a running sync", []Kind{Application}, Member, Operator},
	{Rollback, "return to an earlier revision", []Kind{Application}, Member, Operator},
	{Restart, "restart a workload", []Kind{Application}, Member, Operator},
	{Pause, "pause, resume and abort rollouts; pause and resume rings, pools and drains",
		[]Kind{Rollout, Ring, Pool, Engine}, Member, Operator},
	{Approve, "release held changes; approve waves and differences of a ring",
		[]Kind{Fleet, Ring, Tenant, Deployment, Rollout}, Owner, Operator},
	{Stop, "the emergency stop", []Kind{Fleet, Engine, Tenant}, Member, Operator},
	{Resume, "end an emergency stop", []Kind{Fleet, Engine, Tenant}, Member, Operator},
	{Remove, "remove an Application whose deletion is blocked; remove an orphan",
		[]Kind{Application, Engine}, Member, Operator},
	{Join, "create tokens for agents to join; revoke agents", []Kind{Agent}, Member, Operator},
	{Notify, "send a test notification", []Kind{Fleet, Tenant}, Member, Operator},
	{Operate, "moves, drains, evacuations, rebalances, restarts and what else the platform decides",
		[]Kind{Fleet, Engine, Ring, Pool}, "", Operator},
	{Issue, "create and revoke tokens; list and revoke sessions of others",
		[]Kind{Token, Session}, "", Admin},
}

// Table is what each verb needs, in the order of the documentation.
func Table() []Rule { return slices.Clone(table) }

// Verbs are all verbs.
func Verbs() []Verb {
	verbs := make([]Verb, 0, len(table))
	for _, r := range table {
		verbs = append(verbs, r.Verb)
	}
	return verbs
}

// Decision is the answer to "may this caller do that?".
type Decision struct {
	Allowed bool   `json:"allowed"`
	Why     string `json:"why"`
	// what grants it, if it is allowed
	Grant Grant `json:"grant,omitzero"`
	// the least role of the tenant that would, if there is one
	Needs Role `json:"needs,omitempty"`
}

// Decide reports whether the person may do the verb to the thing.
func (f Facts) Decide(p Person, v Verb, t Thing) Decision { return f.Of(p).Decide(v, t) }

// Decide reports whether a caller with the roles may do the verb to the thing.
func (r Roles) Decide(v Verb, t Thing) Decision {
	i := slices.IndexFunc(table, func(rule Rule) bool { return rule.Verb == v })
	if i < 0 {
		return Decision{Why: fmt.Sprintf("%q is no verb; the verbs are %s", v, words(Verbs()))}
	}
	rule := table[i]
	if !slices.Contains(rule.Kinds, t.Kind) {
		return Decision{Why: fmt.Sprintf("%s is done to no %s, but to %s", v, t.Kind,
			words(rule.Kinds))}
	}
	if r.Platform.Role.covers(rule.Platform) {
		return allowed(r.Platform)
	}
	if t.Kind.OfTenant() && t.Tenant != "" {
		own := r.Tenants[t.Tenant]
		if own.Role.covers(rule.Tenant) {
			return allowed(own)
		}
		return Decision{Needs: rule.Tenant, Why: lacks(v, rule, t.Tenant, own.Role)}
	}
	why := fmt.Sprintf("%s takes the role %s of the platform", v, rule.Platform)
	if has := r.Platform.Role; has != "" {
		why += ", not " + string(has)
	}
	return Decision{Why: why}
}

func allowed(g Grant) Decision {
	why := "role " + string(g.Role) + " of "
	if g.Tenant == "" {
		why += "the platform"
	} else {
		why += "tenant " + string(g.Tenant)
	}
	if g.Subject != "" {
		why += ", by " + g.Subject + " in " + g.Path + " (" + g.Field + ")"
	}
	return Decision{Allowed: true, Why: why, Grant: g}
}

func lacks(v Verb, rule Rule, t fleet.TenantName, has Role) string {
	why := fmt.Sprintf("%s takes the role %s of the platform", v, rule.Platform)
	if rule.Tenant != "" {
		why = fmt.Sprintf("%s takes the role %s of tenant %s or %s of the platform", v, rule.Tenant,
			t, rule.Platform)
	}
	if has != "" {
		why += ", not " + string(has) + " of the tenant"
	}
	return why
}

func words[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, w := range list {
		texts[i] = string(w)
	}
	return strings.Join(texts, ", ")
}
