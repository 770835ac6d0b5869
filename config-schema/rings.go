package configschema

import (
	"errors"
	"path"
	"reflect"
	"regexp"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

var (
	versionPattern = regexp.MustCompile(`^[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}$`)
	digestPattern  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

	agentVersionPattern = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+-]{0,62}$`)

	formatVersion = &format{code: codeInvalidValue, what: "a version of Argo CD, such as 3.5.7",
		pattern: versionPattern.String(), check: matching(versionPattern, "three numbers")}
	formatDigest = &format{code: codeInvalidValue, what: "a digest, which `argosy rings digest` " +
		"prints", pattern: digestPattern.String(), check: matching(digestPattern,
		"sha256: and 64 lower-case hexadecimal digits")}
	formatManifestsURL = &format{code: codeInvalidURL,
		what: "the https:// URL of a file .yaml, .yml, .tar.gz or .tgz, without user and query; " +
			"not a link-local address",
		pattern: `^https://[^\s*?\[\]{}!\\%#@]+\.(yaml|yml|tar\.gz|tgz)$`,
		check:   fleet.CheckManifestsURL}
	formatManifestsOCI = &format{code: codeInvalidURL,
		what: "an OCI artifact with its registry and a tag or digest, without oci://, such as " +
			"ghcr.io/acme/argo-cd:3.5.7",
		pattern: `^[^\s*?\[\]{}!\\%#/]+/[^\s*?\[\]{}!\\%#]+$`, check: fleet.CheckManifestsOCI}
	formatAgentVersion = &format{code: codeInvalidValue, what: "a version of Argosy, such as 0.5.0",
		pattern: agentVersionPattern.String(), check: matching(agentVersionPattern, "a version")}
	formatImageDigest = &format{code: codeInvalidValue, what: "the digest of an image",
		pattern: digestPattern.String(), check: matching(digestPattern,
			"sha256: and 64 lower-case hexadecimal digits")}
	formatDirectory = &format{code: codeInvalidPath,
		what: "the path of a directory in the config repo, outside of fleet/ and tenants/, such " +
			"as argocd/3.5.7",
		pattern: `^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$`, check: checkDirectory}
)

func matching(pattern *regexp.Regexp, form string) func(string) error {
	return func(text string) error {
		if !pattern.MatchString(text) {
			return errors.New("it is not " + form)
		}
		return nil
	}
}

const exampleDigest = "sha256:" +
	"1111111111111111111111111111111111111111111111111111111111111111"

func checkDirectory(text string) error {
	top, _, _ := strings.Cut(text, "/")
	switch {
	case path.Clean(text) != text || top == "..":
		return errors.New("it has a \".\" or a \"..\"")
	case top == "fleet" || top == "tenants":
		return errors.New("fleet/ and tenants/ hold declarations only")
	}
	return nil
}

