package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// inspectStore is a store with an Inspector.
type inspectStore struct {
	*apitest.Store
	from api.Inspector
}

func (s inspectStore) Inspector() api.Inspector { return s.from }

var (
	acmeWeb   = fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	globexWeb = fleet.ApplicationID{Tenant: "globex", Deployment: "web", Environment: "prod"}
	webPod    = view.ResourceRef{Kind: "Pod", Namespace: "web", Name: "web-1", UID: "u-pod"}
)

// hostileText is text that a workload controls.
const hostileText = "<script>alert(1)</script>\x1b[31m\u202egnp"

func resources() apitest.Resources {
	return apitest.Resources{
		Tree: view.Tree{Nodes: []view.TreeNode{{ResourceRef: webPod, Parent: -1,
			Health: mirror.HealthDegraded, Message: hostileText, Reason: "CrashLoopBackOff"}}},
		Diff: view.ApplicationDiff{Resources: []view.ResourceDiff{{ResourceRef: webPod,
			Change: mirror.ResourceUpdated, Diff: hostileText}}},
		Events: []view.ResourceEvent{{Resource: webPod, Reason: "BackOff", Message: hostileText}},
		Logs:   map[string][]view.LogLine{"web-1/app": {{Text: "first"}, {Text: hostileText}}},
		Syncs:  []view.PastSync{{ID: 1, Phase: "Succeeded", Revisions: []string{"abc"}}},
	}
}

func inspectSite(t *testing.T) (*site, *apitest.Inspector) {
	t.Helper()
	i := apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{acmeWeb: resources(),
		globexWeb: resources()})
	return newSiteOver(t, inspectStore{apitest.New(content()), i}), i
}

func pathTo(id fleet.ApplicationID, what string) string {
	return fmt.Sprintf("/tenants/%s/applications/%s/%s/%s", id.Tenant, id.Deployment,
		id.Environment, what)
}

const podQuery = "kind=Pod&namespace=web&name=web-1"

// inspectPaths are all reads of an Application's resources.
var inspectPaths = []string{"tree", "diff", "syncs", "resource?" + podQuery, "resource-events",
	"resource-events?" + podQuery, "logs?namespace=web&pod=web-1&container=app"}

func TestResourcesOfAnotherTenantAreNeverRead(t *testing.T) {
	s, inspector := inspectSite(t)
	for _, path := range inspectPaths {
		s.want(s.get(pathTo(acmeWeb, path), acmeToken), http.StatusOK)
		there := s.get(pathTo(globexWeb, path), acmeToken)
		missing := s.get(pathTo(fleet.ApplicationID{Tenant: "acme", Deployment: "none",
			Environment: "prod"}, path), acmeToken)
		s.want(there, http.StatusNotFound)
		s.want(missing, http.StatusNotFound)
		s.want(s.do(http.MethodGet, wire.Base+pathTo(acmeWeb, path), "", ""),
			http.StatusUnauthorized)
	}
	for _, asked := range inspector.Asked() {
		if asked.ID.Tenant != "acme" || asked.Engine == "" {
			t.Errorf("a token of acme has read %+v", asked)
		}
	}
}

