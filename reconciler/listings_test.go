package reconciler_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler"
	"argosy.dev/argosy/reconciler/gitrepo"
	"argosy.dev/argosy/test/stack"
)

// shelf reads real repositories in place of those that declarations name.
type shelf struct {
	reader *gitrepo.Reader
	reads  atomic.Int64

	mu    sync.Mutex
	urls  map[string]string                                         // by declared URL
	fault func(ctx context.Context, r reconciler.ListingRead) error // nil: none
	seen  []reconciler.ListingRead
}

// newShelf puts a repository in the place of https://git.example.com/<tenant>/services.
func newShelf(t testing.TB, tenants ...string) (*shelf, map[string]*stack.Repo) {
	t.Helper()
	reader, err := gitrepo.NewReader(filepath.Join(t.TempDir(), "reads"), gitrepo.AllowPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	s, repos := &shelf{reader: reader, urls: map[string]string{}}, map[string]*stack.Repo{}
	for _, name := range tenants {
		repo, err := gitHost.CreateRepo(t.Context(), fmt.Sprintf("services-%d", houses.Add(1)))
		if err != nil {
			t.Fatal(err)
		}
		repos[name], s.urls["https://git.example.com/"+name+"/services"] = repo, repo.URL
	}
	return s, repos
}

func (s *shelf) failWith(fault func(ctx context.Context, r reconciler.ListingRead) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

// always is a fault of every read.
func always(text string) func(context.Context, reconciler.ListingRead) error {
	return func(context.Context, reconciler.ListingRead) error { return errors.New(text) }
}

func (s *shelf) List(ctx context.Context, r reconciler.ListingRead) (fleet.Revision,
	[]reconciler.ListingResult, error) {
	s.reads.Add(1)
	s.mu.Lock()
	fault, url := s.fault, s.urls[r.RepoURL]
	s.seen = append(s.seen, r)
	s.mu.Unlock()
	if fault != nil {
		if err := fault(ctx, r); err != nil {
			return "", nil, err
		}
	}
	request := r.Requests[0]
	tree, err := s.reader.Read(ctx, gitrepo.Remote{URL: url, Revision: r.TargetRevision},
		gitrepo.Hash(r.Known), gitrepo.Selection{Enters: request.Descends, Most: 1000,
			Wants: func(path string, kind gitrepo.Kind) bool {
				return request.Files == (kind == gitrepo.File) && request.Wants(path)
			}, Contents: request.Files})
	if err != nil || tree == nil {
		return r.Known, nil, err
	}
	var entries []fleet.Listed
	for _, e := range tree.Entries {
		entry := fleet.Listed{Path: e.Path}
		if request.Files {
			entry = configschema.ListFile(e.Path, tree.Contents[e.Blob])
		}
		entries = append(entries, entry)
	}
	l, err := fleet.NewListing(request, fleet.Revision(tree.Commit), entries)
	return fleet.Revision(tree.Commit), []reconciler.ListingResult{{Listing: l, Err: err}}, nil
}

// discovering is a set of one deployment for each folder below services/.
func discovering(tenant, name, spec string) map[string]string {
	return map[string]string{"tenants/" + tenant + "/sets/" + name + ".yaml": document(
		"GitOpsDeploymentSet", name, fmt.Sprintf(`directories:
    repoURL: https://git.example.com/%[1]s/services
    targetRevision: main
    paths: ["services/*"]
  template:
    metadata: {name: "${item.name}"}
    spec:
      source: {repoURL: "https://git.example.com/%[1]s/services", path: "${item.path}", targetRevision: main}
      destination: {environments: [prod], namespace: %[1]s-web}
      %[2]s`, tenant, spec))}
}

// services are folders with a file each.
func services(names ...string) map[string]string {
	files := map[string]string{}
	for _, n := range names {
		files["services/"+n+"/kustomization.yaml"] = "resources: []\n"
	}
	return files
}

func push(t testing.TB, r *stack.Repo, files map[string]string, remove ...string) fleet.Revision {
	t.Helper()
	c := stack.Change{Message: "services", Write: files}
	for _, n := range remove {
		c.Remove = append(c.Remove, "services/"+n+"/kustomization.yaml")
	}
	head, err := r.Apply(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return fleet.Revision(head)
}

// wanted lists the deployments of a tenant with a wanted Application.
func (h *house) wanted(tenant string) []string {
	var names []string
	for _, r := range h.rows() {
		if r.Key.Kind == fleet.ObjectApplication && r.Tenant == fleet.TenantName(tenant) &&
			!r.Unwanted {
			names = append(names, string(r.Deployment))
		}
	}
	slices.Sort(names)
	return names
}

func (h *house) deploys(tenant string, names ...string) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("deployments of %s", tenant), func() error {
		if got := h.wanted(tenant); !slices.Equal(got, names) {
			return fmt.Errorf("%q, want %q", got, names)
		}
		return nil
	})
}

// problem waits for a problem of a tenant with a text, or without one for its absence.
func (h *house) problem(code, text string, there bool) {
	h.t.Helper()
	h.eventually(fmt.Sprintf("problem %s with %q: %v", code, text, there), func() error {
		all, _, err := h.store.Views.Problems(context.Background(), view.Scope{}, view.Filter{},
			view.Page{Limit: 1000})
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.Code == code && strings.Contains(p.Message, text) {
				if there {
					return nil
				}
				return fmt.Errorf("%+v", p)
			}
		}
		if there {
			return fmt.Errorf("the problems are %+v", all)
		}
		return nil
	})
}