// rings are the versions of Argo CD of managed engines.
func rings() field {
	return field{
		name: "rings",
		doc: "Versions of Argo CD for engines with `argocd.managed: true` (`docs/rings.md`). The " +
			"order counts: the engines of a ring change after those of every earlier ring have " +
			"their version.",
		value: listOf(object(
			field{name: "name", doc: "The name that `Engine.spec.ring` and " +
				"`Tenant.spec.agentRing` refer to.",
				example: "canary", required: true, value: textOf(formatLabelWord)},
			field{name: "version", doc: "The version of Argo CD.", example: "3.5.7",
				required: true, value: textOf(formatVersion)},
			field{
				name: "manifests", doc: "Argo CD's published manifests of the version.",
				example:  "{directory: argocd/3.5.7, digest: \"" + exampleDigest + "\"}",
				required: true, value: object(
					field{
						name: "directory",
						doc: "A directory of the config repo with Argo CD's `namespace-install.yaml` " +
							"and the CustomResourceDefinitions of Application and AppProject.",
						example: "argocd/3.5.7", value: textOf(formatDirectory)},
					field{
						name: "url",
						doc: "A file that holds the same: Argo CD's `install.yaml`, or an archive. " +
							"The control plane downloads it once, after the merge.",
						example: "https://raw.githubusercontent.com/argoproj/argo-cd/v3.5.7/" +
							"manifests/install.yaml", value: textOf(formatManifestsURL)},
					field{
						name: "oci",
						doc: "An OCI artifact that holds the same: files, or an archive. The " +
							"control plane downloads it once, after the merge.",
						example: "ghcr.io/acme/argo-cd:3.5.7", value: textOf(formatManifestsOCI)},
					field{
						name: "digest",
						doc: "The digest of the files, which `argosy rings digest` prints. Other " +
							"content has no effect.",
						example:  exampleDigest,
						required: true, value: textOf(formatDigest)},
				).exactlyOneOf("directory", "url", "oci")},
			field{
				name: "agent",
				doc: "The version of the agents that follow the ring: of its Engines, and of the " +
					"environments whose Tenant names it (`agentRing`). The admin of the cluster " +
					"allows it (`selfUpgrade` of the chart argosy-agent). Without it they stay as " +
					"they are.",
				example: "{version: 0.5.0, digest: \"" + exampleDigest + "\"}",
				value: object(
					field{
						name:    "version",
						doc:     "The version that the agent reports, as `argosy get agents` shows it.",
						example: "0.5.0", required: true, value: textOf(formatAgentVersion)},
					field{
						name: "digest",
						doc: "The digest of the image. Each agent keeps the repository of its image, " +
							"which has to have this digest.",
						example: exampleDigest, required: true, value: textOf(formatImageDigest)},
				)},
			field{
				name: "untested",
				doc: "Permit a version that Argosy's tests do not run: another minor version than " +
					strings.Join(fleet.TestedArgoCD, " and ") + ". Engines of the ring return by " +
					"themselves between patch releases only.",
				example: "true", fallback: "false", value: boolean()},
			field{name: "atOnce", doc: "Engines of the ring that change at once.", example: "1",
				fallback: "1", value: integer(1, 100)},
			field{
				name: "soak",
				doc: "How long the gates are checked after the last engine runs the version, before " +
					"the next ring begins: a duration up to 168h.",
				example: "1h", fallback: "1h",
				value: value{shape: shapeDuration, least: int64(time.Second),
					most: int64(168 * time.Hour)}},
			field{
				name: "securitySoak",
				doc: "The soak of a version that `bulletins` names as a security release, if it is " +
					"shorter than `soak`: a duration up to 168h. Left out: `soak`.",
				example: "10m",
				value: value{shape: shapeDuration, least: int64(time.Second),
					most: int64(168 * time.Hour)}},
			field{
				name: "gates",
				doc:  "When a change halts, and its engines return to the version before.",
				value: object(
					field{
						name: "within",
						doc: "How long an engine may take until its Pods are ready and its " +
							"application-controller answers: a duration from 1m to 24h.",
						example: "15m", fallback: "15m",
						value: value{shape: shapeDuration, least: int64(time.Minute),
							most: int64(24 * time.Hour)}},
					field{
						name: "degraded",
						doc: "Applications of one engine that may be Degraded besides those before " +
							"the change.",
						example: "2", fallback: "0", value: integer(0, 100000)},
					field{
						name: "unknown",
						doc: "Applications of one engine that Argo CD may fail to compare besides " +
							"those before the change.",
						example: "2", fallback: "0", value: integer(0, 100000)},
					field{
						name: "differences",
						doc: "Applications of the ring that the version may render differently " +
							"without an approval of their owners (`docs/shadow.md`).",
						example: "2", fallback: "0", value: integer(0, 100000)},
					field{
						name: "skipShadow",
						doc: "Change engines without a comparison of what the version renders: no " +
							"difference is found before the change.",
						example: "true", fallback: "false", value: boolean()},
				)},
		).checked(versionTested)).by("name").atMost(20)}
}

// versionTested refuses a version outside of the tested set, unless the ring permits it.
func versionTested(d *decoder, into reflect.Value, at node) {
	r := into.Addr().Interface().(*fleet.Ring)
	if r.Version == "" || r.Untested || fleet.TestedVersion(r.Version) {
		return
	}
	d.at("version", func() {
		d.problem(child(at, "version"), codeUntested,
			"Argosy's tests do not run Argo CD "+r.Version,
			"write a version of "+strings.Join(fleet.TestedArgoCD, " or ")+", or untested: true")
	})
}
