package audit

import (
	"cmp"
	"fmt"
	"slices"

	"argosy.dev/argosy/fleet"
)

// MaxFindings is the number of findings that a report keeps.
const MaxFindings = 20

// Finding is one place where the chain is broken.
type Finding struct {
	Position int64  `json:"position,omitempty"`
	Text     string `json:"text"`
}

// String names the entry.
func (f Finding) String() string {
	if f.Position == 0 {
		return f.Text
	}
	return fmt.Sprintf("entry %d: %s", f.Position, f.Text)
}

// Report is the result of a verification.
type Report struct {
	Entries int64 `json:"entries"`
	First   Head  `json:"first"`
	Last    Head  `json:"last"`
	// set if all entries are of one tenant and others lie between them: the export of a tenant,
	// which its own chain proves to be complete from First to Last
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	// entries that are not sealed yet; of the database only
	Unsealed int64 `json:"unsealed,omitempty"`
	// entries that were pruned before First; of the database only
	Pruned   int64     `json:"pruned,omitempty"`
	Findings []Finding `json:"findings,omitempty"` // at most MaxFindings
	More     int       `json:"more,omitempty"`     // further findings
}

// OK reports whether nothing contradicts the chain.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// Verifier verifies entries in the order of their positions. The zero value accepts a chain that
// begins anywhere.
type Verifier struct {
	report  Report
	anchor  *Head
	known   []Head
	gaps    []Finding
	owners  map[string]fleet.TenantName // UIDs that the entries have; "" is the platform
	tenants map[string]Head
	moreGap int
}

// After requires that the entries begin after the anchor, the last one that was pruned.
func (v *Verifier) After(anchor Head) { v.anchor = &anchor }

// Know requires that the chain contains a head that was noted elsewhere.
func (v *Verifier) Know(head Head) { v.known = append(v.known, head) }

// Find adds a finding.
func (v *Verifier) Find(position int64, format string, args ...any) {
	if len(v.report.Findings) == MaxFindings {
		v.report.More++
		return
	}
	v.report.Findings = append(v.report.Findings, Finding{position, fmt.Sprintf(format, args...)})
}

// Add verifies the next entry.
func (v *Verifier) Add(e Entry) {
	if v.owners == nil {
		v.owners, v.tenants = map[string]fleet.TenantName{}, map[string]Head{}
	}
	last := v.report.Last
	first := v.report.Entries == 0
	v.report.Entries++
	if e.Format != FormatV1 {
		v.Find(e.Position, "format %d is unknown: verify with a newer argosy", e.Format)
	} else if e.Sum() != e.Hash {
		v.Find(e.Position, "its content does not match its hash: it was changed")
	}
	switch {
	case first && v.anchor != nil:
		v.follows(e, *v.anchor)
	case first && e.Position == 1:
		v.follows(e, Head{})
	case first:
	default:
		v.follows(e, last)
	}
	v.ofTenant(e)
	for _, k := range v.known {
		if k.Position == e.Position && k.Hash != e.Hash {
			v.Find(e.Position, "its hash is %s, and was %s when the head was noted: "+
				"the log was written again", e.Hash, k.Hash)
		}
	}
	v.report.Last = Head{e.Position, e.Hash}
	if first {
		v.report.First = v.report.Last
	}
}

// follows verifies that the entry is the one after the head. A gap may be that of a tenant's
// export, which End decides.
func (v *Verifier) follows(e Entry, last Head) {
	switch {
	case e.Position <= last.Position:
		v.Find(e.Position, "it is listed twice, or out of order")
	case e.Position > last.Position+1:
		if len(v.gaps) == MaxFindings {
			v.moreGap++
			return
		}
		missing := fmt.Sprintf("entries %d to %d are missing before it", last.Position+1,
			e.Position-1)
		if e.Position == last.Position+2 {
			missing = fmt.Sprintf("entry %d is missing before it", last.Position+1)
		}
		v.gaps = append(v.gaps, Finding{e.Position, missing})
	case e.Previous != last.Hash:
		v.Find(e.Position, "it does not continue the entry before: one was replaced")
	}
}

// ofTenant verifies the chain of the entry's tenant.
func (v *Verifier) ofTenant(e Entry) {
	v.owners[e.TenantUID] = e.Tenant
	if e.TenantUID == "" {
		return
	}
	last, seen := v.tenants[e.TenantUID]
	v.tenants[e.TenantUID] = Head{e.TenantPosition, e.Hash}
	switch {
	case !seen && e.TenantPosition == 1 && e.TenantPrevious != "":
		v.Find(e.Position, "it is the first of tenant %s, and continues another", e.Tenant)
	case !seen:
	case e.TenantPosition != last.Position+1:
		v.Find(e.Position, "of tenant %s, entries %d to %d are missing before it", e.Tenant,
			last.Position+1, e.TenantPosition-1)
	case e.TenantPrevious != last.Hash:
		v.Find(e.Position, "it does not continue the entry of tenant %s before: one was replaced",
			e.Tenant)
	}
}

// End returns the report.
func (v *Verifier) End() Report {
	r := v.report
	if len(v.owners) == 1 && len(v.gaps) > 0 && v.anchor == nil && v.owners[""] == "" {
		for uid, name := range v.owners {
			if uid != "" {
				r.Tenant = name
			}
		}
	}
	if r.Tenant == "" {
		for _, g := range v.gaps {
			if len(r.Findings) == MaxFindings {
				r.More++
				continue
			}
			r.Findings = append(r.Findings, g)
		}
		r.More += v.moreGap
	}
	for _, k := range v.known {
		if k.Position > r.Last.Position && len(r.Findings) < MaxFindings {
			r.Findings = append(r.Findings, Finding{Text: fmt.Sprintf(
				"the log ends at entry %d, and had an entry %d when the head was noted",
				r.Last.Position, k.Position)})
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(a.Position, b.Position)
	})
	return r
}
