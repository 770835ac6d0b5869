package githubtest

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Hook is a webhook and the tries of its deliveries.
type Hook struct {
	s     *Server
	id    int64
	url   string
	tries []*Try
	// Deliver is asked for the status of each redelivery; nil has them succeed.
	Deliver func(guid string) int
}

// Try is one try at a delivery.
type Try struct {
	ID         int64
	GUID       string
	Status     int
	repository int64
	at         time.Time
	again      bool
}

// Hook adds a webhook with the URL to the repository.
func (r *Repository) Hook(url string) *Hook {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	h := &Hook{s: r.s, id: r.s.id(), url: url}
	r.hooks = append(r.hooks, h)
	return h
}

// Hook is the App's own webhook.
func (a *App) Hook() *Hook { return a.hook }

// Try adds a try of a delivery that was answered with the status; repository is the event's
// repository, 0 for none.
func (h *Hook) Try(guid string, status int, repository int64) *Try {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	return h.try(guid, status, repository, false)
}

func (h *Hook) try(guid string, status int, repository int64, again bool) *Try {
	t := &Try{ID: h.s.id(), GUID: guid, Status: status, repository: repository, at: h.s.tick(),
		again: again}
	h.tries = append(h.tries, t)
	return t
}

func listHooks(_ *Server, r *request) answer {
	if r.install != nil || levels[r.repo.level(r.user)] < levels["admin"] {
		return notFound
	}
	list := []object{}
	for _, h := range r.repo.hooks {
		list = append(list, object{
			"id": h.id, "type": "Repository", "name": "web", "active": true, "config": object{
				"url": h.url, "content_type": "json", "secret": "********"},
		})
	}
	return answer{status: http.StatusOK, list: list}
}

func hookOf(r *request) *Hook {
	if r.app != nil {
		return r.app.hook
	}
	for _, h := range r.repo.hooks {
		if h.id == r.number("hook_id") && r.user != nil &&
			levels[r.repo.level(r.user)] >= levels["admin"] {
			return h
		}
	}
	return nil
}

// listTries lists the newest first, in pages with a cursor.
func listTries(s *Server, r *request) answer {
	h := hookOf(r)
	if h == nil {
		return notFound
	}
	q := r.URL.Query()
	size, err := strconv.Atoi(q.Get("per_page"))
	if err != nil {
		size = 30
	}
	all := slices.Clone(h.tries)
	slices.Reverse(all)
	if q.Has("cursor") {
		last, _ := strconv.ParseInt(strings.TrimPrefix(q.Get("cursor"), "v1_"), 10, 64)
		all = slices.DeleteFunc(all, func(t *Try) bool { return t.ID >= last })
	}
	a := answer{status: http.StatusOK, header: http.Header{}}
	if len(all) > size {
		all = all[:size]
		next := s.URL + strings.TrimPrefix(r.URL.EscapedPath(), "/") + "?per_page=" +
			strconv.Itoa(size) + "&cursor=v1_" + number(all[size-1].ID)
		a.header.Set("Link", "<"+next+`>; rel="next"`)
	}
	page := []object{}
	for _, t := range all {
		page = append(page, tryObject(t))
	}
	a.body = page
	return a
}

func tryObject(t *Try) object {
	o := object{
		"id": t.ID, "guid": t.GUID, "delivered_at": stamp(t.at), "redelivery": t.again,
		"status": http.StatusText(t.Status), "status_code": t.Status, "event": "push",
	}
	if t.repository != 0 {
		o["repository_id"] = t.repository
	}
	return o
}

func postAttempt(_ *Server, r *request) answer {
	h := hookOf(r)
	if h == nil {
		return notFound
	}
	at := slices.IndexFunc(h.tries, func(t *Try) bool { return t.ID == r.number("delivery_id") })
	if at < 0 {
		return notFound
	}
	status := http.StatusOK
	if h.Deliver != nil {
		status = h.Deliver(h.tries[at].GUID)
	}
	h.try(h.tries[at].GUID, status, h.tries[at].repository, true)
	return answer{status: http.StatusAccepted, body: object{}}
}
