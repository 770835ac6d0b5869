package github

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/webhook"
	"argosy.dev/argosy/webhook/github/githubtest"
)

func proposal() Proposal {
	return Proposal{
		Name: "Argosy of Acme", URL: "https://argosy.example/",
		HookURL: "https://argosy.example/webhook/github", RedirectURL: "http://127.0.0.1:9999/done",
		Org: "acme", State: "a&b",
	}
}

func TestManifest(t *testing.T) {
	for base, want := range map[string]string{
		"":                                "https://github.com/organizations/acme/settings/apps/new?state=a%26b",
		"https://git.example.com/api/v3/": "https://git.example.com/organizations/acme/settings/apps/new?state=a%26b",
	} {
		p := proposal()
		p.BaseURL = base
		form, text, err := Manifest(p)
		if form != want || err != nil {
			t.Errorf("the form is %s (%v)", form, err)
		}
		var m struct {
			Name        string            `json:"name"`
			Redirect    string            `json:"redirect_url"`
			Public      bool              `json:"public"`
			Hook        map[string]any    `json:"hook_attributes"`
			Permissions map[string]string `json:"default_permissions"`
			Events      []string          `json:"default_events"`
		}
		if err := json.Unmarshal(text, &m); err != nil || m.Name != p.Name ||
			m.Redirect != p.RedirectURL || m.Public || m.Hook["url"] != p.HookURL ||
			m.Hook["active"] != true {
			t.Errorf("the manifest is %s (%v)", text, err)
		}
		for name, level := range needed {
			if m.Permissions[name] != level {
				t.Errorf("of %s it asks for %q, and needed is %q", name, m.Permissions[name], level)
			}
		}
		proposing := p
		proposing.Proposals = true
		if _, text, err := Manifest(proposing); err != nil ||
			!strings.Contains(string(text), `"contents":"write"`) {
			t.Errorf("with proposals the manifest is %s (%v)", text, err)
		}
		// Every event that is asked for is understood, and the other way round but for those that
		// come unasked.
		for _, event := range m.Events {
			if _, err := webhook.Parse(event, []byte("{"), "main", 1); err == nil {
				t.Errorf("the event %s is asked for and not understood", event)
			}
		}
		if !slices.Contains(m.Events, "merge_group") || m.Permissions["merge_queues"] != "read" {
			t.Error("merge groups are not asked for")
		}
	}
	p := proposal()
	p.Org = ""
	if form, _, err := Manifest(p); !strings.HasPrefix(form,
		"https://github.com/settings/apps/new?") || err != nil {
		t.Errorf("without an organization the form is %s (%v)", form, err)
	}
	for name, change := range map[string]func(*Proposal){
		"no name": func(p *Proposal) { p.Name = "" }, "a long name": func(p *Proposal) {
			p.Name = strings.Repeat("x", 35)
		},
		"no URL": func(p *Proposal) { p.URL = "" }, "a script": func(p *Proposal) {
			p.HookURL = "javascript:x"
		}, "nowhere to return": func(p *Proposal) { p.RedirectURL = "done" },
		"a path as an organization": func(p *Proposal) { p.Org = "../x" },
		"Gitea": func(p *Proposal) {
			p.BaseURL = "https://git.example.com/api/v1/"
		},
		"no TLS": func(p *Proposal) { p.BaseURL = "http://git.example.com/" },
	} {
		p := proposal()
		change(&p)
		if _, _, err := Manifest(p); err == nil {
			t.Errorf("with %s there is a manifest", name)
		}
	}
}

func TestConvert(t *testing.T) {
	s := githubtest.Start(t)
	c := Config{BaseURL: s.URL, AllowHTTP: true}
	code := s.Propose("argosy")
	made, err := Convert(t.Context(), c, code)
	if err != nil {
		t.Fatal(err)
	}
	if made.ID == 0 || made.Slug != "argosy" || !strings.HasPrefix(made.HTMLURL, "https://") {
		t.Errorf("made is %+v", made)
	}
	if text := fmt.Sprintf("%v %+v %#v", made, made, made); strings.Contains(text, "PRIVATE KEY") ||
		strings.Contains(text, "hook-argosy") {
		t.Errorf("it prints its secrets: %s", text)
	}
	if got := made.Secret.Value(webhook.SecretKey); string(got) != "hook-argosy" {
		t.Errorf("the webhook's secret is %q", got)
	}
	// The returned credentials work.
	repo := s.Repository(s.User("acme"), "fleet", true)
	f, err := New(Config{BaseURL: s.URL, AllowHTTP: true, Repository: repo.Name, Auth: Auth{
		App: &App{ID: made.ID, Key: func(context.Context) ([]byte, error) {
			return made.Secret.Value(PrivateKey), nil
		}}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Repository(t.Context()); err == nil || !strings.Contains(err.Error(),
		"not installed") {
		t.Errorf("before it is installed: %v", err)
	}
	if _, err := Convert(t.Context(), c, code); err == nil || !strings.Contains(err.Error(),
		"start again") || strings.Contains(err.Error(), code) {
		t.Errorf("a second time: %v", err)
	}
	for _, bad := range []string{"", "../app", "a/b", "short"} {
		if _, err := Convert(t.Context(), c, bad); err == nil {
			t.Errorf("the code %q is sent", bad)
		}
	}
}

// The code is a secret: who has it gets the App's key.
func TestConvertKeepsTheCode(t *testing.T) {
	for name, fault := range map[string]githubtest.Fault{
		"502": githubtest.HTML(http.StatusBadGateway), "a broken connection": githubtest.CutOff,
		"an answer without a key": githubtest.JSON(`{"id":1,"slug":"x"}`),
		"an echo": func(w http.ResponseWriter, r *http.Request) {
			githubtest.Reply(http.StatusUnprocessableEntity, "no such code: "+r.URL.Path,
				"X-Accepted-Github-Permissions", r.URL.Path)(w, r)
		},
		"a redirect": githubtest.Redirect(http.StatusTemporaryRedirect, "http://127.0.0.1:1/"),
	} {
		s := githubtest.Start(t)
		code := s.Propose("argosy")
		s.Break("POST /*", fault)
		_, err := Convert(t.Context(), Config{BaseURL: s.URL, AllowHTTP: true}, code)
		if err == nil || strings.Contains(err.Error(), code) {
			t.Errorf("%s gives %v", name, err)
		}
	}
}
