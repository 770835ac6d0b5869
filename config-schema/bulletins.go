package configschema

import (
	"reflect"
	"strings"

	"argosy.dev/argosy/fleet"
)

// bulletins announce security releases of Argo CD.
func bulletins() field {
	var severities []string
	for _, s := range fleet.BulletinSeverities {
		severities = append(severities, string(s))
	}
	return field{
		name: "bulletins",
		doc: "Security releases of Argo CD. `argosy get bulletins` names the engines that lack " +
			"one, and rings pass with their `securitySoak` (`docs/rings.md`).",
		value: listOf(object(
			field{
				name: "name", doc: "The name, such as that of the CVE.",
				example: "CVE-2026-12345", required: true, value: textOf(formatLabel)},
			field{name: "severity", doc: "How bad the fault is.", example: "High", required: true,
				value: wordOf(severities...)},
			field{
				name: "fixedIn",
				doc: "The versions with the fix, one for each minor version that has one. Later " +
					"patch releases and later minor versions have it too.",
				example: "[3.4.9, 3.5.8]", required: true,
				value: listOf(textOf(formatVersion)).atMost(20)},
			field{name: "url", doc: "The announcement, for people.",
				example: "https://example.com/advisories/1",
				value:   textOf(formatLinkURL).atMost(1024)},
		).checked(oneFixOfAMinor)).by("name").atMost(50)}
}

// oneFixOfAMinor refuses two releases of one minor version: the earlier one would decide nothing.
func oneFixOfAMinor(d *decoder, into reflect.Value, at node) {
	first := map[string]string{}
	for _, release := range into.Addr().Interface().(*fleet.Bulletin).FixedIn {
		minor := release[:max(0, strings.LastIndex(release, "."))]
		if before := first[minor]; before != "" {
			d.at("fixedIn", func() {
				d.problem(child(at, "fixedIn"), codeDuplicateEntry, before+" and "+release+
					" are of one minor version", "keep the first one that has the fix")
			})
			return
		}
		first[minor] = release
	}
}