// newShop starts a replica with a set of acme, and a repository with a folder for each service.
func newShop(t *testing.T, o options, names ...string) (*shelf, *stack.Repo, *house, *replica) {
	t.Helper()
	s, repos := newShelf(t, "acme")
	push(t, repos["acme"], services(names...))
	h := newHouse(t, together(platform(), tenant("acme", "prod"), discovering("acme", "shop", "")))
	o.lister = s
	r := h.start("one", o)
	h.deploys("acme", slices.Sorted(slices.Values(names))...)
	return s, repos["acme"], h, r
}

// isSet returns an error if acme/shop is not the only set, or not as it should be.
func (h *house) isSet(as func(view.Set) bool) error {
	for tenant, n := range map[fleet.TenantName]int{"acme": 1, "globex": 0} {
		all, _, err := h.store.Views.Sets(context.Background(), view.Scope{Tenant: tenant},
			view.Filter{Name: "shop"}, view.Page{Limit: 10})
		if err != nil || len(all) != n || n == 1 && (all[0].Name != "shop" || !as(all[0])) {
			return fmt.Errorf("%s has %+v %w", tenant, all, err)
		}
	}
	return nil
}

func TestASetFollowsItsRepository(t *testing.T) {
	t.Parallel()
	s, repo, h, r := newShop(t, options{}, "cart", "checkout")
	revision := h.head()

	// a push, as the Git host delivers it
	tip := push(t, repo, services("search"))
	r.Moved("refs/heads/main", []string{"https://git.example.com/Acme/services.git"})
	h.deploys("acme", "cart", "checkout", "search")
	if got := h.head(); got != revision {
		t.Errorf("the config repo moved to %s", got)
	}
	h.eventually("the status", func() error {
		all, err := h.store.Plans.Listings(context.Background())
		if err != nil || len(all) != 1 || all[0].Commit != tip || all[0].Error != "" {
			return fmt.Errorf("%+v %w", all, err)
		}
		return nil
	})

	h.eventually("the API shows the commit", func() error {
		all, _, err := h.store.Views.Deployments(context.Background(), view.Scope{Tenant: "acme"},
			view.Filter{Deployment: "cart"}, view.Page{Limit: 1})
		if err != nil || len(all) != 1 || len(all[0].Listings) != 1 {
			return fmt.Errorf("%+v %w", all, err)
		}
		if l := all[0].Listings[0]; l.Commit != tip || l.Head != tip || l.Error != "" ||
			l.RepoURL != "https://git.example.com/acme/services" || l.TargetRevision != "main" {
			return fmt.Errorf("%+v", l)
		}
		return nil
	})

	if err := h.isSet(func(s view.Set) bool {
		return slices.Equal(s.Deployments, []fleet.DeploymentName{"cart", "checkout", "search"}) &&
			len(s.Listings) == 1 && s.Listings[0].Commit == tip && s.Listings[0].HeadAt != nil &&
			s.Problems == 0
	}); err != nil {
		t.Error(err)
	}

	// another branch, another repository, another file: nothing is read or recorded
	push(t, repo, map[string]string{"README.md": "more"})
	reads := s.reads.Load()
	r.Moved("refs/heads/other", []string{"https://git.example.com/acme/services"})
	r.Moved("refs/heads/main", []string{"https://git.example.com/acme/other"})
	if n := s.reads.Load(); n != reads {
		t.Errorf("%d reads", n-reads)
	}
	r.store.mu.Lock()
	records := r.store.calls["record"]
	r.store.mu.Unlock()
	r.Moved("refs/heads/main", []string{"https://git.example.com/acme/services"})
	h.eventually("the read", func() error {
		if s.reads.Load() == reads {
			return errors.New("no read")
		}
		return nil
	})
	push(t, repo, nil, "search")
	r.Moved("refs/heads/main", []string{"https://git.example.com/acme/services"})
	h.deploys("acme", "cart", "checkout")
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	// one for the folder, and one or two for the proof of its deletion
	if n := r.store.calls["record"] - records; n > 3 {
		t.Errorf("%d records", n)
	}
}

