package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// A person changes something from the page in two steps (ADR 0094): GET /do/VERB lists exactly what
// the change covers, and POST of the same URL makes it. The POST carries a token over what the
// person has seen; if that has changed since, the page lists it again.

const (
	doPath      = "/do/"
	confirmTime = 5 * time.Minute // for which a token is valid
	maxCovered  = 200             // entries of one list of a confirmation
)

type (
	// pageChange is one kind of change that the page offers. It calls the handlers of the API, so
	// that both have the same rules.
	pageChange struct {
		Word   string // on its button
		Danger bool
		needs  func(url.Values) (access.Verb, access.Kind)
		// choose adds to the query string what is done unless another thing is; nil: nothing
		choose func(*website, context.Context, url.Values) (bool, error)
		show   func(*website, context.Context, url.Values) (shownChange, error)
		// commit makes the change, and returns the path of the page that shows its result
		commit func(*website, context.Context, url.Values, shownChange, consent) (string, error)
	}
	// shownChange is what a person sees before the change.
	shownChange struct {
		Subject string
		Does    string
		Lists   []coveredList
		Notes   []string
		Refused string // why it cannot be made now
		Back    string // path of the object's page
		Options []changeOption
		// what the token covers besides the lists of objects
		State     string
		Resources []mirror.ActionResource // the only ones that an action changes; none: all
		// Informs: the lists inform, and a change of them does not ask the person again
		Informs bool
		Reason  bool // the form has a field for a reason
	}
	coveredList struct {
		Title string
		Items []coveredItem
		More  bool // the list is longer
	}
	coveredItem struct{ Name, Detail, Href string } // Href: what a choice of it would do
	// changeOption is a choice of the person before the confirmation.
	changeOption struct {
		Field, Label, Value string
		Flag                bool // true, or absent
	}
	// consent is what the form of the confirmation sends besides the token.
	consent struct {
		ID     string // of the confirmation
		Reason string
	}
	confirmView struct {
		frame
		Verb    string
		Change  pageChange
		Shown   shownChange
		Action  string // path and query of the form
		Fields  []changeOption
		Token   string
		Message string // why it is shown again
	}
)

// registerChanges registers the changes of the page.
func (s *website) registerChanges() {
	sameOrigin := http.NewCrossOriginProtection()
	sameOrigin.SetDenyHandler(http.HandlerFunc(s.foreignOrigin))
	s.mux.Handle("GET "+doPath+"{verb}", s.acting(s.confirmPage))
	s.mux.Handle("POST "+doPath+"{verb}", sameOrigin.Handler(s.acting(s.confirmed)))
}

func (s *website) foreignOrigin(w http.ResponseWriter, r *http.Request) {
	s.failPage(w, r, view.Token{}, "confirmation", problem(http.StatusForbidden, "confirmation",
		"another site has sent it", "open the object on this page, and confirm the change here"))
}

// acting serves a change to a person that is signed in. The cookie of a pasted token authorizes no
// change.
func (s *website) acting(next func(http.ResponseWriter, *http.Request, pageChange)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		change, ok := pageChanges[r.PathValue("verb")]
		plaintext := sessionToken(r)
		if plaintext == "" {
			http.Redirect(w, r, "/signin", http.StatusSeeOther)
			return
		}
		c, refusal := s.identify(r.Context(), plaintext, pageAsksFor(r))
		switch {
		case refusal != nil && refusal.Status == http.StatusUnauthorized:
			http.SetCookie(w, sessionCookie(r, "", -1))
			http.Redirect(w, r, "/signin", http.StatusSeeOther)
			return
		case refusal != nil:
			s.failPage(w, r, view.Token{}, "session", refusal)
			return
		case c.session == nil:
			s.failPage(w, r, c.token, "session", problem(http.StatusForbidden, "session",
				"a token shows pages, and changes nothing from them",
				"sign in as a person, or use the command line with the token"))
			return
		case c.unscoped != nil:
			s.chooseTenant(w, r, c)
			return
		case !ok:
			s.failPage(w, r, c.token, "page", mirror.ErrNotFound)
			return
		}
		leave, refusal := s.admitRead(r, c.id())
		if refusal != nil {
			w.Header().Set("Retry-After", "1")
			s.failPage(w, r, c.token, "page", refusal)
			return
		}
		defer leave()
		ctx := context.WithValue(r.Context(), callerKey{}, c)
		next(w, r.WithContext(audit.WithIdentity(ctx, identityOf(c))), change)
	})
}

