package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// pageAction is an action on an Application that the page offers.
type pageAction struct {
	kind    mirror.ActionKind
	word    string
	options []changeOption
	danger  bool
}

// pageActions are the actions in the order of their buttons.
var pageActions = []pageAction{
	{kind: mirror.ActionRefresh, word: "Refresh", options: []changeOption{
		{Field: "hard", Label: "Render the manifests again, without the cache", Flag: true}}},
	{kind: mirror.ActionSync, word: "Sync", options: []changeOption{
		{Field: "revision", Label: "Revision (empty: the declared one)"},
		{Field: "prune", Label: "Delete resources that Git no longer has", Flag: true},
		{Field: "dryRun", Label: "Dry run: change nothing, and report what would change",
			Flag: true}}},
	{kind: mirror.ActionTerminate, word: "Terminate", danger: true},
	{kind: mirror.ActionRestart, word: "Restart"},
	{kind: mirror.ActionRollback, word: "Roll back", danger: true, options: []changeOption{
		{Field: "revision", Label: "Revision with which it was Healthy"},
		{Field: "end", Label: "End the rollback that is in force", Flag: true}}},
}

// rolloutVerbs are the decisions about a rollout in the order of their buttons.
var rolloutVerbs = []mirror.RolloutVerb{mirror.ApproveRollout, mirror.PauseRollout,
	mirror.ResumeRollout, mirror.AbortRollout}

// pageChanges are the changes of the page by their verb in the path.
var pageChanges = changesOfPage()

func changesOfPage() map[string]pageChange {
	changes := map[string]pageChange{
		"stop": {Word: "Emergency stop", Danger: true, needs: stopNeeds(access.Stop),
			show: (*website).showStop, commit: (*website).commitStop},
		"resume": {Word: "Resume", needs: stopNeeds(access.Resume),
			show: (*website).showResume, commit: (*website).commitResume},
		"release": {Word: "Release", needs: releaseNeeds,
			show: (*website).showRelease, commit: (*website).commitRelease},
	}
	for _, verb := range rolloutVerbs {
		changes[string(verb)+"-rollout"] = rolloutChange(verb)
	}
	for _, a := range pageActions {
		changes[string(a.kind)] = actionChange(a)
	}
	return changes
}

func fixedNeeds(verb access.Verb, kind access.Kind) func(url.Values) (access.Verb, access.Kind) {
	return func(url.Values) (access.Verb, access.Kind) { return verb, kind }
}

func actionChange(a pageAction) pageChange {
	var choose func(*website, context.Context, url.Values) (bool, error)
	if a.kind == mirror.ActionRollback {
		choose = (*website).chooseRevision
	}
	return pageChange{Word: a.word, Danger: a.danger, choose: choose,
		needs: fixedNeeds(access.Verb(a.kind), access.Application),
		show: func(s *website, ctx context.Context, q url.Values) (shownChange, error) {
			return s.showAction(ctx, a, q)
		},
		commit: func(s *website, ctx context.Context, q url.Values, shown shownChange,
			c consent) (string, error) {
			return s.commitAction(ctx, a, q, shown, c)
		}}
}

// chooseRevision adds to the query string of a rollback the revision that it leads to unless
// another one is chosen, and removes it from one that ends. It reports whether it changed anything.
func (s *website) chooseRevision(ctx context.Context, q url.Values) (bool, error) {
	switch {
	case q.Get("end") == "true":
		chosen := q.Has("revision")
		q.Del("revision") // the form has the revision that it showed
		return chosen, nil
	case q.Has("revision"):
		return false, nil
	}
	p, err := s.preview(ctx, mirror.ActionRollback, &previewIn{InApplication: namedApplication(q)})
	if err != nil || p.Body.Before == "" {
		return false, err
	}
	q.Set("revision", p.Body.Before)
	return true, nil
}

