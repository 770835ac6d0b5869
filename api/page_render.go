package api

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strconv"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/printable"
	"argosy.dev/argosy/fleet/view"
)

// Pages consist of parts. A part is a template named "part-<name>", or the whole "content" of a
// page; the page's script asks for the parts that an event may have changed with the header
// Argosy-Parts, "name=hash name=hash", and gets those whose hash differs.
const (
	partsHeader = "Argosy-Parts"
	worthZip    = 1400
)

// anyKind concerns every event.
const anyKind = "agent application audit engine environment hold operation pool problem pull " +
	"rebalance revision ring rollout source stop tenant"

// kindsOf are the kinds of events that may change a page's content; other pages: any.
var kindsOf = map[string]string{
	"agents": "agent engine", "pulls": "pull", "pull": "pull hold", "rings": "ring engine",
	"pools": "pool engine", "freezes": "freeze hold", "rollouts": "rollout",
	"rollout": "rollout", "orphans": "engine", "unproven": "engine", "differences": "ring",
	"application": "", "failure": "", "signin": "", "confirm": "",
	"audit": "audit",
}

var pages = parsePages("signin", "signedin", "sessions", "tenants",
	"overview", "applications", "tenant", "engine",
	"environment",
	"application", "agents", "orphans", "unproven", "rings", "pools", "rollouts", "rollout",
	"freezes", "pulls", "pull", "differences", "failure", "list", "deployment", "revision",
	"operation", "search", "services", "confirm",
	"audit")

func parsePages(names ...string) map[string]*template.Template {
	parsed := map[string]*template.Template{}
	for _, name := range names {
		t := template.New(name)
		// a part is rendered on its own, so that its hash can be on its element
		t.Funcs(template.FuncMap{"ago": ago, "at": at, "tone": tone, "percent": percent,
			"mebibytes": mebibytes, "short": fleet.Revision.Short, "deed": actionTone,
			"agentstate": agentState, "web": web, "asset": asset, "icon": icon, "plural": plural,
			"commitweb": commitWeb, "fileweb": fileWeb, "repoweb": repoWeb, "fileof": fileOf,
			"subjectlink": subjectLink, "took": took, "brief": brief,
			"platformengine": platformEngine,
			"listof": func(page overview, items any) listView {
				return listView{frame: page.frame, Items: items}
			},
			"pair": func(page, items any) pair { return pair{page, items} },
			"part": func(part string, data any) (template.HTML, error) {
				out, err := renderPart(t, name, part, data)
				return template.HTML(out.html), err // html/template has escaped it
			},
			"rows": func(kind string, data any) (template.HTML, error) {
				var out bytes.Buffer
				err := t.ExecuteTemplate(&out, "rows-"+kind, data)
				return template.HTML(out.String()), err // as above
			}})
		parsed[name] = template.Must(t.ParseFS(pageFiles, "page/frame.html", "page/parts.html",
			"page/rows.html", "page/"+name+".html"))
	}
	return parsed
}

// pair passes a page and the items of one of its tables to a template.
type pair struct{ Page, Items any }

// liveKinds returns the kinds of events that may change a part of a page.
func liveKinds(page, part string) string {
	kinds, ok := kindsOf[page]
	if part != "content" {
		kinds, ok = partKinds[part]
	}
	if !ok {
		return anyKind
	}
	return kinds
}

type renderedPart struct {
	html, hash string
}

// renderPart renders a part with its hash. The texts of times do not count for the hash: a script
// keeps them current.
func renderPart(t *template.Template, page, name string, data any) (renderedPart, error) {
	define := "part-" + name
	if name == "content" {
		define = name
	}
	var out bytes.Buffer
	if err := t.ExecuteTemplate(&out, define, data); err != nil {
		return renderedPart{}, err
	}
	content := printable.Lines(out.Bytes())
	hash := timelessHash(content)
	return renderedPart{hash: hash, html: fmt.Sprintf(
		`<div class="part" id="part-%s" data-part="%s" data-kinds="%s" data-hash="%s">%s</div>`,
		name, name, liveKinds(page, name), hash, content)}, nil
}

// timelessHash is the hash of a part without the texts of its times.
func timelessHash(content []byte) string {
	h := sha256.New()
	for {
		at := bytes.Index(content, []byte("<time"))
		if at < 0 {
			break
		}
		end := bytes.IndexByte(content[at:], '>')
		if end < 0 {
			break
		}
		h.Write(content[:at+end+1]) // never fails
		content = content[at+end+1:]
		if text := bytes.IndexByte(content, '<'); text >= 0 {
			content = content[text:]
		}
	}
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// show renders a page, or the parts of it that the request names, or the failure to read it.
func (s *website) show(w http.ResponseWriter, r *http.Request, token view.Token, page,
	subject string, data any, err error) {
	if err != nil {
		s.failPage(w, r, token, subject, err)
		return
	}
	if n, ok := r.Context().Value(renewedKey{}).(*renewed); ok {
		n.page, n.data = page, data
		return
	}
	s.write(w, r, http.StatusOK, page, func(out *bytes.Buffer) error {
		return pages[page].ExecuteTemplate(out, "frame", data)
	})
}

// partKinds are the kinds of events that may change a part, for all pages.
var partKinds = map[string]string{
	"header": "application engine environment stop", "panel": "application",
}

// write sends what render makes. It buffers, so that a failing template sends nothing.
func (s *website) write(w http.ResponseWriter, r *http.Request, status int, page string,
	render func(*bytes.Buffer) error) {
	var out bytes.Buffer
	if err := render(&out); err != nil {
		s.notRendered(w, page, err)
		return
	}
	sendPage(w, r, status, printable.Lines(out.Bytes()))
}

func (s *website) notRendered(w http.ResponseWriter, page string, err error) {
	s.log.Error("failed to render a page", "page", page, "error", err)
	http.Error(w, "this page cannot be shown: see the log of argosy serve",
		http.StatusInternalServerError)
}

// sendPage sends a page, or parts of one.
func sendPage(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if r != nil {
		w.Header().Add("Vary", "Accept-Encoding, "+partsHeader)
		if len(body) == 0 {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		if len(body) >= worthZip && acceptsGzip(r) {
			w.Header().Set("Content-Encoding", "gzip")
			body = gzipped(body, gzip.BestSpeed)
		}
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has disconnected
}

// render sends a page that is never read in parts.
func (s *website) render(w http.ResponseWriter, status int, name string, data any) {
	s.write(w, nil, status, name, func(out *bytes.Buffer) error {
		return pages[name].ExecuteTemplate(out, "frame", data)
	})
}

func itoa(n int) string { return strconv.Itoa(n) }
