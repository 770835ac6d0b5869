package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func TestThePlatformForgetsAnEngineThatNeverReturns(t *testing.T) {
	m := content()
	m.Engines[0].Reachable = false
	m.Engines[0].Evacuation = &mirror.Evacuation{State: mirror.EvacuationMoved, Away: 2, Open: 1,
		Objects: 3, Since: time.Now(), At: time.Now()}
	s := newSite(t, m)
	ask := func(token, body string) answer {
		return s.do(http.MethodPost, wire.Base+"/forget/engine", token, body)
	}
	gone := `{"engine":"eu-1","confirmGone":"eu-1","reason":"fire"}`
	s.want(ask(acmeToken, gone), http.StatusForbidden, "")
	s.want(ask(readerToken, gone), http.StatusForbidden, "")
	s.want(ask(platformToken, `{"engine":"eu-9","confirmGone":"eu-9","reason":"fire"}`),
		http.StatusNotFound, "eu-9")
	s.want(ask(platformToken, `{"engine":"eu-1","confirmGone":"eu-1"}`),
		http.StatusUnprocessableEntity, "reason")
	s.want(ask(platformToken, `{"engine":"eu-1","confirmGone":"eu-2","reason":"fire"}`),
		http.StatusUnprocessableEntity, "--confirm-gone eu-1")
	s.want(ask(platformToken, gone), http.StatusConflict, "not evacuated completely",
		"argosy describe engine eu-1")
	m.Engines[0].Evacuation.Open = 0
	s = newSite(t, m)
	s.want(ask(platformToken, gone), http.StatusOK, `"forgottenBy":"token:ops"`, `"unproven":3`)
	s.want(ask(platformToken, gone), http.StatusConflict, "forgotten already")
	s.want(s.page("/engines/eu-1", platformToken), http.StatusOK, "Forgotten ",
		`href="/unproven?engine=eu-1"`, "3 objects are unproven")
}

func TestThePageShowsUnprovenObjectsToThePlatformAlone(t *testing.T) {
	m := content()
	none := newSite(t, m)
	if a := none.page("/", platformToken); strings.Contains(a.body,
		"Forgotten engines") {
		t.Error("a fleet without unproven objects shows some")
	}
	none.want(none.page("/unproven", platformToken), http.StatusOK, "No object is unproven")
	m.Unproven = []view.Unproven{
		{ID: 7, Lost: mirror.LostEngine, Engine: "eu-1", Kind: fleet.ObjectApplication,
			Name: "acme-old-prod", Tenant: "acme", UID: "uid-one", Risk: "it may sync",
			Server: "https://prod.example.com", Namespace: "shop", ForgottenBy: "token:ann",
			ForgottenAt: time.Now(), Reason: "<b>fire"},
		{ID: 8, Lost: mirror.LostEngine, Engine: "eu-2", Kind: fleet.ObjectProject, Name: "acme",
			Tenant: "acme", UID: "uid-two", ForgottenAt: time.Now()},
	}
	s := newSite(t, m)
	s.want(s.page("/", platformToken), http.StatusOK, `href="/unproven"`,
		"Forgotten engines")
	s.want(s.page("/unproven", platformToken), http.StatusOK, "eu-1/Application/acme-old-prod",
		"uid-two", "it may sync", "https://prod.example.com, namespace shop", "&lt;b&gt;fire",
		"argosy resolve-unproven")
	if a := s.page("/unproven?engine=eu-1", platformToken); a.status != http.StatusOK ||
		strings.Contains(a.body, "uid-two") {
		t.Errorf("%d, with another engine's object", a.status)
	}
	if a := s.page("/unproven", acmeToken); a.status != http.StatusNotFound ||
		strings.Contains(a.body, "uid-") {
		t.Errorf("a tenant sees unproven objects: %d", a.status)
	}
	if a := s.page("/", acmeToken); strings.Contains(a.body, "/unproven") {
		t.Error("a tenant's overview shows unproven objects")
	}
	resolve := func(token, body string) answer {
		return s.do(http.MethodPost, wire.Base+"/unproven/resolve", token, body)
	}
	s.want(resolve(acmeToken, `{"ids":[7],"reason":"looked"}`), http.StatusForbidden, "")
	for _, body := range []string{`{"reason":"looked"}`, `{"ids":[7],"engine":"eu-1","reason":"x"}`,
		`{"environment":"prod","reason":"x"}`, `{"tenant":"acme","reason":"x"}`, `{"ids":[7]}`} {
		s.want(resolve(platformToken, body), http.StatusUnprocessableEntity, "")
	}
	s.want(resolve(platformToken, `{"ids":[9],"reason":"looked"}`), http.StatusNotFound, "")
	s.want(resolve(platformToken, `{"ids":[7],"reason":"looked"}`), http.StatusOK, `"objects":1`)
}

func TestThePlatformForgetsAClusterThatNeverReturns(t *testing.T) {
	m := content()
	m.Environments = nil
	m.Applications = m.Applications[:1]
	a := &m.Applications[0]
	a.Tenant, a.Environment, a.Apply, a.Unreachable = "acme", "old", mirror.ApplyDeleting, nil
	s := newSite(t, m)
	ask := func(token, body string) answer {
		return s.do(http.MethodPost, wire.Base+"/forget/cluster", token, body)
	}
	gone := `{"tenant":"acme","environment":"old","confirmGone":"acme/old","reason":"scrapped"}`
	s.want(ask(acmeToken, gone), http.StatusForbidden, "")
	s.want(ask(readerToken, gone), http.StatusForbidden, "")
	s.want(ask(platformToken, `{"tenant":"acme","environment":"old","reason":"scrapped"}`),
		http.StatusUnprocessableEntity, "--confirm-gone acme/old")
	s.want(ask(platformToken, gone), http.StatusConflict, "argosy agent revoke acme/old")
	m.Applications[0].Unreachable = &mirror.Unreachable{Reason: mirror.UnreachableTimeout}
	s = newSite(t, m)
	s.want(ask(platformToken, gone), http.StatusOK, `"unproven":1`)
	m.Applications[0].Apply = mirror.ApplyHeld
	s = newSite(t, m)
	s.want(ask(platformToken, gone), http.StatusConflict, "argosy get holds")
}
