package audit_test

import (
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet/audit"
)

// documented is the hash by the description in docs/audit.md, computed by another program.
const documented = "f6566b7ede4e40b42a7a451781bdc328aa6f4c674b45183c85be16dfe4ef6aae"

// chain are n sealed entries, every third of tenant acme.
func chain(n int) []audit.Entry {
	var log, tenant audit.Head
	entries := make([]audit.Entry, n)
	for i := range entries {
		e := &entries[i]
		*e = audit.Entry{N: int64(i + 1), At: time.Unix(1e9+int64(i), 123000).UTC(), Actor: "ann",
			Action: "stop", Subject: "fleet"}
		if i%3 == 0 {
			e.Tenant, e.TenantUID = "acme", "u1"
		}
		log, tenant = audit.Append(e, log, tenant)
	}
	return entries
}

func verify(entries []audit.Entry) audit.Report {
	var v audit.Verifier
	for _, e := range entries {
		v.Add(e)
	}
	return v.End()
}

// The hash of the documented encoding, computed by hand once: a reader in another language relies
// on it.
func TestHashOfADocumentedEntryNeverChanges(t *testing.T) {
	e := audit.Entry{N: 1, At: time.Unix(1, 5000).UTC(), Actor: "token:ops", Action: "stop",
		Subject: "fleet", Detail: "é"}
	e.Seal = audit.Seal{Format: audit.FormatV1, Position: 1}
	if got := e.Sum(); got != documented {
		t.Errorf("got %s", got)
	}
}

func TestEveryFieldOfAnEntryIsHashed(t *testing.T) {
	base := chain(1)[0]
	for name, change := range map[string]func(*audit.Entry){
		"n": func(e *audit.Entry) { e.N++ }, "at": func(e *audit.Entry) { e.At = e.At.Add(1000) },
		"actor":           func(e *audit.Entry) { e.Actor += "x" },
		"token":           func(e *audit.Entry) { e.Token = "x" },
		"session":         func(e *audit.Entry) { e.Session = "x" },
		"issuer":          func(e *audit.Entry) { e.Issuer = "x" },
		"account":         func(e *audit.Entry) { e.Account = "x" },
		"action":          func(e *audit.Entry) { e.Action += "x" },
		"subject":         func(e *audit.Entry) { e.Subject += "x" },
		"tenant":          func(e *audit.Entry) { e.Tenant += "x" },
		"tenantUID":       func(e *audit.Entry) { e.TenantUID += "x" },
		"engine":          func(e *audit.Entry) { e.Engine = "x" },
		"revision":        func(e *audit.Entry) { e.Revision = "x" },
		"pull":            func(e *audit.Entry) { e.Pull++ },
		"operation":       func(e *audit.Entry) { e.Operation = "x" },
		"outcome":         func(e *audit.Entry) { e.Outcome = "x" },
		"detail":          func(e *audit.Entry) { e.Detail = "x" },
		"created":         func(e *audit.Entry) { e.Created++ },
		"changed":         func(e *audit.Entry) { e.Changed++ },
		"deleted":         func(e *audit.Entry) { e.Deleted++ },
		"held":            func(e *audit.Entry) { e.Held++ },
		"problems":        func(e *audit.Entry) { e.Problems++ },
		"position":        func(e *audit.Entry) { e.Position++ },
		"previous":        func(e *audit.Entry) { e.Previous = "x" },
		"tenant position": func(e *audit.Entry) { e.TenantPosition++ },
		"tenant previous": func(e *audit.Entry) { e.TenantPrevious = "x" },
		// a text that moves to the next field
		"border": func(e *audit.Entry) { e.Action, e.Subject = e.Action+"f", e.Subject[1:] },
	} {
		changed := base
		change(&changed)
		if changed.Sum() == base.Hash {
			t.Errorf("%s is not hashed", name)
		}
	}
}

func TestVerifierAcceptsAChainAndItsParts(t *testing.T) {
	all := chain(10)
	var own []audit.Entry
	for _, e := range all {
		if e.TenantUID != "" {
			own = append(own, e)
		}
	}
	for name, c := range map[string]struct {
		entries []audit.Entry
		tenant  string
	}{"all": {all, ""}, "the end": {all[4:], ""}, "the beginning": {all[:4], ""},
		"a tenant's": {own, "acme"}, "the end of a tenant's": {own[1:], "acme"},
		"none": {nil, ""}} {
		if r := verify(c.entries); !r.OK() || string(r.Tenant) != c.tenant ||
			r.Entries != int64(len(c.entries)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestVerifierFindsWhatIsMissing(t *testing.T) {
	all := chain(10)
	var own []audit.Entry
	for _, e := range all {
		if e.TenantUID != "" {
			own = append(own, e)
		}
	}
	without := func(entries []audit.Entry, i int) []audit.Entry {
		return append(append([]audit.Entry{}, entries[:i]...), entries[i+1:]...)
	}
	for name, c := range map[string]struct {
		entries []audit.Entry
		want    string
	}{
		"an entry":            {without(all, 4), "entry 6: entry 5 is missing before it"},
		"one of a tenant's":   {without(own, 2), "of tenant acme, entries 3 to 3 are missing"},
		"all of the platform": {append(own[:2:2], all[9]), "of tenant acme, entries"},
		"the order":           {[]audit.Entry{all[1], all[0]}, "out of order"},
	} {
		if r := verify(c.entries); r.OK() || !strings.Contains(r.Findings[0].String(), c.want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A hostile file has as many faults as it likes: the report stays small.
func TestReportIsBounded(t *testing.T) {
	all := chain(500)
	for i := range all {
		all[i].Actor = "nobody"
	}
	if r := verify(all); len(r.Findings) != audit.MaxFindings || r.More != 480 {
		t.Errorf("%d findings and %d more", len(r.Findings), r.More)
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add(audit.Head{Position: 7, Hash: chain(1)[0].Hash}.String())
	f.Add("1:")
	f.Add(":" + string(chain(1)[0].Hash))
	f.Add("-1:" + string(chain(1)[0].Hash))
	f.Fuzz(func(t *testing.T, text string) {
		head, err := audit.ParseHead(text)
		if err != nil {
			return
		}
		if again, err := audit.ParseHead(head.String()); err != nil || again != head {
			t.Errorf("%q: %v, then %v, %v", text, head, again, err)
		}
	})
}
