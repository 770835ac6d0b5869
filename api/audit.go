package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
	"github.com/danielgtaylor/huma/v2"
)

// AuditReader reads the audit log.
type AuditReader interface {
	// Audit match Filter.{Tenant, Engine, Revision, Pull, Entry}, newest first. With a tenant in
	// scope: the entries about that tenant.
	Audit(ctx context.Context, scope view.Scope, filter view.Filter, page view.Page) (
		[]audit.Entry, string, error)
	// SealedAudit returns at most limit (1..1000) sealed entries after the position, in the order
	// of the chain, with the filter of Audit.
	SealedAudit(ctx context.Context, scope view.Scope, filter view.Filter, after int64,
		limit int) ([]audit.Entry, error)
	// AuditState is where the chain begins and ends. The API calls it with the platform in scope
	// only.
	AuditState(ctx context.Context) (audit.State, error)
}

const (
	exportTime = 20 * time.Second // of one answer; the client goes on after its last entry
	exportPage = 500
)

type (
	// ByEntry filters entries of the audit log.
	ByEntry struct {
		ByTenant
		ByEngine
		ByRevision
		Actor     string    `query:"actor" maxLength:"256" doc:"Exactly, or a prefix with * at its end"`
		Action    string    `query:"action" maxLength:"64" doc:"Exactly, or a prefix with * at its end"`
		Subject   string    `query:"subject" maxLength:"512" doc:"Exactly, or a prefix with * at its end"`
		Pull      int       `query:"pull" minimum:"0" doc:"Number of a pull request"`
		Operation string    `query:"operation" maxLength:"64" pattern:"^[a-z0-9-]+$"`
		Since     time.Time `query:"since" doc:"RFC 3339, inclusive"`
		Until     time.Time `query:"until" doc:"RFC 3339, exclusive"`
		Text      string    `query:"text" maxLength:"256" doc:"Within actor, subject or detail, in any case"`
	}
	auditIn struct {
		Paging
		ByEntry
	}
	auditExportIn struct {
		ByEntry
		After int64 `query:"after" minimum:"0" doc:"Position of the last entry that you have"`
	}
)

func (in *ByEntry) filter() view.Filter {
	return view.Filter{Tenant: in.Tenant, Engine: in.Engine, Revision: in.Revision, Pull: in.Pull,
		Entry: view.EntryFilter{Actor: in.Actor, Action: in.Action, Subject: in.Subject,
			Operation: in.Operation, Since: in.Since, Until: in.Until, Text: in.Text}}
}

func (in *auditIn) query() (view.Filter, view.Page) { return in.filter(), in.page() }

func (s *Server) registerAudit() {
	list[auditIn](s, "audit", "Entries of the audit log, newest first; a tenant's token sees those "+
		"about that tenant", s.reader.Audit, s.may(access.Audit, access.Tenant))
	op := operation(http.MethodGet, "/audit/export", "export-audit",
		"Sealed entries of the audit log in the order of the chain, as JSON lines. An answer ends "+
			"after some seconds: go on with the position of its last entry as 'after' until one "+
			"has no line", "audit", []guard{s.may(access.Audit, access.Tenant)})
	op.Responses = map[string]*huma.Response{"200": {
		Description: "One entry in each line.",
		Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	huma.Register(s.api, op,
		func(ctx context.Context, in *auditExportIn) (*huma.StreamResponse, error) {
			scope := callerOf(ctx).Scope()
			return &huma.StreamResponse{Body: func(hc huma.Context) {
				_, w := unwrap(hc)
				s.exportAudit(ctx, w, scope, in.filter(), in.After)
			}}, nil
		})
	huma.Register(s.api, operation(http.MethodGet, "/audit/state", "audit-state",
		"Where the chain of the audit log begins and ends (platform)", "audit",
		[]func(huma.Context, func(huma.Context)){s.platformOnly}),
		func(ctx context.Context, _ *struct{}) (*body[audit.State], error) {
			state, err := s.reader.AuditState(ctx)
			if err != nil {
				return nil, s.answer(ctx, "audit", err)
			}
			return &body[audit.State]{state}, nil
		})
}

// exportAudit writes pages until the log ends or the answer has taken long enough. It holds no
// snapshot and no connection between pages, however slowly the client reads.
func (s *Server) exportAudit(ctx context.Context, w http.ResponseWriter, scope view.Scope,
	filter view.Filter, after int64) {
	control := http.NewResponseController(w)
	lines := json.NewEncoder(printable.JSONWriter(w))
	began, begun := s.now(), false
	for s.now().Sub(began) < exportTime {
		page, err := s.reader.SealedAudit(ctx, scope, filter, after, exportPage)
		if err != nil && !begun {
			var p *wire.Refusal
			errors.As(s.answer(ctx, "audit", err), &p)
			writeProblem(w, p)
			return
		}
		if err != nil {
			return // the client goes on after the last line that it has
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			begun = true
		}
		for _, e := range page {
			if lines.Encode(e) != nil {
				return // the client has gone
			}
			after = e.Position
		}
		if err := control.Flush(); err != nil || len(page) < exportPage {
			return
		}
	}
}