// tenantIn is the tenant that a change is about.
func tenantIn(q url.Values) fleet.TenantName {
	if q.Get("scope") == string(mirror.StopTenant) {
		return named[fleet.TenantName](q, "name")
	}
	return named[fleet.TenantName](q, "tenant")
}

// permitted returns the refusal of a change that the role of the caller does not allow now.
func permitted(token view.Token, change pageChange, q url.Values) error {
	verb, kind := change.needs(q)
	if d := token.May(verb, kind, tenantIn(q)); !d.Allowed {
		return forbidden(token, "", d)
	}
	return nil
}

func (s *website) confirmPage(w http.ResponseWriter, r *http.Request, change pageChange) {
	token, q := callerOf(r.Context()), r.URL.Query()
	err := permitted(token, change, q)
	var shown shownChange
	if err == nil && change.choose != nil {
		var chosen bool
		if chosen, err = change.choose(s, r.Context(), q); chosen {
			http.Redirect(w, r, r.URL.Path+"?"+q.Encode(), http.StatusSeeOther)
			return
		}
	}
	if err == nil {
		shown, err = change.show(s, r.Context(), q)
	}
	if err != nil {
		s.failPage(w, r, token, change.Word, err)
		return
	}
	s.ask(w, r, http.StatusOK, change, shown, "")
}

// ask shows a confirmation; message is the reason why it is shown again.
func (s *website) ask(w http.ResponseWriter, r *http.Request, status int, change pageChange,
	shown shownChange, message string) {
	v := confirmView{frame: s.framed(r, callerOf(r.Context()), change.Word+" "+shown.Subject),
		Verb: r.PathValue("verb"), Change: change, Shown: shown, Message: message,
		Action: doPath + r.PathValue("verb") + "?" + r.URL.Query().Encode(),
		Token:  newConfirmation(sessionToken(r), s.now().Add(confirmTime), seal(r, shown))}
	options := map[string]bool{}
	for _, o := range shown.Options {
		options[o.Field] = true
	}
	for field, values := range r.URL.Query() {
		if !options[field] {
			v.Fields = append(v.Fields, changeOption{Field: field, Value: values[0]})
		}
	}
	s.render(w, status, "confirm", v)
}

