package configschema

import "argosy.dev/argosy/fleet"

// Formats of texts. The errors of their checks say what is wrong; the decoder adds where, and the
// field's example.
var (
	formatName = &format{code: codeInvalidName,
		what: "a name: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or " +
			"digit, not reserved",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: fleet.ValidateName}
	formatLabelWord = &format{code: codeInvalidName,
		what:    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: checkDNSLabel}
	formatNamespace = &format{code: codeInvalidName,
		what: "one exact namespace, never a pattern; those of Kubernetes, Argo CD and " +
			"Argosy, and `default`, are refused",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: fleet.ValidateNamespace}
	formatNamespaceGrant = &format{code: codeInvalidName,
		what:    "one exact namespace, or with a '-' at the end every namespace that begins so",
		pattern: `^[a-z0-9][-a-z0-9]{0,62}$`, check: fleet.CheckNamespaceGrant}
	formatEngineNamespace = &format{code: codeInvalidName,
		what:    "one exact namespace, not one of Kubernetes' own",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: checkEngineNamespace}
	formatRepoURL = &format{code: codeInvalidURL,
		what: "an https:// or ssh:// URL of a repository, or http:// for a host that is " +
			"listed with it, without user, pattern or query; its host is listed in Fleet.gitHosts",
		pattern: `^(https?|ssh)://[^\s*?\[\]{}!\\%#]+$`, check: func(s string) error {
			_, err := fleet.ParseRepoURL(s)
			return err
		}}
	formatGrant = &format{code: codeInvalidURL,
		what:    "the URL of a repository, or with a trailing slash everything below it",
		pattern: `^(https?|ssh)://[^\s*?\[\]{}!\\%#]+$`, check: fleet.CheckGrant}
	formatGitHost = &format{code: codeInvalidURL,
		what: "an exact host, with :port when it is not the default; http://host allows it " +
			"without TLS",
		pattern: `^(http://)?[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckGitHost}
	formatClusterHost = &format{code: codeInvalidURL, what: "an exact host, or host:port",
		pattern: `^[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckClusterHost}
	formatServer = &format{code: codeInvalidURL,
		what:    "https://host[:port] of an API server, without path, query or user",
		pattern: `^https://[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckServerURL}
	formatServerGrant = &format{code: codeInvalidURL,
		what:    "https://host[:port] of an API server, or .domain for every host below it",
		pattern: `^(https://|\.)[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckServerGrant}
	formatCAData = &format{code: codeInvalidValue,
		what: "the cluster's CA certificates: PEM, in base64", pattern: `^[A-Za-z0-9+/]+={0,2}$`,
		check: checkCAData}
	formatPath = &format{code: codeInvalidPath,
		what:    "a path inside the repository, `.` for its root; no `..`, no leading slash",
		pattern: `^[A-Za-z0-9._@+=,/-]+$`, check: checkPath}
	formatChart = &format{code: codeInvalidValue, what: "the name of a chart",
		pattern: `^[A-Za-z0-9][A-Za-z0-9._-]*$`, check: checkChart}
	formatRevision = &format{code: codeInvalidRevision,
		what:    "a branch, tag, commit or chart version, exactly",
		pattern: `^[A-Za-z0-9_][A-Za-z0-9._/+_-]*$`, check: checkRevision}
	formatFixed = &format{code: codeInvalidRevision, what: "a full commit id or a tag; not HEAD",
		pattern: `^[A-Za-z0-9_][A-Za-z0-9._/+_-]*$`, check: checkFixedRevision}
	formatImage = &format{code: codeInvalidValue,
		what: "an image override: [name=]image[:tag][@digest]", pattern: `^[A-Za-z0-9._/:@=+-]+$`,
		check: checkImage}
	formatAffix = &format{code: codeInvalidValue, what: "a-z, 0-9, '-' and '.'",
		pattern: `^[a-z0-9.-]+$`, check: charset("a-z, 0-9, '-' and '.'",
			"abcdefghijklmnopqrstuvwxyz0123456789.-")}
	formatRelease = &format{code: codeInvalidName, what: "at most 53 of a-z, 0-9 and '-'",
		pattern: `^[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?$`, check: checkRelease}
	formatParam = &format{code: codeInvalidValue,
		what: "a key of the chart's values, e.g. image.tag or hosts[0]", pattern: `^[^\s,={}]+$`,
		check: checkParameterName}
	formatAny = &format{code: codeInvalidValue, what: "any text", pattern: ``,
		check: func(string) error { return nil }}
	formatOwner = &format{code: codeInvalidValue,
		what: "`github:<login>` for a person, `github:<organization>/<team>` for a team, or " +
			"`group:<name>` for a group that people sign in with",
		pattern: `^(github:[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?|group:[A-Za-z0-9][A-Za-z0-9._/-]*)$`, check: checkOwner}
	formatLabelKey = &format{code: codeInvalidLabel,
		what: "the key of a label, e.g. team or example.com/team: outside the domains of " +
			"Kubernetes, Argo CD and Argosy",
		pattern: `^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, check: checkLabelKey}
	formatLabel = &format{code: codeInvalidLabel,
		what:    "the value of a label: at most 63 of a-z, A-Z, 0-9, '-', '_' and '.'",
		pattern: `^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, check: checkLabelValue}
	formatGroup = &format{code: codeInvalidValue,
		what: "an API group, exactly; \"\" is the core group", pattern: `^[a-z0-9.-]*$`,
		check: checkGroup}
	formatKind = &format{code: codeInvalidValue, what: "a kind, exactly",
		pattern: `^[A-Z][A-Za-z0-9]*$`, check: checkKindName}
)