func namedApplication(q url.Values) InApplication {
	var in InApplication
	in.Tenant = named[fleet.TenantName](q, "tenant")
	in.Deployment = named[fleet.DeploymentName](q, "deployment")
	in.Environment = named[fleet.EnvironmentName](q, "environment")
	return in
}

func (s *website) showAction(ctx context.Context, a pageAction, q url.Values) (shownChange,
	error) {
	in := &previewIn{InApplication: namedApplication(q), Revision: plainText(q, "revision"),
		Prune: q.Get("prune") == "true", Hard: q.Get("hard") == "true",
		End: q.Get("end") == "true"}
	preview, err := s.preview(ctx, a.kind, in)
	if err != nil {
		return shownChange{}, err
	}
	p := preview.Body
	id := in.id()
	shown := shownChange{Subject: id.String(), Does: p.Does + ".", Refused: p.Refused,
		Back: applicationHref(id), Reason: true}
	if q.Get("dryRun") == "true" {
		shown.Does = "A dry run changes nothing: Argo CD reports what a sync would do."
	}
	shown.State = fmt.Sprint(p.Engine, p.Target)
	list := coveredList{Title: "Resources", More: p.More > 0}
	for _, r := range p.Resources {
		if a.kind == mirror.ActionRestart && p.More == 0 { // exactly the listed workloads
			shown.Resources = append(shown.Resources, mirror.ActionResource{Group: r.Group,
				Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID})
		}
		list.Items = append(list.Items, coveredItem{Name: r.ResourceRef.String(), Detail: r.Change})
	}
	if len(list.Items) > 0 {
		shown.Lists = append(shown.Lists, list)
	}
	if a.kind == mirror.ActionRollback {
		// the time of the last report changes by itself
		shown.Lists, shown.Informs = append(shown.Lists, healthyList(id, p.Healthy)), true
	}
	if p.Note != "" {
		shown.Notes = append(shown.Notes, upperFirst(p.Note)+".")
	}
	if p.Kept > 0 {
		shown.Notes = append(shown.Notes, plural(p.Kept, "resource")+
			" that Git no longer has would be kept.")
	}
	if a.kind == mirror.ActionSync && len(list.Items) == 0 && p.Note == "" && p.Refused == "" {
		shown.Notes = append(shown.Notes, "No resource differs now.")
	}
	for _, o := range a.options {
		o.Value = q.Get(o.Field)
		shown.Options = append(shown.Options, o)
	}
	return shown, nil
}

func (s *website) commitAction(ctx context.Context, a pageAction, q url.Values,
	shown shownChange, c consent) (string, error) {
	in := &actIn{InApplication: namedApplication(q), Body: wire.ActionRequest{Request: c.ID,
		Note: c.Reason, ActionOptions: mirror.ActionOptions{Hard: q.Get("hard") == "true",
			Revision: plainText(q, "revision"), Prune: q.Get("prune") == "true",
			DryRun: q.Get("dryRun") == "true", End: q.Get("end") == "true",
			Resources: shown.Resources}}}
	made, err := s.act(ctx, a.kind, in)
	if err != nil {
		return "", err
	}
	return "/operations/" + made.Body.Operation, nil
}

// healthyList links each revision to what a rollback to it would do.
func healthyList(id fleet.ApplicationID, all []mirror.HealthyRevision) coveredList {
	list := coveredList{Title: "Revisions with which it was Healthy"}
	for _, r := range all {
		detail := "since " + r.FirstAt.UTC().Format(time.DateTime) + " UTC"
		if r.Runs {
			detail += ", runs now"
		}
		list.Items = append(list.Items, coveredItem{Name: r.Revision, Detail: detail,
			Href: changeHref(string(mirror.ActionRollback), "tenant", string(id.Tenant),
				"deployment", string(id.Deployment), "environment", string(id.Environment),
				"revision", r.Revision)})
	}
	return list
}

