package agent

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func snapshot() *Snapshot {
	return &Snapshot{Epoch: 3, Cursor: 42, Rows: []Row{
		{Kind: "AppProject", Name: "p", Tenant: "acme", Operation: OperationApply, Revision: "r1",
			Seq: 40, Hash: "h1"},
		{Kind: "Application", Name: "a", Tenant: "acme", Environment: "edge", Deployment: "d",
			Operation: OperationRemove,
			Deletion:  "Orphan", Revision: "r2", Seq: 42, Hash: "h2"},
	}}
}

func TestADigestChangesWithEachField(t *testing.T) {
	whole := Digest(snapshot())
	if whole != Digest(snapshot()) || len(whole) != 64 {
		t.Fatalf("digest %q is not the same twice", whole)
	}
	for name, change := range map[string]func(*Snapshot){
		"epoch":       func(s *Snapshot) { s.Epoch++ },
		"cursor":      func(s *Snapshot) { s.Cursor++ },
		"row lost":    func(s *Snapshot) { s.Rows = s.Rows[:1] },
		"no rows":     func(s *Snapshot) { s.Rows = nil },
		"order":       func(s *Snapshot) { s.Rows[0], s.Rows[1] = s.Rows[1], s.Rows[0] },
		"kind":        func(s *Snapshot) { s.Rows[0].Kind = "Repository" },
		"name":        func(s *Snapshot) { s.Rows[0].Name = "q" },
		"tenant":      func(s *Snapshot) { s.Rows[0].Tenant = "globex" },
		"environment": func(s *Snapshot) { s.Rows[1].Environment = "x" },
		"deployment":  func(s *Snapshot) { s.Rows[1].Deployment = "x" },
		"operation":   func(s *Snapshot) { s.Rows[1].Operation = OperationApply },
		"deletion":    func(s *Snapshot) { s.Rows[1].Deletion = "Delete" },
		"revision":    func(s *Snapshot) { s.Rows[1].Revision = "r3" },
		"seq":         func(s *Snapshot) { s.Rows[1].Seq++ },
		"hash":        func(s *Snapshot) { s.Rows[1].Hash = "h3" },
		"shifted": func(s *Snapshot) {
			s.Rows[1].Environment, s.Rows[1].Deployment = "edged",
				""
		},
		"row once again": func(s *Snapshot) { s.Rows = append(s.Rows, s.Rows[1]) },
	} {
		s := snapshot()
		change(s)
		if Digest(s) == whole {
			t.Errorf("%s: the same digest", name)
		}
	}
}

func TestADigestIgnoresFieldsOfLaterVersions(t *testing.T) {
	var row Row
	if err := json.Unmarshal(
		[]byte(
			`{"kind":"AppProject","name":"p","tenant":"acme","operation":"apply","revision":"r1","seq":40,"hash":"h1",
		"manifest":{"a":1},"apply":"Applied","later":{"x":[1]}}`), &row); err != nil {
		t.Fatal(err)
	}
	s := snapshot()
	s.Rows[0] = row
	if Digest(s) != Digest(snapshot()) {
		t.Error("versions do not agree on a snapshot")
	}
}

func session() Session {
	return Session{Protocol: 1, Instance: strings.Repeat("i", 22), Epoch: 7, Version: "v1.2.3",
		Cursor: 99}
}

func TestASessionSurvivesItsHeaders(t *testing.T) {
	h := http.Header{}
	session().Set(h)
	got, err := ReadSession(h)
	if err != nil || got != session() {
		t.Fatalf("%+v, %v", got, err)
	}
	bare := http.Header{HeaderInstance: {session().Instance}}
	if got, err := ReadSession(bare); err != nil || got.Epoch != 0 || got.Protocol != 0 {
		t.Errorf("without numbers: %+v, %v", got, err)
	}
}

func TestAMalformedSessionIsRejected(t *testing.T) {
	for name, change := range map[string]func(http.Header){
		"no instance":       func(h http.Header) { h.Del(HeaderInstance) },
		"short instance":    func(h http.Header) { h.Set(HeaderInstance, "1") },
		"instance / text":   func(h http.Header) { h.Set(HeaderInstance, strings.Repeat("/", 22)) },
		"long instance":     func(h http.Header) { h.Set(HeaderInstance, strings.Repeat("i", 65)) },
		"instance twice":    func(h http.Header) { h.Add(HeaderInstance, session().Instance) },
		"epoch twice":       func(h http.Header) { h.Add(HeaderEpoch, "8") },
		"negative epoch":    func(h http.Header) { h.Set(HeaderEpoch, "-1") },
		"epoch +7":          func(h http.Header) { h.Set(HeaderEpoch, "+7") },
		"no number":         func(h http.Header) { h.Set(HeaderCursor, "x") },
		"epoch out of room": func(h http.Header) { h.Set(HeaderEpoch, "9223372036854775807") },
		"version of lines":  func(h http.Header) { h.Set(HeaderVersion, "v1\nfake") },
		"long version":      func(h http.Header) { h.Set(HeaderVersion, strings.Repeat("1", 65)) },
	} {
		h := http.Header{}
		session().Set(h)
		change(h)
		if got, err := ReadSession(h); err == nil {
			t.Errorf("%s: taken as %+v", name, got)
		}
	}
}

func TestTheSignedSessionDependsOnEachField(t *testing.T) {
	seen := map[string]bool{string(session().Bytes()): true}
	for _, change := range []func(*Session){func(s *Session) { s.Protocol++ }, func(s *Session) {
		s.Instance += "x"
	}, func(s *Session) { s.Epoch++ },
		func(s *Session) { s.Version = "" }, func(s *Session) { s.Cursor++ }} {
		s := session()
		change(&s)
		if seen[string(s.Bytes())] {
			t.Errorf("%+v is proven like another", s)
		}
		seen[string(s.Bytes())] = true
	}
}