func TestAListingThatIsLostDeletesNothing(t *testing.T) {
	t.Parallel()
	s, repo, h, r := newShop(t, options{listingPoll: 300 * time.Millisecond}, "cart", "checkout")

	s.failWith(always("answered 404"))
	h.problem("listing-failed", "answered 404", true)
	h.deploys("acme", "cart", "checkout")
	h.eventually("the set shows the error", func() error {
		return h.isSet(func(s view.Set) bool {
			return len(s.Deployments) == 2 && s.Problems == 1 &&
				s.Listings[0].Error == "answered 404" && s.Listings[0].Since != nil
		})
	})
	s.failWith(nil)
	h.problem("listing-failed", "", false)

	// a commit without any folder: complete, and empty
	push(t, repo, map[string]string{"README.md": "moved away"}, "cart", "checkout")
	h.problem("empty-listing", "nothing matches", true)
	h.deploys("acme", "cart", "checkout")

	push(t, repo, services("cart", "checkout"))
	h.problem("empty-listing", "", false)

	// the branch is renamed
	if _, err := repo.Git(t.Context(), "branch", "-m", "main", "trunk"); err != nil {
		t.Fatal(err)
	}
	h.problem("listing-failed", "no branch or tag", true)
	h.deploys("acme", "cart", "checkout")

	// Another leader cannot read the repository. It has the last listing.
	s.failWith(always("no route to host"))
	r.stop()
	h.start("two", options{lister: s})
	h.commit("edit the template", discovering("acme", "shop", "deletionPolicy: Orphan"))
	h.eventually("the edit", func() error {
		source, err := h.store.Views.Source(context.Background())
		if err != nil || source.Applied != h.head() {
			return fmt.Errorf("%s is applied: %w", source.Applied.Short(), err)
		}
		return nil
	})
	h.deploys("acme", "cart", "checkout")
}

func TestARestartKeepsASetWithoutItsRepository(t *testing.T) {
	t.Parallel()
	s, repo, h, r := newShop(t, options{}, "cart", "checkout")
	s.failWith(always("no route to host"))
	r.stop()
	h.start("two", options{lister: s})
	h.problem("listing-failed", "no route to host", true)
	h.commit("edit the template", discovering("acme", "shop", "deletionPolicy: Orphan"))
	h.eventually("the edit reaches both deployments", func() error {
		n := 0
		for _, row := range h.rows() {
			if row.Key.Kind == fleet.ObjectApplication && !row.Unwanted &&
				row.Deletion == fleet.DeletionOrphan {
				n++
			}
		}
		if n != 2 {
			return fmt.Errorf("%d of 2", n)
		}
		return nil
	})
	s.failWith(nil)
	push(t, repo, nil, "cart")
}

// defective panics on a deployment named defect, as a defect of Argosy could.
type defective struct {
	argocd.Renderer
	panics *atomic.Int64
}

func (d defective) Render(e fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	if o.Application != nil && o.Application.ID.Deployment == "defect" {
		d.panics.Add(1)
		panic("index out of range")
	}
	return d.Renderer.Render(e, o)
}