// confirmed makes a change as it was shown.
func (s *website) confirmed(w http.ResponseWriter, r *http.Request, change pageChange) {
	ctx, q := r.Context(), r.URL.Query()
	token := callerOf(ctx)
	fail := func(err error) { s.failPage(w, r, token, "confirmation", err) }
	given, err := openConfirmation(sessionToken(r), r.PostFormValue("confirmation"))
	if err == nil {
		err = permitted(token, change, q)
	}
	var shown shownChange
	if err == nil {
		shown, err = change.show(s, ctx, q)
	}
	switch {
	case err != nil:
		fail(err)
		return
	case shown.Refused != "":
		s.ask(w, r, http.StatusConflict, change, shown, "It cannot be done now.")
		return
	case !s.now().Before(given.expires):
		s.ask(w, r, http.StatusConflict, change, shown,
			"This confirmation is older than five minutes. Check the list, and confirm.")
		return
	case given.seal != seal(r, shown):
		s.ask(w, r, http.StatusConflict, change, shown,
			"Something has changed since you looked, and nothing was done. Check the "+
				"list, and confirm.")
		return
	}
	err = s.sessions.UseOnce(ctx, "confirmation "+given.id)
	if errors.Is(err, mirror.ErrReplayed) {
		fail(problem(http.StatusConflict, "confirmation", "it was used already",
			"see its result in the operations; to do it again, open the object and confirm again"))
		return
	}
	if err != nil {
		fail(err)
		return
	}
	reason := strings.ToValidUTF8(r.PostFormValue("reason"), "")
	to, err := change.commit(s, ctx, q, shown, consent{ID: given.id,
		Reason: reason[:min(len(reason), 1024)]})
	if err != nil {
		fail(err)
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// seal is a digest of what the person confirms: the verb, the choices, the scope and the objects.
func seal(r *http.Request, shown shownChange) string {
	covered := struct {
		Verb, Query, Scope, Subject, Does, State string
		Lists                                    []coveredList
		Resources                                []mirror.ActionResource
	}{r.PathValue("verb"), r.URL.Query().Encode(), string(callerOf(r.Context()).Tenant),
		shown.Subject, shown.Does, shown.State, shown.Lists, shown.Resources}
	if shown.Informs {
		covered.Lists = nil
	}
	text, _ := json.Marshal(covered) // strings alone
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// confirmation is an opened token.
type confirmation struct {
	id, seal string
	expires  time.Time
}

// newConfirmation returns a token: ID, expiry and seal with a MAC. The key is derived from the
// secret of the session, so that every replica verifies it, and no other session's.
func newConfirmation(secret string, expires time.Time, seal string) string {
	return signed(secret, fmt.Sprintf("%s.%d.%s", rand.Text(), expires.Unix(), seal))
}

func signed(secret, text string) string {
	key := hmac.New(sha256.New, []byte(secret))
	key.Write([]byte("argosy confirmation v1"))
	mac := hmac.New(sha256.New, key.Sum(nil))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// openConfirmation refuses a token that this session did not get.
func openConfirmation(secret, token string) (c confirmation, err error) {
	text, _, _ := cutLast(token, ".")
	parts := strings.Split(text, ".")
	if len(parts) != 3 || !hmac.Equal([]byte(signed(secret, text)), []byte(token)) {
		return c, problem(http.StatusForbidden, "confirmation",
			"it is not one that this session has got",
			"open the object, and confirm the change on its page")
	}
	seconds, err := strconv.ParseInt(parts[1], 10, 64)
	return confirmation{parts[0], parts[2], time.Unix(seconds, 0)}, err
}

// changeHref is the path of the confirmation of a change.
func changeHref(verb string, fields ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			q.Set(fields[i], fields[i+1])
		}
	}
	return doPath + verb + "?" + q.Encode()
}

// changeButton leads to the confirmation of a change.
type changeButton struct {
	Word, Href string
	Danger     bool
}

// Button returns the button of a change, none if the person may not make it. The scope is that of
// the confirmation: see acting.
func (f frame) Button(verb string, fields ...any) []changeButton {
	change, ok := pageChanges[verb]
	if f.session == nil || !ok {
		return nil
	}
	texts := make([]string, len(fields))
	for i, field := range fields {
		texts[i] = fmt.Sprint(field)
	}
	href := changeHref(verb, texts...)
	at, err := url.Parse(href)
	if err != nil {
		return nil
	}
	q := at.Query()
	scope, refusal := scopeOf(f.session.Roles, scopeAsked{chosen: f.Tenant,
		named: tenantIn(q), changes: true}, "")
	if refusal != nil || permitted(f.session.In(scope), change, q) != nil {
		return nil
	}
	return []changeButton{{change.Word, href, change.Danger}}
}

// Actions returns the buttons of what the person may ask of an Application. Only a reported
// operation has a button that ends it.
func (f frame) Actions(app view.Application) (buttons []changeButton) {
	id := app.ID()
	for _, a := range pageActions {
		if a.kind == mirror.ActionTerminate && (app.OperationPhase == "" || !operating(app)) {
			continue
		}
		buttons = append(buttons, f.Button(string(a.kind), "tenant", id.Tenant, "deployment",
			id.Deployment, "environment", id.Environment)...)
	}
	return buttons
}

// Decisions returns the buttons of what the person may decide about a rollout.
func (f frame) Decisions(r mirror.Rollout) (buttons []changeButton) {
	for _, verb := range rolloutVerbs {
		if r.Accepts(verb) {
			buttons = append(buttons, f.Button(string(verb)+"-rollout", "tenant", r.Tenant,
				"deployment", r.Deployment)...)
		}
	}
	return buttons
}

// refusalText returns a refusal as one sentence with the next step.
func refusalText(p *wire.Refusal) string {
	if p == nil {
		return ""
	}
	text := p.Detail
	if p.Next != "" {
		text += ": " + p.Next
	}
	return text
}
