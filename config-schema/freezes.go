package configschema

import (
	"errors"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/freeze"
)

var (
	formatSchedule = &format{code: codeInvalidValue, what: "a schedule of cron, such as " +
		"\"0 18 * * 5\" for every Friday at 18:00", pattern: `^[^ ]+( [^ ]+){4}$`,
		check: freeze.ParseSchedule}
	formatTimeZone = &format{code: codeInvalidValue, what: "a time zone of the IANA " +
		"database, such as Europe/Berlin",
		pattern: `^[A-Za-z0-9_+/-]{1,64}$`, check: freeze.ParseTimeZone}
)

// freezes are the recurring periods in which merged changes wait.
func freezes(of, passer string) field {
	return field{
		name: "freezes",
		doc: "Recurring periods in which merged changes to environments of " + of +
			" wait, until the end or until " + passer + " `argosy release` (`docs/freezes.md`).",
		value: listOf(object(
			field{name: "name", doc: "The name, for people.", example: "weekend", required: true,
				value: textOf(formatName)},
			field{
				name: "schedule",
				doc: "When it begins, in the form of cron: minute, hour, day of the month, month, " +
					"day of the week.", example: `"0 18 * * 5"`, required: true,
				value: textOf(formatSchedule)},
			field{
				name: "duration",
				doc: "How long it lasts: a duration from 1m to 2160h. One that begins again before " +
					"it ends lasts on, for at most 92 days.", example: "60h", required: true,
				value: value{shape: shapeDuration, least: int64(time.Minute),
					most: int64(2160 * time.Hour)}},
			field{
				name:    "timeZone",
				doc:     "The time zone of `schedule`, by its name in the IANA database.",
				example: "Europe/Berlin", fallback: "UTC", value: textOf(formatTimeZone)},
			field{
				name:    "environmentSelector",
				doc:     "Selects environments by label. Left out: all.",
				example: "{matchLabels: {tier: prod}}",
				value:   selector("Label keys and exact values; all must match.", "{tier: prod}")},
			field{
				name: "kinds",
				doc: "What waits. `Changes`: Applications that declarations create or change. " +
					"`Deletions`: deletions of Applications. `Syncs`: syncs that Argo CD begins by " +
					"itself, for example when a branch moves. Left out: all three.",
				example: "[Changes, Deletions]",
				value: listOf(wordOf(string(fleet.FreezeChanges), string(fleet.FreezeDeletions),
					string(fleet.FreezeSyncs)))},
			field{name: "reason", doc: "Why, for people.", example: "no releases on the weekend",
				value: textOf(formatInfo)},
		).checked(freezeEnds)).by("name").atMost(20)}
}

// freezeEnds refuses a freeze that never begins or never ends.
func freezeEnds(d *decoder, into reflect.Value, at node) {
	f := into.Addr().Interface().(*fleet.Freeze)
	if f.Schedule == "" || freeze.ParseSchedule(f.Schedule) != nil ||
		freeze.ParseTimeZone(f.TimeZone) != nil {
		return // reported with the field
	}
	switch err := freeze.Check(*f); {
	case errors.Is(err, freeze.ErrNeverEnds):
		d.at("duration", func() {
			d.problem(child(at, "duration"), codeFreezeNeverEnds, "freeze "+quoted(f.Name)+" "+
				err.Error(), "write a shorter duration, or a schedule that begins less often; to "+
				"stop every write until a person resumes, use `argosy stop`")
		})
	case err != nil:
		d.at("schedule", func() {
			d.problem(child(at, "schedule"), codeInvalidValue, err.Error(),
				"write a date that exists")
		})
	}
}