func TestTextsOfWorkloadsAreEscaped(t *testing.T) {
	s, _ := inspectSite(t)
	for _, path := range inspectPaths {
		a := s.get(pathTo(acmeWeb, path), acmeToken)
		if s.want(a, http.StatusOK); strings.ContainsAny(a.body, "\x1b\u202e") ||
			strings.HasPrefix(a.header.Get("Content-Type"), "text/html") ||
			a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

func TestAFailedReadNamesTheNextStepAndNoCause(t *testing.T) {
	s, inspector := inspectSite(t)
	for kind, status := range map[error]int{mirror.ErrNoTree: http.StatusConflict,
		mirror.ErrNotInTree: http.StatusNotFound, mirror.ErrInspectRefused: http.StatusConflict,
		mirror.ErrInspectBusy:        http.StatusTooManyRequests,
		mirror.ErrInspectUnreachable: http.StatusGatewayTimeout} {
		inspector.Fail(&mirror.InspectError{Kind: kind, Text: "for the tenant",
			Cause: errors.New("dial tcp 10.1.2.3")})
		for _, path := range []string{"tree", "logs?pod=web-1"} {
			a := s.get(pathTo(acmeWeb, path), acmeToken)
			s.want(a, status)
			if strings.Contains(a.body, "10.1.2.3") || !strings.Contains(a.body, "for the tenant") {
				t.Errorf("%v: %s", kind, a.body)
			}
		}
	}
}

// hanging is an engine that answers nothing until the read is cancelled.
type hanging struct {
	*apitest.Inspector
	began chan struct{}
}

func (h hanging) Tree(ctx context.Context, _ mirror.InspectedApplication) (mirror.Tree, error) {
	h.began <- struct{}{}
	<-ctx.Done()
	return mirror.Tree{}, context.Cause(ctx)
}

// Four reads hang: a fifth of the same token is refused at once, another token's is not, and the
// lists and the decisions of the token go on.
func TestAnEngineThatHangsDelaysNoOtherRequest(t *testing.T) {
	i := hanging{apitest.NewInspector(map[fleet.ApplicationID]apitest.Resources{
		acmeWeb: resources()}), make(chan struct{})}
	s := newSiteOver(t, inspectStore{apitest.New(content()), i})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { ended <- struct{}{} }()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+wire.Base+
				pathTo(acmeWeb, "tree"), nil)
			if err != nil {
				return
			}
			req.Header.Set("Authorization", "Bearer "+acmeToken)
			if answer, err := http.DefaultClient.Do(req); err == nil {
				_ = answer.Body.Close()
			}
		}()
		<-i.began
	}
	s.want(s.get(pathTo(acmeWeb, "diff"), acmeToken), http.StatusTooManyRequests)
	s.want(s.get(pathTo(acmeWeb, "diff"), platformToken), http.StatusOK)
	s.want(s.do(http.MethodPost, wire.Base+"/stop", acmeToken, `{"scope":"tenant","name":"acme"}`),
		http.StatusOK)
	cancel()
	for range 4 {
		<-ended
	}
}

func TestALogIsFollowedUntilTheReaderGoes(t *testing.T) {
	s, _ := inspectSite(t)
	c, err := client.New(s.url, acmeToken, "test")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	_, err = c.Logs(ctx, acmeWeb, view.LogRequest{Pod: webPod, Container: "app", Follow: true},
		func(lines []view.LogLine) error {
			for _, l := range lines {
				got = append(got, l.Text)
			}
			if len(got) == 2 {
				cancel()
			}
			return nil
		})
	if len(got) != 2 || got[1] != hostileText {
		t.Errorf("got %q, %v", got, err)
	}
	end, err := c.Logs(t.Context(), acmeWeb, view.LogRequest{Pod: webPod, Container: "app",
		Tail: 1}, func(lines []view.LogLine) error {
		got = append(got, lines[0].Text)
		return nil
	})
	if err != nil || end != mirror.LogComplete || len(got) != 3 {
		t.Errorf("got %q, %s, %v", got, end, err)
	}
}

// Eight streams of a token are open: a ninth is refused.
func TestTheStreamsOfATokenAreBounded(t *testing.T) {
	s, _ := inspectSite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 8 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+wire.Base+
			pathTo(acmeWeb, "logs?namespace=web&pod=web-1&container=app&follow=true"), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+acmeToken)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		var m wire.LogMessage
		line, err := bufio.NewReader(answer.Body).ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &m) != nil || len(m.Lines) != 1 {
			t.Fatalf("%q, %v", line, err)
		}
	}
	s.want(s.get(pathTo(acmeWeb, "logs?namespace=web&pod=web-1&container=app&follow=true"),
		acmeToken), http.StatusTooManyRequests)
	s.want(s.get(pathTo(acmeWeb, "tree"), acmeToken), http.StatusOK)
}