func TestASetThatCannotBePlannedKeepsItsStateAndStopsNoOther(t *testing.T) {
	t.Parallel()
	s, repos := newShelf(t, "acme", "globex")
	push(t, repos["acme"], services("cart"))
	push(t, repos["globex"], services("web"))
	h := newHouse(t, together(platform(), tenant("acme", "prod"), tenant("globex", "prod"),
		discovering("acme", "shop", ""), discovering("globex", "site", "")))
	var panics atomic.Int64
	r := h.start("one", options{lister: s, renderer: defective{panics: &panics}})
	h.deploys("acme", "cart")
	h.deploys("globex", "web")
	const main, acme, globex = "refs/heads/main", "https://git.example.com/acme/services",
		"https://git.example.com/globex/services"

	push(t, repos["acme"], services("defect"))
	r.Moved(main, []string{acme})
	h.problem("cannot-render", "it cannot be planned with its new listing", true)
	h.deploys("acme", "cart")
	h.atRest(r)
	before := panics.Load()
	push(t, repos["globex"], services("api"))
	r.Moved(main, []string{globex})
	h.deploys("globex", "api", "web")
	h.commit("another file", deployment("acme", "else", "v1", "Delete", "prod"))
	h.deploys("acme", "cart", "else")
	if n := panics.Load(); n != before {
		t.Errorf("it is planned again without a reason: %d panics after %d", n, before)
	}

	push(t, repos["acme"], services("checkout"), "defect")
	r.Moved(main, []string{acme})
	h.problem("cannot-render", "", false)
	h.deploys("acme", "cart", "checkout", "else")
}

func TestFoldersThatVanishAreGuarded(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d", "e", "f"}
	_, repo, h, r := newShop(t, options{}, names...)
	push(t, repo, nil, "b", "c", "d", "e", "f")
	r.Moved("refs/heads/main", []string{"https://git.example.com/acme/services"})
	h.eventually("a hold", func() error { return h.held(h.head(), mirror.HoldDeletions) })
	if n := len(h.wanted("acme")); n < 3 {
		t.Errorf("%d Applications are wanted", n)
	}
	approve(t, h, h.head())
	h.deploys("acme", "a")
}

// listedFor lets a pull request list the repositories of one tenant.
func listedFor(tenant fleet.TenantName) func(fleet.TenantName) bool {
	return func(t fleet.TenantName) bool { return t == tenant }
}

func (s *shelf) read() []reconciler.ListingRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// A set of acme in effect and one of a pull request have the same request.
func TestAPullRequestWithoutAnOwnersApprovalShowsNoListingInEffect(t *testing.T) {
	t.Parallel()
	_, _, h, r := newShop(t, options{}, "cart", "checkout")
	files := discovering("acme", "shop", "")
	for path, text := range files {
		files[path] = strings.Replace(text, "${item.name}", "x-${item.name}", 1)
	}
	request := h.propose(7, h.head(), files)
	p := h.preview(r, request)
	if text := fmt.Sprintf("%+v %+v", p.Problems, p.Plan.Counts); p.Plan.Counts.Created != 0 ||
		p.Plan.Counts.Deleted != 0 || strings.Contains(text, "cart") {
		t.Errorf("shown: %s", text)
	}
	request.Lists = listedFor("acme")
	if p = h.preview(r, request); p.Plan.Counts.Created == 0 {
		t.Errorf("an owner has approved: %+v %+v", p.Problems, p.Plan.Counts)
	}
}

func TestAPullRequestShowsTheDeploymentsOfItsSet(t *testing.T) {
	t.Parallel()
	s, repos := newShelf(t, "acme")
	push(t, repos["acme"], services("cart", "checkout"))
	h := newHouse(t, together(platform(), tenant("acme", "prod"), map[string]string{
		"tenants/acme/credentials/services.yaml": document("RepositoryCredential", "services",
			"repoURL: \"https://git.example.com/acme/services\"\n  credentialsRef: {name: services}")}))
	r := h.start("one", options{lister: s})
	h.atRest(r)
	request := h.propose(7, h.head(), discovering("acme", "shop", ""))
	p := h.preview(r, request)
	if p.Plan.Counts.Created != 0 || len(s.read()) > 0 || !slices.ContainsFunc(p.Problems,
		func(p fleet.Problem) bool {
			return p.Code == "not-expanded" && strings.Contains(p.Message,
				"an owner of tenant acme has approved the newest commit")
		}) {
		t.Errorf("that no owner approved: %+v %+v %+v", p.Plan.Counts, p.Problems, s.read())
	}
	request.Lists = listedFor("acme")
	s.failWith(always("answered 404"))
	p = h.preview(r, request)
	if p.Plan.Counts.Created != 0 || !slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool {
		return p.Code == "not-expanded" && strings.Contains(p.Message, "answered 404") &&
			p.Severity == fleet.SeverityError
	}) {
		t.Errorf("without a listing: %+v %+v", p.Plan.Counts, p.Problems)
	}
	s.failWith(nil)
	p = h.preview(r, request)
	if len(p.Problems) > 0 || p.Plan.Counts.Created < 2 {
		t.Errorf("with a listing: %+v %+v", p.Plan.Counts, p.Problems)
	}
	s.mu.Lock()
	last := s.seen[len(s.seen)-1]
	s.mu.Unlock()
	if c := last.Credential; c == nil || c.Tenant != "acme" || c.Name != "services" {
		t.Errorf("read with the credential %+v", c)
	}
	// the first expansion after the merge has what the pull request showed, in the same plan
	s.failWith(always("answered 404"))
	merged := h.merge(request)
	h.deploys("acme", "cart", "checkout")
	for _, row := range h.rows() {
		if row.Key.Kind == fleet.ObjectApplication && row.Revision != merged {
			t.Errorf("%s is of revision %s", row.Deployment, row.Revision)
		}
	}
}

