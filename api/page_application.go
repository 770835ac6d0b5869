package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/forge"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// The page of one Application: a header with its states, and a tab for each read of its resources.
// The header comes from the mirror; a tab asks the engine, and only its own part waits for it.

type (
	applicationView struct {
		frame
		View   view.Application
		Base   string // path of the page, without the tab
		Tab    string
		Tabs   []tab
		Wrong  []wrong // what is wrong, the worst first
		Panel  any     // of the tab; nil: not read by this request
		Failed *wire.Refusal
	}
	tab struct{ Name, Word, Href string }
	// wrong is one sentence about what is wrong, with the next step.
	wrong struct {
		Tone, What, Next string
		Since            *time.Time
	}
	treePanel struct {
		Roots     []*treeBranch
		Count     int
		More      int
		Compared  *time.Time
		Unhealthy int
	}
	treeBranch struct {
		view.TreeNode
		Href string
		Kids []*treeBranch
	}
	diffPanel struct {
		view.ApplicationDiff
		Shown []shownDiff
	}
	shownDiff struct {
		view.ResourceDiff
		Href string
		Rows []diffRow
		Cut  bool
	}
	resourcePanel struct {
		view.ResourceDetail
		Rows   []diffRow
		Cut    bool
		Events []view.ResourceEvent
		Logs   string // path of the Pod's logs
	}
	eventsPanel struct{ Events []shownEvent }
	shownEvent  struct {
		view.ResourceEvent
		Href string
	}
	historyPanel struct {
		Syncs      []view.PastSync
		Operations []mirror.Operation
	}
	logsPanel struct {
		Pods       []podChoice
		Containers []view.Container
		Pod        view.ResourceRef
		Container  string
		Stream     string // path of the stream
		Query      url.Values
	}
	podChoice struct {
		view.TreeNode
		Chosen bool
	}
)

// tabsOf are the tabs of the page in their order.
var tabsOf = []tab{{Name: "tree", Word: "Resources"}, {Name: "diff", Word: "Diff"},
	{Name: "events", Word: "Events"}, {Name: "logs", Word: "Logs"},
	{Name: "history", Word: "History"}, {Name: "facts", Word: "Facts"}}

func (s *website) registerApplicationPage() {
	const path = "GET /tenants/{tenant}/applications/{deployment}/{environment}"
	s.mux.HandleFunc(path, s.signedIn(s.applicationPage))
	s.mux.HandleFunc(path+"/{tab}", s.signedIn(s.applicationPage))
	s.mux.HandleFunc(path+"/logs/stream", s.signedIn(s.logStream))
}

func applicationOf(r *http.Request) fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: pathName[fleet.TenantName](r, "tenant"),
		Deployment:  pathName[fleet.DeploymentName](r, "deployment"),
		Environment: pathName[fleet.EnvironmentName](r, "environment")}
}

func applicationHref(id fleet.ApplicationID) string {
	return "/tenants/" + string(id.Tenant) + "/applications/" + string(id.Deployment) + "/" +
		string(id.Environment)
}

func (s *website) applicationPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	id := applicationOf(r)
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	v := applicationView{frame: s.framed(r, token, "Application "+id.String(),
		crumb{"Applications", "/applications"}, tenantCrumb(id.Tenant),
		crumb{string(id.Deployment), "/tenants/" + string(id.Tenant) + "/deployments/" +
			string(id.Deployment)}), Base: applicationHref(id)}
	v.View = the(g, s.reader.Applications, view.Filter{
		Tenant: id.Tenant, Deployment: id.Deployment, Environment: id.Environment})
	v.Tab = r.PathValue("tab")
	if v.Tab == "" {
		v.Tab = "tree"
	}
	for _, t := range tabsOf {
		t.Href = v.Base + "/" + t.Name
		v.Tabs = append(v.Tabs, t)
	}
	if v.Tab == "logs" && r.Header.Get(partsHeader) != "" {
		r.Header.Set(partsHeader, "header="+hashOf(r, "header")) // the log renews itself
	}
	if g.err == nil {
		v.Wrong = wrongWith(v.View)
		g.err = s.readPanel(r, token, id, &v)
	}
	s.show(w, r, token, "application", "application "+id.String(), v, g.err)
}

