package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func (s *Server) registerDifferences() {
	huma.Register(s.api, operation(http.MethodPost, "/differences/approve", "approveDifferences",
		"Approve exactly the named differences under the next version of Argo CD; it takes the "+
			"platform, or a token of an owner of the tenant", "decisions",
		s.approving(access.Tenant)),
		s.approveDifferences)
}

// approveDifferences approves them all or none. A difference of another tenant is not found.
func (s *Server) approveDifferences(ctx context.Context, in *asked[mirror.DifferenceApproval]) (
	*body[wire.ApprovedDifferences], error) {
	caller := callerOf(ctx)
	d := in.Body
	subject := subjectf("differences of ring %s", d.Ring)
	var err error
	for _, c := range d.Differences {
		if t := caller.Scope().Tenant; t != "" && t != c.Tenant {
			err = mirror.ErrNoDifference
		}
	}
	if err == nil { // of one tenant, or the platform's
		d.By, err = s.approver(ctx, caller, caller.Tenant)
	}
	if err == nil {
		err = s.decider.ApproveDifferences(ctx, d)
	}
	if errors.Is(err, mirror.ErrNoDifference) {
		return nil, problem(http.StatusConflict, subject, "one of the differences is not shown, or "+
			"not any more; none is approved", "see `argosy rings differences "+d.Ring+"`")
	}
	if err != nil {
		return nil, s.answer(ctx, subject, err)
	}
	return &body[wire.ApprovedDifferences]{wire.ApprovedDifferences{
		Approved: len(d.Differences)}}, nil
}

type differencesView struct {
	frame
	Ring        string
	Differences []mirror.Difference
	Next        string
}

// differencesPage lists what the next version of a ring renders differently. A tenant sees its own.
func (s *website) differencesPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	q := r.URL.Query()
	ring := r.PathValue("ring")
	v := differencesView{frame: s.framed(r, token, "Differences of ring "+ring,
		crumb{"Rings", "/rings"}), Ring: ring}
	var err error
	v.Differences, v.Next, err = s.reader.Differences(r.Context(), token.Scope(),
		view.Filter{Name: ring, Tenant: named[fleet.TenantName](q, "tenant")},
		view.Page{Limit: manyItems, After: cursor(q.Get("after"))})
	if v.Next != "" {
		more := url.Values{"after": {v.Next}}
		if t := q.Get("tenant"); t != "" {
			more.Set("tenant", t)
		}
		v.Next = "?" + more.Encode()
	}
	s.show(w, r, token, "differences", "differences", v, err)
}