func TestACredentialOfAPullRequestIsNeverUsed(t *testing.T) {
	t.Parallel()
	s, repos := newShelf(t, "acme", "globex")
	push(t, repos["acme"], services("cart"))
	push(t, repos["globex"], services("secret"))
	h := newHouse(t, together(platform(), tenant("acme", "prod"), tenant("globex", "prod")))
	r := h.start("one", options{lister: s})
	h.atRest(r)
	files := together(discovering("acme", "shop", ""), map[string]string{
		"tenants/acme/credentials/services.yaml": document("RepositoryCredential", "services",
			"repoURL: \"https://git.example.com/acme/services\"\n  credentialsRef: {name: services}"),
		// of a repository that the tenant is not granted
		"tenants/acme/sets/spy.yaml": strings.ReplaceAll(
			discovering("globex", "spy", "")["tenants/globex/sets/spy.yaml"], "globex-web",
			"acme-web")})
	request := h.propose(7, h.head(), files)
	request.Lists = listedFor("acme")
	p := h.preview(r, request)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, read := range s.seen {
		if read.Credential != nil || read.RepoURL != "https://git.example.com/acme/services" {
			t.Errorf("read %+v", read)
		}
	}
	if !slices.ContainsFunc(p.Problems, func(p fleet.Problem) bool {
		return strings.Contains(p.Message, "not granted")
	}) {
		t.Errorf("%+v", p.Problems)
	}
}

// A stranger may write any template beside a request that is in effect.
func TestAStrangersPullRequestShowsNothingOfAListedRepository(t *testing.T) {
	t.Parallel()
	secret := "project-x-" + strings.Repeat("y", 30)
	_, _, h, r := newShop(t, options{}, "web", secret)
	spy := strings.ReplaceAll(discovering("acme", "spy", "")["tenants/acme/sets/spy.yaml"],
		`{name: "${item.name}"}`,
		`{name: "${item.name}-2", labels: {a: "${item.name}-${item.name}"}}`)
	p, err := r.Parse(t.Context(), h.propose(7, h.head(), map[string]string{
		"tenants/acme/sets/spy.yaml": spy}))
	if err != nil || len(p.Files) != 1 {
		t.Fatal(err, p.Files)
	}
	for _, problem := range p.Problems {
		if strings.Contains(problem.String(), "project-x") {
			t.Error(problem)
		}
	}
}

func TestASlowRepositoryDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	s, repos := newShelf(t, "acme", "globex")
	push(t, repos["acme"], services("cart"))
	push(t, repos["globex"], services("shop"))
	s.failWith(func(ctx context.Context, r reconciler.ListingRead) error {
		if r.Tenant == "acme" {
			<-ctx.Done()
		}
		return nil
	})
	h := newHouse(t, together(platform(), tenant("acme", "prod"), tenant("globex", "prod"),
		discovering("acme", "shop", "")))
	h.start("one", options{lister: s})
	h.problem("not-expanded", "not been read", true)
	h.commit("another tenant", together(discovering("globex", "shop", ""),
		deployment("acme", "web", "v1", "Delete", "prod")))
	h.deploys("globex", "shop")
	h.deploys("acme", "web")
}