// wantsPart reports whether a request is for a part, or for a whole page.
func wantsPart(r *http.Request, name string) bool {
	wanted := r.Header.Get(partsHeader)
	return wanted == "" || strings.Contains(" "+wanted, " "+name+"=")
}

// hashOf returns the hash of a part that the browser has.
func hashOf(r *http.Request, name string) string {
	_, rest, _ := strings.Cut(" "+r.Header.Get(partsHeader), " "+name+"=")
	hash, _, _ := strings.Cut(rest, " ")
	return hash
}

// readPanel reads what the tab shows. The page comes first without the tree, which its script asks
// for: an engine that does not answer delays no header.
func (s *website) readPanel(r *http.Request, token view.Token, id fleet.ApplicationID,
	v *applicationView) error {
	if !wantsPart(r, "panel") || r.Header.Get(partsHeader) == "" && r.PathValue("tab") == "" {
		return nil
	}
	var err error
	ctx := r.Context()
	switch v.Tab {
	case "tree":
		v.Panel, err = s.treePanel(ctx, token, id)
	case "diff":
		v.Panel, err = s.diffPanel(ctx, token, id)
	case "events":
		v.Panel, err = s.eventsPanel(ctx, token, id)
	case "history":
		v.Panel, err = s.historyPanel(ctx, token, id)
	case "logs":
		v.Panel, err = s.logsPanel(ctx, token, id, r.URL.Query())
	case "resource":
		v.Panel, err = s.resourcePanel(ctx, token, id, refIn(r.URL.Query()))
	case "facts":
		v.Panel = struct{}{}
	default:
		return mirror.ErrNotFound
	}
	var refused *wire.Refusal
	if errors.As(err, &refused) {
		v.Failed, v.Panel = refused, nil
		return nil
	}
	return err
}

// refIn returns the resource that a query string names.
func refIn(q url.Values) view.ResourceRef {
	text := func(field string) string {
		value := q.Get(field)
		return value[:min(len(value), 253)]
	}
	return view.ResourceRef{Group: text("group"), Kind: text("kind"),
		Namespace: text("namespace"), Name: text("name"), UID: text("uid")}
}

func resourceHref(base string, ref view.ResourceRef) string {
	q := url.Values{}
	for field, value := range map[string]string{"group": ref.Group, "kind": ref.Kind,
		"namespace": ref.Namespace, "name": ref.Name} {
		if value != "" {
			q.Set(field, value)
		}
	}
	return base + "/resource?" + q.Encode()
}

func (s *website) treePanel(ctx context.Context, token view.Token, id fleet.ApplicationID) (
	*treePanel, error) {
	tree, err := inspectAs(ctx, s.Server, token, id, s.inspect.tree)
	if err != nil {
		return nil, err
	}
	p := &treePanel{Count: len(tree.Nodes), More: tree.More, Compared: tree.ComparedAt}
	branches := make([]*treeBranch, len(tree.Nodes))
	for i, n := range tree.Nodes {
		branches[i] = &treeBranch{TreeNode: n, Href: resourceHref(applicationHref(id),
			n.ResourceRef)}
		if tone(n.Health) == "bad" || n.Missing {
			p.Unhealthy++
		}
		// a parent is before its children: a cycle cannot be
		if n.Parent >= 0 && n.Parent < i {
			branches[n.Parent].Kids = append(branches[n.Parent].Kids, branches[i])
		} else {
			p.Roots = append(p.Roots, branches[i])
		}
	}
	return p, nil
}

func (s *website) diffPanel(ctx context.Context, token view.Token, id fleet.ApplicationID) (
	*diffPanel, error) {
	diff, err := inspectAs(ctx, s.Server, token, id, s.inspect.diff)
	if err != nil {
		return nil, err
	}
	p := &diffPanel{ApplicationDiff: diff}
	for _, d := range diff.Resources {
		rows, cut := sideBySide(d.Diff)
		p.Shown = append(p.Shown, shownDiff{ResourceDiff: d, Rows: rows, Cut: cut || d.Truncated,
			Href: resourceHref(applicationHref(id), d.ResourceRef)})
	}
	return p, nil
}

