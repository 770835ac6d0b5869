// Package reviews holds the evidence that people reviewed changes before they were merged: the
// deletions and the content of files that merged pull requests showed, and their owners approved.
package reviews

import (
	"slices"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/catalog"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/plan/report"
)

// Span is a part of the branch's history: the commits that Head has and Base does not have.
type Span struct{ Base, Head fleet.Revision }

// Reviewed is the evidence for one span.
type Reviewed struct {
	Deletions map[fleet.ObjectKey]mirror.ReviewedDeletion
	Paths     map[string]string // as Files.Reviewed
	Trusted   map[string]bool   // as Files.Trusted
}

// Deletions is the evidence for the deletions of a plan. A deletion without evidence is held
// (mirror.HoldUnreviewed) whatever its deletion policy and the guards. The guards judge a reviewed
// deletion, unless it was approved beyond them; then it does not count against the window either.
type Deletions struct {
	// Reviewed is the deletions shown by the pull requests that were merged between the applied
	// revision and Request.Revision.
	Reviewed map[fleet.ObjectKey]mirror.ReviewedDeletion

	// Unknown is why Reviewed is incomplete, if it is. The hold of a missing deletion names it.
	Unknown error

	// Earlier has Reviewed for the spans that AwaitsReview names. Without an answer for a span, its
	// holds stay as they are.
	Earlier map[Span]map[fleet.ObjectKey]mirror.ReviewedDeletion
}

// Files is the evidence for the content of files. A file without evidence is held
// (mirror.HoldUnreviewed): its declaration stays in effect as it was applied, and the rest of the
// commit proceeds.
type Files struct {
	// Reviewed maps a path to the blob that it may have at Request.Revision, "" if it may be
	// removed.
	Reviewed map[string]string

	// Trusted is the paths of Reviewed that were pushed by an account whose direct pushes count.
	// The deletions that follow from them count as reviewed too: no pull request could have shown
	// them.
	Trusted map[string]bool

	// Unknown is why Reviewed is incomplete, if it is. Every path that is not in Reviewed is held.
	Unknown error

	// Earlier has Reviewed, and EarlierTrusted has Trusted, for the spans that AwaitsReview names.
	// Without an answer for a span, its holds stay as they are.
	Earlier        map[Span]map[string]string
	EarlierTrusted map[Span]map[string]bool
}

// Shows reports whether this content of a file was reviewed.
func Shows(reviewed map[string]string, in catalog.Input) bool {
	blob, ok := reviewed[in.Path]
	return ok && (blob == "") == in.Removed && (in.Removed || blob == in.Blob)
}

// Approved reports whether the platform approved a revision after something of it was listed as
// held: an approval releases what was listed, no more.
func Approved(approvals []mirror.Approval, rev fleet.Revision, since time.Time) bool {
	return PassedBy(approvals, "", rev, since)
}

// PassedBy is Approved for what a freeze of a tenant holds, and an owner of the tenant.
func PassedBy(approvals []mirror.Approval, t fleet.TenantName, rev fleet.Revision,
	since time.Time) bool {
	return slices.ContainsFunc(approvals, func(a mirror.Approval) bool {
		return a.Tenant == t && a.Revision == rev && !a.At.Before(since)
	})
}

// Missing is the message of a hold for a change without evidence.
const Missing = "not reviewed: no merged pull request of the revision showed this change"

// Why returns the message of a hold, given why the evidence is incomplete, if it is.
func Why(unknown error) string {
	if unknown != nil {
		return "reviews are unknown: " +
			report.Clip(report.OneLine(unknown.Error()))
	}
	return Missing
}

// TenantOf is the tenant that a path of the config repo belongs to, "" for the platform.
func TenantOf(path string) fleet.TenantName {
	rest, below := strings.CutPrefix(path, "tenants/")
	name, _, nested := strings.Cut(rest, "/")
	if !below || !nested {
		return ""
	}
	return fleet.TenantName(name)
}
