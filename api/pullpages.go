package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/plan/report"
)

type (
	pullsView struct {
		frame
		Pulls []view.Pull
		Next  string
	}
	pullView struct {
		frame
		View view.Pull
		Plan *report.Report
	}
)

func (s *Server) pullsPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	v := pullsView{frame: s.frame("Pull requests", token)}
	var err error
	v.Pulls, v.Next, err = s.pulls(r.Context(), token.Scope(), view.Filter{}, view.Page{
		Limit: manyItems, After: cursor(r.URL.Query().Get("after"))})
	if v.Next != "" {
		v.Next = "?" + url.Values{"after": {v.Next}}.Encode()
	}
	s.show(w, r, token, "pulls", "pull requests", v, err)
}

func (s *Server) pullPage(w http.ResponseWriter, r *http.Request, token view.Token) {
	number, err := strconv.Atoi(r.PathValue("number"))
	subject := fmt.Sprintf("pull request %d", number)
	if err != nil || number <= 0 {
		s.failPage(w, r, token, "pull request", mirror.ErrNotFound)
		return
	}
	g := &gather{ctx: r.Context(), scope: token.Scope()}
	v := pullView{frame: s.frame("Pull request "+strconv.Itoa(number), token),
		View: the(g, s.pulls, view.Filter{Pull: number})}
	if g.err == nil {
		report, err := s.pullPlan(g.ctx, g.scope, number)
		switch {
		case err == nil:
			v.Plan = &report
		case !errors.Is(err, mirror.ErrNotFound):
			g.err = err
		}
	}
	s.show(w, r, token, "pull", subject, v, g.err)
}

// actionTone returns the colour of a plan's action.
func actionTone(action report.Action) string {
	return map[report.Action]string{report.Create: "good", report.Update: "busy", report.Delete: "bad",
		report.Hold: "bad"}[action]
}

// web reports whether a link from the Git host is an http or https URL.
func web(link string) bool {
	u, err := url.Parse(link)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != ""
}