func (s *website) eventsPanel(ctx context.Context, token view.Token, id fleet.ApplicationID) (
	*eventsPanel, error) {
	events, err := inspectAs(ctx, s.Server, token, id, func(ctx context.Context,
		app view.InspectedApplication) ([]view.ResourceEvent, error) {
		return s.inspect.from.ResourceEvents(ctx, app, nil)
	})
	p := &eventsPanel{}
	for _, e := range events {
		p.Events = append(p.Events, shownEvent{e, resourceHref(applicationHref(id), e.Resource)})
	}
	return p, err
}

func (s *website) historyPanel(ctx context.Context, token view.Token, id fleet.ApplicationID) (
	*historyPanel, error) {
	p := &historyPanel{}
	var err error
	p.Syncs, err = inspectAs(ctx, s.Server, token, id, func(ctx context.Context,
		app view.InspectedApplication) ([]view.PastSync, error) {
		return s.inspect.from.Syncs(ctx, app)
	})
	return p, err
}

func (s *website) resourcePanel(ctx context.Context, token view.Token, id fleet.ApplicationID,
	ref view.ResourceRef) (*resourcePanel, error) {
	p := &resourcePanel{}
	var err error
	p.ResourceDetail, err = inspectAs(ctx, s.Server, token, id, func(ctx context.Context,
		app view.InspectedApplication) (view.ResourceDetail, error) {
		return s.inspect.from.Resource(ctx, app, ref)
	})
	if err != nil {
		return nil, err
	}
	p.Rows, p.Cut = sideBySide(p.Diff)
	ref = p.ResourceRef
	// the manifest is worth showing though the events cannot be read
	p.Events, _ = inspectAs(ctx, s.Server, token, id, func(ctx context.Context,
		app view.InspectedApplication) ([]view.ResourceEvent, error) {
		return s.inspect.from.ResourceEvents(ctx, app, &ref)
	})
	if ref.Kind == "Pod" {
		p.Logs = applicationHref(id) + "/logs?" + url.Values{"pod": {ref.Name}}.Encode()
	}
	return p, nil
}

func (s *website) logsPanel(ctx context.Context, token view.Token, id fleet.ApplicationID,
	q url.Values) (*logsPanel, error) {
	tree, err := inspectAs(ctx, s.Server, token, id, s.inspect.tree)
	if err != nil {
		return nil, err
	}
	p := &logsPanel{Query: q}
	for _, n := range tree.Nodes {
		if n.Kind != "Pod" || n.Missing {
			continue
		}
		chosen := n.Name == q.Get("pod") || q.Get("pod") == "" && len(p.Pods) == 0
		if chosen {
			p.Pod = n.ResourceRef
		}
		p.Pods = append(p.Pods, podChoice{n, chosen})
	}
	if p.Pod.Name == "" {
		return p, nil
	}
	detail, err := inspectAs(ctx, s.Server, token, id, func(ctx context.Context,
		app view.InspectedApplication) (view.ResourceDetail, error) {
		return s.inspect.from.Resource(ctx, app, p.Pod)
	})
	if err != nil {
		return nil, err
	}
	p.Containers = detail.Containers
	for _, c := range p.Containers {
		if c.Name == q.Get("container") || p.Container == "" && !c.Init {
			p.Container = c.Name
		}
	}
	stream := url.Values{"pod": {p.Pod.Name}, "namespace": {p.Pod.Namespace},
		"container": {p.Container}, "tail": {"1000"}}
	if q.Get("previous") != "" {
		stream.Set("previous", "true")
	}
	p.Stream = applicationHref(id) + "/logs/stream?" + stream.Encode()
	return p, nil
}

