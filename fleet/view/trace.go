package view

import (
	"slices"
	"time"

	"argosy.dev/argosy/fleet"
)

// MaxTraced bounds the Applications that a trace lists.
const MaxTraced = 200

// Trace is the way of one commit of the config repo. A step without a time has not happened, or
// happened before its time was kept.
type Trace struct {
	Revision fleet.Revision `json:"revision"`
	Author   string         `json:"author,omitempty"`
	Subject  string         `json:"subject,omitempty" doc:"Absent for a tenant's token: the commit may name others"`
	Pull     int            `json:"pull,omitempty" doc:"Number of the pull request"`

	CommittedAt *time.Time `json:"committedAt,omitempty" doc:"By the clock of the committer"`
	DeliveredAt *time.Time `json:"deliveredAt,omitempty" doc:"When the webhook of the push was stored; absent: a poll found the commit"`
	FetchedAt   *time.Time `json:"fetchedAt,omitempty"`
	CheckedAt   *time.Time `json:"checkedAt,omitempty" doc:"When its files were read and checked"`
	PlannedAt   *time.Time `json:"plannedAt,omitempty"`
	RecordedAt  *time.Time `json:"recordedAt,omitempty" doc:"When its rows were in the mirror; absent: it waits"`
	// when it was recorded again, as after an approval
	RecordedAgainAt *time.Time `json:"recordedAgainAt,omitempty"`
	AppliedAt       *time.Time `json:"appliedAt,omitempty" doc:"When the last object was acknowledged; absent for a tenant's token"`

	TraceCounts
	Applications []TraceApplication `json:"applications" doc:"At most 200, first those that wait"`
	Waits        []TraceWait        `json:"waits"`
}

// TraceCounts are of the objects that still have the commit's manifest.
type TraceCounts struct {
	Objects int `json:"objects" doc:"That still have the manifest of this commit"`
	Written int `json:"written" doc:"Acknowledged by the worker or agent of their engine"`
	Traced  int `json:"traced" doc:"Applications among the objects"`
	Synced  int `json:"synced"`
	Healthy int `json:"healthy"`
	// that later commits have changed, and those that were deleted; of the whole commit only
	Replaced int  `json:"replaced,omitempty" doc:"Objects of the commit that a later commit has changed, or that are deleted"`
	Partial  bool `json:"partial,omitempty" doc:"The commit has more objects than one answer reads; the counts are of the first"`
}

// TraceApplication is the way of one Application after the record.
type TraceApplication struct {
	Tenant      fleet.TenantName      `json:"tenant"`
	Deployment  fleet.DeploymentName  `json:"deployment"`
	Environment fleet.EnvironmentName `json:"environment"`
	Engine      fleet.EngineName      `json:"engine"`
	QueuedAt    time.Time             `json:"queuedAt"`
	WrittenAt   *time.Time            `json:"writtenAt,omitempty" doc:"When the worker or agent of the engine acknowledged it"`
	SyncedAt    *time.Time            `json:"syncedAt,omitempty" doc:"When it was first Synced after that"`
	HealthyAt   *time.Time            `json:"healthyAt,omitempty" doc:"When it was first Synced and Healthy after that"`
	WaitsFor    string                `json:"waitsFor,omitempty"`
}

// ID identifies the Application.
func (a *TraceApplication) ID() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: a.Tenant, Environment: a.Environment,
		Deployment: a.Deployment}
}

// end is the time of the Application's last step.
func (a *TraceApplication) end() time.Time {
	end := a.QueuedAt
	for _, at := range []*time.Time{a.WrittenAt, a.SyncedAt, a.HealthyAt} {
		if at != nil {
			end = *at
		}
	}
	return end
}

// TraceWait is something that the commit as a whole waited for, or waits for now.
type TraceWait struct {
	Kind   string           `json:"kind" example:"hold" enum:"hold,rollout,source"`
	Tenant fleet.TenantName `json:"tenant,omitempty"`
	Text   string           `json:"text"`
	Since  time.Time        `json:"since"`
	Until  *time.Time       `json:"until,omitempty" doc:"Absent: it waits now"`
}

// TraceStep is one step of the whole commit.
type TraceStep struct {
	Name string
	At   time.Time
}

// Steps are those steps of the whole commit that have a time, the first one first.
func (t *Trace) Steps() []TraceStep {
	var steps []TraceStep
	for _, s := range []struct {
		name string
		at   *time.Time
	}{
		{"committed", t.CommittedAt}, {"delivered", t.DeliveredAt}, {"fetched", t.FetchedAt},
		{"checked", t.CheckedAt}, {"planned", t.PlannedAt}, {"recorded", t.RecordedAt},
		{"recorded again", t.RecordedAgainAt}, {"applied", t.AppliedAt},
	} {
		if s.at != nil {
			steps = append(steps, TraceStep{s.name, *s.at})
		}
	}
	slices.SortStableFunc(steps, func(a, b TraceStep) int { return a.At.Compare(b.At) })
	return steps
}

// Complete reports whether no step is left: the commit is recorded, waits for nothing, and every
// object is written, and every Application Healthy.
func (t *Trace) Complete() bool {
	return t.RecordedAt != nil && !t.Partial && t.Written == t.Objects && t.Healthy == t.Traced &&
		!slices.ContainsFunc(t.Waits, func(w TraceWait) bool { return w.Until == nil })
}

// Add counts an Application and lists it.
func (t *Trace) Add(a TraceApplication) {
	t.Traced++
	if a.SyncedAt != nil {
		t.Synced++
	}
	if a.HealthyAt != nil {
		t.Healthy++
	}
	t.Applications = append(t.Applications, a)
}

// Shorten keeps the Applications that explain most: first those that wait, then those that took
// longest.
func (t *Trace) Shorten() {
	slices.SortStableFunc(t.Applications, func(a, b TraceApplication) int {
		if waits := a.HealthyAt == nil; waits != (b.HealthyAt == nil) {
			if waits {
				return -1
			}
			return 1
		}
		return b.end().Compare(a.end())
	})
	t.Applications = t.Applications[:min(len(t.Applications), MaxTraced)]
}