func upperFirst(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// stopNeeds returns what the stop of a scope needs.
func stopNeeds(verb access.Verb) func(url.Values) (access.Verb, access.Kind) {
	return func(q url.Values) (access.Verb, access.Kind) {
		switch mirror.StopScope(q.Get("scope")) {
		case mirror.StopTenant:
			return verb, access.Tenant
		case mirror.StopEngine:
			return verb, access.Engine
		}
		return verb, access.Fleet
	}
}

// stopIn returns the scope that a query string names, with the page of its object.
func stopIn(q url.Values) (scope mirror.StopScope, name, back string, err error) {
	scope, back = mirror.StopScope(q.Get("scope")), "/"
	switch scope {
	case mirror.StopTenant:
		name = string(named[fleet.TenantName](q, "name"))
		back = "/tenants/" + name
	case mirror.StopEngine:
		name = string(named[fleet.EngineName](q, "name"))
		back = "/engines/" + name
	case mirror.StopFleet:
	default:
		err = problem(http.StatusUnprocessableEntity, "scope", "it is fleet, tenant or engine",
			"begin at the page of a tenant or an engine, or at the overview")
	}
	return scope, name, back, err
}

// stopText returns the subject of a stop.
func stopText(scope mirror.StopScope, name string) string {
	return strings.TrimSpace(string(scope) + " " + name)
}

// stopOf returns the stop of a scope that is in force.
func (s *website) stopOf(ctx context.Context, scope mirror.StopScope, name string) (
	found *mirror.Stop, others []mirror.Stop, err error) {
	stops, err := stopsOf(ctx, s.deciding.Stops, callerOf(ctx).Scope())
	for _, stop := range stops {
		if stop.Scope == scope && stop.Name == name {
			found = &stop
		} else {
			others = append(others, stop)
		}
	}
	return found, others, err
}

func (s *website) showStop(ctx context.Context, q url.Values) (shownChange, error) {
	scope, name, back, err := stopIn(q)
	if err != nil {
		return shownChange{}, err
	}
	caller := callerOf(ctx)
	if subject, err := s.covered(ctx, caller, scope, name); err != nil {
		return shownChange{}, s.answer(ctx, subject, err)
	}
	found, _, err := s.stopOf(ctx, scope, name)
	if err != nil {
		return shownChange{}, s.answer(ctx, "stops", err)
	}
	shown := shownChange{Subject: stopText(scope, name), Back: back, Reason: true, Informs: true,
		Does: "Argosy writes nothing more to the engines within this scope until somebody " +
			"resumes it. Workloads keep running, and Argo CD keeps syncing what it has.",
		Notes: []string{"It covers what is declared later, too."}}
	if found != nil {
		shown.Refused = "it is stopped already by " + found.By
	}
	shown.Lists, err = s.coveredBy(ctx, scope, name)
	return shown, err
}

// coveredBy lists what a stop covers, bounded.
func (s *website) coveredBy(ctx context.Context, scope mirror.StopScope, name string) (
	[]coveredList, error) {
	caller, page := callerOf(ctx), view.Page{Limit: maxCovered}
	if scope == mirror.StopFleet {
		tenants, next, err := s.reader.Tenants(ctx, caller.Scope(), view.Filter{}, page)
		list := coveredList{Title: "Tenants", More: next != ""}
		for _, t := range tenants {
			list.Items = append(list.Items, coveredItem{Name: string(t.Name),
				Detail: plural(t.Counts.Applications, "Application")})
		}
		return []coveredList{list}, s.answer(ctx, "tenants", err)
	}
	filter := view.Filter{Tenant: fleet.TenantName(name)}
	if scope == mirror.StopEngine {
		filter = view.Filter{Engine: fleet.EngineName(name)}
	}
	environments, next, err := s.reader.Environments(ctx, caller.Scope(), filter, page)
	list := coveredList{Title: "Environments", More: next != ""}
	for _, e := range environments {
		detail := plural(e.Counts.Applications, "Application")
		if e.Engine != "" {
			detail += " on " + string(e.Engine)
		}
		list.Items = append(list.Items, coveredItem{Name: string(e.Tenant) + "/" + string(e.Name),
			Detail: detail})
	}
	return []coveredList{list}, s.answer(ctx, "environments", err)
}

func (s *website) commitStop(ctx context.Context, q url.Values, shown shownChange,
	c consent) (string, error) {
	scope, name, _, err := stopIn(q)
	if err == nil {
		_, err = s.stop(ctx, &asked[wire.StopRequest]{Body: wire.StopRequest{Scope: scope,
			Name: name, Reason: c.Reason}})
	}
	return shown.Back, err
}

func (s *website) showResume(ctx context.Context, q url.Values) (shownChange, error) {
	scope, name, back, err := stopIn(q)
	if err != nil {
		return shownChange{}, err
	}
	caller := callerOf(ctx)
	if subject, err := may(caller, scope, name); err != nil {
		return shownChange{}, s.answer(ctx, subject, err)
	}
	found, others, err := s.stopOf(ctx, scope, name)
	if err != nil {
		return shownChange{}, s.answer(ctx, "stops", err)
	}
	shown := shownChange{Subject: stopText(scope, name), Back: back,
		Does: "Argosy applies everything that Git has declared meanwhile."}
	if found == nil {
		shown.Refused = "it is not stopped"
		return shown, nil
	}
	if !slices.ContainsFunc(endedBy(caller.Tenant), func(by string) bool {
		return strings.HasPrefix(found.By, by)
	}) {
		shown.Refused = "this stop was set by " + found.By + ": ask the platform to end it"
	}
	shown.Lists = []coveredList{{Title: "Stop that ends",
		Items: []coveredItem{stopItem(*found)}}}
	if len(others) > 0 {
		list := coveredList{Title: "Stops that stay in force"}
		for _, stop := range others {
			list.Items = append(list.Items, stopItem(stop))
		}
		shown.Lists = append(shown.Lists, list)
	}
	return shown, nil
}

func stopItem(stop mirror.Stop) coveredItem {
	detail := "by " + stop.By + ", " + stop.At.UTC().Format(time.RFC3339)
	if stop.Reason != "" {
		detail = stop.Reason + ", " + detail
	}
	return coveredItem{Name: stopText(stop.Scope, stop.Name), Detail: detail}
}

func (s *website) commitResume(ctx context.Context, q url.Values, shown shownChange,
	_ consent) (string, error) {
	scope, name, _, err := stopIn(q)
	if err == nil {
		_, err = s.resume(ctx, &asked[wire.ResumeRequest]{Body: wire.ResumeRequest{Scope: scope,
			Name: name}})
	}
	return shown.Back, err
}

// releaseNeeds returns what a release needs: of a hold of a tenant, its owner; else the platform.
func releaseNeeds(q url.Values) (access.Verb, access.Kind) {
	if q.Get("tenant") == "" {
		return access.Approve, access.Fleet
	}
	return access.Approve, access.Tenant
}

func (s *website) showRelease(ctx context.Context, q url.Values) (shownChange, error) {
	revision := revisionNamed(q)
	shown := shownChange{Subject: "revision " + revision.Short(), Back: "/holds", Reason: true,
		Does: "Exactly these changes of revision " + string(revision) + " happen."}
	held, err := s.holdsOf(ctx, revision)
	if err != nil {
		return shown, s.answer(ctx, shown.Subject, err)
	}
	held, _, err = s.releasable(ctx, callerOf(ctx), shown.Subject, held)
	if err != nil {
		return shown, s.answer(ctx, shown.Subject, err)
	}
	for _, h := range held {
		of := "the fleet"
		if h.Tenant != "" {
			of = "tenant " + string(h.Tenant)
		}
		list := coveredList{Title: upperFirst(of) + ": " + string(h.Reason) + ": " + h.Message}
		for _, item := range h.Items {
			list.Items = append(list.Items, coveredItem{Name: string(item.Kind) + " " + item.Name,
				Detail: "on " + string(item.Engine)})
		}
		for _, path := range h.Paths {
			list.Items = append(list.Items, coveredItem{Name: path, Detail: "file"})
		}
		shown.Lists = append(shown.Lists, list)
	}
	return shown, nil
}

func (s *website) commitRelease(ctx context.Context, q url.Values, shown shownChange,
	c consent) (string, error) {
	_, err := s.approve(ctx, &asked[wire.ApproveRequest]{Body: wire.ApproveRequest{
		Revision: revisionNamed(q), Note: c.Reason}})
	return shown.Back, err
}

func rolloutChange(verb mirror.RolloutVerb) pageChange {
	needs := fixedNeeds(access.Pause, access.Rollout)
	if verb == mirror.ApproveRollout {
		needs = fixedNeeds(access.Approve, access.Rollout)
	}
	return pageChange{Word: upperFirst(string(verb)), needs: needs,
		Danger: verb == mirror.AbortRollout,
		show: func(s *website, ctx context.Context, q url.Values) (shownChange, error) {
			return s.showRollout(ctx, verb, q)
		},
		commit: func(s *website, ctx context.Context, q url.Values, shown shownChange,
			c consent) (string, error) {
			in := namedApplication(q)
			_, err := s.decideRollout(ctx, mirror.RolloutDecision{Verb: verb, Tenant: in.Tenant,
				Deployment: in.Deployment, Reason: c.Reason})
			return shown.Back, err
		}}
}

// rolloutDoes describes the decisions about a rollout.
var rolloutDoes = map[mirror.RolloutVerb]string{
	mirror.ApproveRollout: "The next wave begins: its Applications change.",
	mirror.PauseRollout:   "No further Application changes until the rollout goes on.",
	mirror.ResumeRollout:  "The rollout goes on with the Applications that have not changed.",
	mirror.AbortRollout:   "The Applications that have changed get their last good state back.",
}

func (s *website) showRollout(ctx context.Context, verb mirror.RolloutVerb, q url.Values) (
	shownChange, error) {
	in := namedApplication(q)
	of := view.Filter{Tenant: in.Tenant, Deployment: in.Deployment}
	subject := "rollout of " + string(in.Tenant) + "/" + string(in.Deployment)
	if in.Tenant == "" || in.Deployment == "" {
		return shownChange{}, notFound(subject)
	}
	r, err := single(ctx, s.deciding.Rollouts, callerOf(ctx).Scope(), of)
	if err != nil {
		return shownChange{}, s.answer(ctx, subject, err)
	}
	shown := shownChange{Subject: subject, Does: rolloutDoes[verb], Reason: true,
		Back:  "/tenants/" + string(in.Tenant) + "/rollouts/" + string(in.Deployment),
		State: fmt.Sprint(r.ID, " ", r.State)}
	if !r.Accepts(verb) {
		shown.Refused = "it is " + string(r.State) + ", so there is nothing to " + string(verb)
	}
	if verb == mirror.ApproveRollout {
		_, err = s.approver(ctx, callerOf(ctx), in.Tenant)
		var refused *wire.Refusal
		if errors.As(err, &refused) {
			shown.Refused = refusalText(refused)
		} else if err != nil {
			return shown, s.answer(ctx, subject, err)
		}
	}
	shown.Lists = waveLists(r, verb)
	return shown, nil
}

// waveLists lists the Applications that a decision concerns: of the next wave for an approval, else
// of all waves with their states.
func waveLists(r mirror.Rollout, verb mirror.RolloutVerb) (lists []coveredList) {
	current := mirror.CurrentWave(r.Waves)
	for i, wave := range r.Waves {
		if verb == mirror.ApproveRollout && i != current {
			continue
		}
		list := coveredList{Title: fmt.Sprintf("Wave %d: %s", i+1, wave.Name)}
		for _, m := range r.Members {
			if m.Wave == i {
				list.Items = append(list.Items, coveredItem{Name: string(r.Tenant) + "/" +
					string(r.Deployment) + "@" + string(m.Environment), Detail: string(m.State)})
			}
		}
		lists = append(lists, list)
	}
	return lists
}