// logStream sends the lines of a container's log to the page's script, as the API's route does.
func (s *website) logStream(w http.ResponseWriter, r *http.Request, token view.Token) {
	q := r.URL.Query()
	app, err := s.inspectedApplication(r.Context(), token, applicationOf(r))
	var refused *wire.Refusal
	if err == nil {
		leave, ok := s.inspect.enter(s.now(), token.ID, true)
		if ok {
			defer leave()
			tail, _ := strconv.Atoi(q.Get("tail")) // 0: all
			s.logs(w, r, app, view.LogRequest{Pod: view.ResourceRef{Kind: "Pod",
				Namespace: q.Get("namespace"), Name: q.Get("pod")},
				Container: q.Get("container"), Previous: q.Get("previous") != "",
				Follow: q.Get("previous") == "", Tail: min(max(tail, 0), mirror.MaxLogTail)},
				sessionToken(r))
			return
		}
		err = tooManyInspects()
	}
	if !errors.As(err, &refused) {
		errors.As(s.answer(r.Context(), "log", err), &refused)
	}
	writeProblem(w, refused)
}

// wrongWith describes the problems of an Application, the worst first.
func wrongWith(a view.Application) []wrong {
	var found []wrong
	add := func(tone, what, next string, since *time.Time) {
		found = append(found, wrong{tone, what, next, since})
	}
	if u := a.Unreachable; u != nil {
		add("alarm", "Unreachable: the engine cannot read the environment's cluster ("+
			string(u.Reason)+"). The status below is older.", u.Message, &u.Since)
	} else if a.LastSeenAt != nil {
		add("alarm", "Unknown: the engine is silent. It was last seen",
			"The status below is older.", a.LastSeenAt)
	}
	if a.DeletionBlocked {
		add("alarm", "DeletionBlocked: repair the cluster, or let tenant "+string(a.Tenant)+
			" or the platform decide.", "argosy abandon "+a.ID().String()+" --uid "+a.UID+
			" removes the Application and leaves its workload running.", nil)
	}
	switch a.Apply {
	case mirror.ApplyFailed:
		add("alarm", "The engine refuses the declaration: "+a.ApplyMessage,
			"Fix the file that declares it; Argosy applies the next commit by itself.", nil)
	case mirror.ApplyConflict:
		add("alarm", "Another manager owns fields of the Application: "+a.ApplyMessage,
			"Let it give them up; Argosy never takes a field away from another manager.", nil)
	default:
		if a.ApplyMessage != "" {
			add("warn", a.ApplyMessage, "", nil)
		}
	}
	switch a.Health {
	case mirror.HealthDegraded:
		add("alarm", "Degraded: a resource does not work."+colon(a.Message),
			"Open the resource with the triangle for its reason, events and logs.", nil)
	case mirror.HealthMissing:
		add("alarm", "Missing: declared resources do not exist on the cluster."+colon(a.Message),
			"See the diff for what a sync would create.", nil)
	default:
		if a.Message != "" {
			add("warn", a.Message, "", nil)
		}
	}
	if a.Hold != "" {
		by, next := "SyncRun "+string(a.Hold), "Remove its file to end that."
		if operation := mirror.RollbackOf(a.Hold); operation != "" {
			by, next = "rollback "+operation, lastingWord(a.RollbackPull)
		}
		add("warn", "Automation is paused by "+by+" until Git asks for another revision than "+
			a.TargetRevision+".", next, nil)
	}
	if a.Sync == mirror.SyncOutOfSync {
		add("warn", "OutOfSync: the cluster differs from Git.",
			"See the diff for what a sync would change.", nil)
	}
	return found
}

// lastingWord is how a rollback becomes lasting, or ends.
func lastingWord(p *view.RollbackPull) string {
	const end = "Roll back again to end it."
	switch {
	case p == nil:
		return end
	case p.State == forge.LastingOpen:
		return fmt.Sprintf("Merge pull request #%d to make it lasting. %s", p.Number, end)
	case p.State == forge.LastingMerged:
		return fmt.Sprintf("Pull request #%d is merged, and makes it lasting once it is applied.",
			p.Number)
	case p.Message != "":
		return "There is no pull request that makes it lasting: " + p.Message + ". " + end
	}
	return end
}

func colon(text string) string {
	if text == "" {
		return ""
	}
	return " " + text
}
