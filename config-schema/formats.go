package configschema

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/jq"
)

// variablePattern matches a variable in a JSON Schema.
const variablePattern = `\$\{[A-Za-z0-9._/-]+\}`

// Formats of texts. The error of a check gives the reason; the decoder adds the position and the
// field's example.
var (
	formatName = &format{
		code: codeInvalidName,
		what: "a name: 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or " +
			"digit, not reserved",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: fleet.ValidateName}
	formatLabelWord = &format{
		code:    codeInvalidName,
		what:    "1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: checkDNSLabel}
	formatObject = &format{
		code: codeInvalidName,
		what: "the exact name of an Application: a-z, 0-9, '-' and '.'; with its namespace and " +
			"'/' before it if that is not Argo CD's own",
		pattern: `^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`,
		check:   fleet.ValidateObject}
	formatNamespaceEntry = &format{
		code: codeInvalidName,
		what: "one exact namespace, or with a '-' at the end every namespace that begins so; " +
			"those of Argosy are refused, those of Kubernetes and Argo CD and `default` unless " +
			"the platform grants them",
		pattern: `^[a-z0-9][-a-z0-9]{0,62}$`, check: fleet.CheckNamespaceEntry}
	// the namespace of a deployment; the environment lists it
	formatTargetNamespace = &format{
		code: codeInvalidName, what: "one exact namespace, never a pattern; not one of Argosy",
		pattern: `^([-a-z0-9]|` + variablePattern + `)+$`, check: fleet.CheckNamespace,
		variables: true}
	formatGrantedNamespace = &format{
		code: codeInvalidName, what: "one exact namespace, never a pattern; not one of Argosy",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: fleet.CheckNamespace}
	formatNamespaceGrant = &format{
		code:    codeInvalidName,
		what:    "one exact namespace, or with a '-' at the end every namespace that begins so",
		pattern: `^[a-z0-9][-a-z0-9]{0,62}$`, check: fleet.CheckNamespaceGrant}
	formatApplicationNamespace = &format{
		code:    codeInvalidName,
		what:    "one exact namespace, never a pattern; not one of Kubernetes, Argo CD or Argosy",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: fleet.ValidateNamespace}
	formatEngineNamespace = &format{
		code: codeInvalidName, what: "one exact namespace, not one of Kubernetes' own",
		pattern: `^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`, check: checkEngineNamespace}
	formatRepoURL = &format{
		code: codeInvalidURL,
		what: "an https:// or ssh:// URL of a repository, git@host:path, http:// for a host " +
			"that is listed with it, registry.example.com/<folder> of OCI charts, or " +
			"oci://registry.example.com/<name> of OCI artifacts, without pattern or query; its " +
			"host is listed in Fleet.gitHosts",
		pattern: `^[^\s*?\[\]{}!\\%#]+$`, check: func(s string) error {
			_, err := fleet.ParseRepoURL(s)
			return err
		}}
	formatCredentialURL = &format{
		code:    codeInvalidURL,
		what:    "a folder of repositories with a trailing slash, or " + formatRepoURL.what,
		pattern: formatRepoURL.pattern, check: fleet.CheckRepoScope}
	formatGrant = &format{
		code:    codeInvalidURL,
		what:    "the URL of a repository, or with a trailing slash everything below it",
		pattern: `^[^\s*?\[\]{}!\\%#]+$`, check: fleet.CheckRepoScope}
	formatArtifactGrant = &format{
		code: codeInvalidURL,
		what: "oci:// and the registry and name of an artifact, or with a trailing slash " +
			"everything below it",
		pattern: `^oci://[^\s*?\[\]{}!\\%#]+$`, check: fleet.CheckArtifactScope}
	formatGitHost = &format{
		code: codeInvalidURL,
		what: "an exact host, with :port when it is not the default; http://host allows it " +
			"without TLS",
		pattern: `^(http://)?[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckGitHost}
	formatClusterHost = &format{code: codeInvalidURL, what: "an exact host, or host:port",
		pattern: `^[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckClusterHost}
	formatServer = &format{
		code:    codeInvalidURL,
		what:    "https://host[:port] of an API server, without path, query or user",
		pattern: `^https://[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckServerURL}
	formatMetricsURL = &format{
		code: codeInvalidURL,
		what: "http://host[:port] or https://host[:port], without path, query or user; not a " +
			"link-local address",
		pattern: `^https?://[^\s*?\[\]{}!\\%#/@]+$`, check: fleet.CheckMetricsURL}
	formatServerGrant = &format{
		code: codeInvalidURL,
		what: "https://host[:port] of an API server, .domain for every host below it, " +
			"cluster:<name> for a Cluster, or engine:<name> for the cluster that an Engine runs on",
		pattern: `^(https://|\.|cluster:|engine:)[^\s*?\[\]{}!\\%#/@]+$`,
		check:   fleet.CheckServerGrant}
	formatEKSName = &format{code: codeInvalidValue, what: "the name of a cluster in EKS",
		pattern: `^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`, check: fleet.CheckEKSName}
	formatRoleARN = &format{code: codeInvalidValue, what: "the ARN of an IAM role",
		pattern: `^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role/[0-9A-Za-z_+=,.@/-]{1,512}$`,
		check:   fleet.CheckRoleARN}
	formatGUID = &format{code: codeInvalidValue, what: "a UUID in lower case",
		pattern: `^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`, check: fleet.CheckGUID}
	formatCAData = &format{
		code: codeInvalidValue, what: "the cluster's CA certificates: PEM, in base64",
		pattern: `^[A-Za-z0-9+/]+={0,2}$`, check: checkCAData}
	formatPath = &format{
		code:    codeInvalidPath,
		what:    "a path inside the repository, `.` for its root; no `..`, no leading slash",
		pattern: `^([A-Za-z0-9._@+=,/-]|` + variablePattern + `)+$`,
		check:   fleet.CheckPath, variables: true}
	formatValueFile = &format{
		code: codeInvalidPath,
		what: "a path inside the repository, or `$<ref>/<path>` inside the repository of the " +
			"source with that ref; no leading slash, and `..` only at its beginning",
		pattern: `^[$]?([A-Za-z0-9._@+=,/-]|` + variablePattern + `)+$`,
		check:   fleet.CheckValueFile, variables: true}
	formatBelow = &format{
		code:    codeInvalidPath,
		what:    "a path inside the repository; `../` at its beginning leads to the folders above",
		pattern: `^[A-Za-z0-9._@+=,/-]+$`, check: fleet.CheckFileBelow}
	formatPlainPath = &format{
		code: codeInvalidPath, what: "a plain path, without `..` and without a leading slash",
		pattern: `^[A-Za-z0-9._@+=,/-]+$`, check: fleet.CheckPath}
	formatKubeVersion = &format{
		code: codeInvalidValue, what: "a version of Kubernetes, e.g. 1.31 or v1.31.2",
		pattern: `^v?[0-9]+[.][0-9]+([.][0-9]+)?$`, check: fleet.CheckKubeVersion}
	formatAPIVersion = &format{
		code: codeInvalidValue, what: "v1, group/version or group/version/Kind",
		pattern: `^[A-Za-z0-9.-]+(/[A-Za-z0-9.-]+){0,2}$`, check: fleet.CheckAPIVersion}
	formatPattern = &format{
		code:    codeInvalidValue,
		what:    "a pattern of files: letters, digits, . _ @ + = - / and * ? {a,b}",
		pattern: `^[A-Za-z0-9._@+=/?*{},-]+$`, check: fleet.CheckFilePattern}
	formatPairKey = &format{
		code:    codeInvalidLabel,
		what:    "a key: [domain/]name of letters, digits, '-', '_' and '.'",
		pattern: `^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`,
		check:   func(s string) error { return fleet.CheckKustomizePair(s, "x") }}
	formatPairValue = &format{
		code:    codeInvalidValue,
		what:    "printable ASCII characters without , \" ' \\ and $",
		pattern: `^[^,"'\\$]+$`,
		check:   func(s string) error { return fleet.CheckKustomizePair("x", s) }}
	formatKustomizeVersion = &format{
		code: codeInvalidValue, what: "a version of kustomize, e.g. v5.4.3",
		pattern: `^v[0-9]+[.][0-9]+[.][0-9]+$`, check: checkKustomizeVersion}
	formatPlugin = &format{
		code: codeInvalidValue, what: "letters, digits, '.', '_' and '-'",
		pattern: `^[A-Za-z0-9][A-Za-z0-9._-]*$`, check: checkChart}
	formatVariableName = &format{
		code: codeInvalidValue, what: "the name of a variable: letters, digits and '_'",
		pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, check: checkVariableName}
	formatOwnVariable = &format{
		code: codeInvalidValue,
		what: "the name of a variable: letters, digits, '-', '_', '.' and '/', beginning and " +
			"ending with a letter or digit",
		pattern: `^[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?$`, check: fleet.CheckVariableName}
	formatOwnValue = &format{
		code: codeInvalidValue,
		what: "letters, digits and any of _ . / - : @ + = , beginning with none of the last six " +
			"and not ending in ':'",
		pattern: `^([A-Za-z0-9_./]([A-Za-z0-9_./:@+=,-]*[A-Za-z0-9_./@+=,-])?)?$`,
		check:   fleet.CheckVariableValue}
	formatRef = &format{
		code:    codeInvalidName,
		what:    "a-z, A-Z, 0-9, '-' and '_', beginning with a letter or digit",
		pattern: `^[A-Za-z0-9][A-Za-z0-9_-]*$`, check: fleet.ValidateRef}
	formatChart = &format{code: codeInvalidValue, what: "the name of a chart",
		pattern: `^[A-Za-z0-9][A-Za-z0-9._-]*$`, check: checkChart}
	formatRevision = &format{
		code: codeInvalidRevision,
		what: "a branch, tag, commit, chart version or digest of an OCI artifact, exactly, or a " +
			"range of versions of a chart or artifact",
		pattern: `^(sha256:[0-9a-f]{64}|([A-Za-z0-9._/+_^~<>=*| -]|` + variablePattern + `)+)$`,
		check:   checkTarget, variables: true}
	formatFixed = &format{
		code:    codeInvalidRevision,
		what:    "a full commit id, a tag, or the digest of an OCI artifact; not HEAD",
		pattern: `^(sha256:[0-9a-f]{64}|[A-Za-z0-9_][A-Za-z0-9._/+_-]*)$`,
		check:   checkFixedRevision}
	formatImage = &format{
		code: codeInvalidValue, what: "an image override: [name=]image[:tag][@digest]",
		pattern: `^([A-Za-z0-9._/:@=+-]|` + variablePattern + `)+$`,
		check:   fleet.CheckImage, variables: true}
	formatAffix = &format{code: codeInvalidValue, what: "a-z, 0-9, '-' and '.'",
		pattern: `^[a-z0-9.-]+$`,
		check:   charset("a-z, 0-9, '-' and '.'", "abcdefghijklmnopqrstuvwxyz0123456789.-")}
	formatRelease = &format{code: codeInvalidName, what: "at most 53 of a-z, 0-9 and '-'",
		pattern: `^([-a-z0-9]|` + variablePattern + `)+$`, check: fleet.CheckRelease,
		variables: true}
	formatParam = &format{
		code: codeInvalidValue, what: "a key of the chart's values, e.g. image.tag or hosts[0]",
		pattern: `^[^\s,={}]+$`, check: checkParameterName}
	formatAny = &format{code: codeInvalidValue, what: "any text", pattern: ``,
		check: func(string) error { return nil }}
	formatItemField = &format{
		code:    codeInvalidValue,
		what:    "1 to 63 letters, digits, '_' and '-', beginning with a letter",
		pattern: `^[A-Za-z][A-Za-z0-9_-]{0,62}$`, check: fleet.ValidateItemField}
	formatItemValue = &format{
		code: codeInvalidValue, what: "one line of text without ${", pattern: ``,
		check: func(s string) error {
			if strings.ContainsAny(s, "\r\n") || strings.Contains(s, "${") {
				return errors.New("an item's value is one line and holds no ${")
			}
			return nil
		}}
	formatListed = &format{
		code: codeInvalidRevision, what: "a branch, tag or commit, exactly",
		pattern: `^[A-Za-z0-9._/+_-]+$`, check: fleet.CheckRevision}
	formatListPattern = &format{
		code:    codeInvalidValue,
		what:    "a pattern of paths: letters, digits, . _ @ + = , / - and * ? **, or ! in front",
		pattern: `^!?[A-Za-z0-9._@+=,/*?-]+$`, check: fleet.CheckListPattern}
	formatOwner = &format{
		code: codeInvalidValue,
		what: "`github:<login>` for a person, `github:<organization>/<team>` for a team, or " +
			"`group:<name>` for a group that people sign in with",
		pattern: `^(github:[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?|group:[A-Za-z0-9][A-Za-z0-9._/:@-]*)$`, check: checkOwner}
	formatLabelKey = &format{
		code: codeInvalidLabel,
		what: "the key of a label, e.g. team or example.com/team: outside the domains of " +
			"Kubernetes, Argo CD and Argosy",
		pattern: `^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, check: checkLabelKey}
	formatLabel = &format{
		code:    codeInvalidLabel,
		what:    "the value of a label: at most 63 of a-z, A-Z, 0-9, '-', '_' and '.'",
		pattern: `^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`, check: checkLabelValue}
	formatNamespaceKey = &format{
		code:    codeInvalidLabel,
		what:    "the key of a label or annotation, e.g. pod-security.kubernetes.io/enforce",
		pattern: formatLabelKey.pattern, check: fleet.CheckNamespaceKey}
	formatNamespaceKeyGrant = &format{
		code: codeInvalidLabel,
		what: "the key of a label or annotation, exactly, or a domain with a trailing slash for " +
			"all its keys; none of Argo CD or Argosy",
		pattern: `^([a-z0-9.-]+/)?([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$`,
		check:   fleet.CheckNamespaceKeyGrant}
	formatIgnoredGroup = &format{
		code: codeInvalidValue, what: "an API group, exactly, or \"*\"; \"\" is the core group",
		pattern: `^([a-z0-9.-]*|\*)$`, check: fleet.CheckIgnoredGroup}
	formatIgnoredKind = &format{
		code: codeInvalidValue, what: "a kind, exactly, or \"*\"",
		pattern: `^([A-Za-z][A-Za-z0-9]*|\*)$`, check: fleet.CheckIgnoredKind}
	formatResourceName = &format{
		code: codeInvalidName, what: "the exact name of a resource",
		pattern: `^[^*?\[\]{}!\\/%\s]+$`, check: fleet.CheckResourceName}
	formatJSONPointer = &format{
		code: codeInvalidPath, what: "a JSON pointer, e.g. /spec/replicas",
		pattern: `^(/([^~]|~[01])*)+$`, check: fleet.CheckJSONPointer}
	formatJQPath = &format{
		code:    codeExpression,
		what:    "a path such as .spec.containers[] | select(.name == \"proxy\") | .image",
		pattern: ``, check: jq.Check}
	formatFieldManager = &format{
		code: codeInvalidName, what: "the exact name of a field manager",
		pattern: `^[^*?]+$`, check: fleet.CheckFieldManager}
	formatLinkURL = &format{
		code: codeInvalidURL, what: "an http:// or https:// URL without user",
		pattern: `^[Hh][Tt][Tt][Pp][Ss]?://[^\s|<>"'\x60\\]+$`, check: fleet.CheckLinkURL}
	formatLinkTitle = &format{
		code: codeInvalidValue, what: "a text without |, < and >", pattern: `^[^|<>]+$`,
		check: fleet.CheckLinkTitle}
	formatInfo = &format{
		code: codeInvalidValue, what: "a text; a URL is http:// or https://", pattern: ``,
		check: fleet.CheckInfoValue}
	formatGroup = &format{
		code: codeInvalidValue, what: "an API group, exactly; \"\" is the core group",
		pattern: `^[a-z0-9.-]*$`, check: checkGroup}
	formatKind = &format{code: codeInvalidValue, what: "a kind, exactly",
		pattern: `^[A-Z][A-Za-z0-9]*$`, check: checkKindName}
	formatTime = &format{code: codeInvalidValue, what: "a time in UTC, as in RFC 3339",
		pattern: `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$`, check: checkTime}
)

func checkTime(s string) error {
	if _, err := time.Parse("2006-01-02T15:04:05Z", s); err != nil {
		return fmt.Errorf("%q is no time such as 2026-11-23T05:00:00Z", s)
	}
	return nil
}

func checkEngineNamespace(s string) error {
	if err := checkDNSLabel(s); err != nil {
		return err
	}
	if s == "default" || strings.HasPrefix(s, "kube-") {
		return fmt.Errorf("namespace %q is reserved by Kubernetes", s)
	}
	return nil
}

func checkCAData(s string) error {
	pem, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return errors.New("the text is no base64 in one line")
	}
	if err := fleet.CheckCA(pem); err != nil {
		return fmt.Errorf("the text %w", err)
	}
	return nil
}

// checkTarget allows a revision, and a range of versions: revisionsFit demands a chart or an
// artifact for it, and the catalog the grant.
func checkTarget(s string) error {
	if fleet.IsVersionRange(s) || fleet.IsDigest(s) {
		return nil
	}
	return fleet.CheckRevision(s)
}

func checkVariableName(s string) error {
	if !only(s, alnum+"_") || strings.IndexByte(digits, s[0]) >= 0 {
		return errors.New(
			"a variable's name holds letters, digits and '_', and begins with no digit")
	}
	return nil
}

func checkKustomizeVersion(s string) error {
	rest, ok := strings.CutPrefix(s, "v")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return errors.New("the version is not v<major>.<minor>.<patch>")
	}
	for _, part := range parts {
		if part == "" || !only(part, digits) {
			return errors.New("the version is not v<major>.<minor>.<patch>")
		}
	}
	return nil
}

func checkChart(s string) error {
	if strings.IndexByte(alnum, s[0]) < 0 {
		return errors.New("a chart's name begins with a letter or digit")
	}
	return charset("letters, digits, '.', '_' and '-'", alnum+"._-")(s)
}

func checkFixedRevision(s string) error {
	if strings.EqualFold(s, "HEAD") {
		return errors.New("HEAD moves; a sync runs at a full commit id or a tag")
	}
	if fleet.IsDigest(s) {
		return nil
	}
	return fleet.CheckRevision(s)
}

func checkDNSLabel(s string) error {
	if s == "" || len(s) > 63 || !only(s, lower+digits+"-") || s[0] == '-' || s[len(s)-1] == '-' {
		return errors.New(
			"only 1 to 63 of a-z, 0-9 and '-' are allowed, beginning and ending with a letter " +
				"or digit")
	}
	return nil
}

func checkParameterName(s string) error {
	if strings.ContainsAny(s, ",={} \t\r\n") || s[0] == '-' {
		return errors.New(
			"a parameter's name holds no blank, ',', '=', '{' or '}', which would set other values")
	}
	return nil
}

func checkOwner(s string) error {
	_, err := fleet.ParseOwner(s)
	return err
}

// reservedDomains are prefixes of labels that Kubernetes, Argo CD and Argosy give a meaning.
var reservedDomains = []string{"kubernetes.io", "k8s.io", "argoproj.io", "argosy.dev"}

func checkLabelKey(s string) error {
	prefix, name, found := strings.Cut(s, "/")
	if !found {
		prefix, name = "", s
	}
	if err := checkLabelValue(name); err != nil {
		return err
	}
	if found && (prefix == "" || len(prefix) > 253 || !only(prefix, lower+digits+".-") ||
		strings.IndexByte(".-", prefix[0]) >= 0 ||
		strings.IndexByte(".-", prefix[len(prefix)-1]) >= 0) {
		return errors.New("the part before the slash is no DNS name")
	}
	for _, d := range reservedDomains {
		if prefix == d || strings.HasSuffix(prefix, "."+d) {
			return fmt.Errorf(
				"labels of %s mean something to Kubernetes, Argo CD or Argosy and are not a "+
					"declaration's to set", d)
		}
	}
	return nil
}

func checkLabelValue(s string) error {
	if s == "" || len(s) > 63 || strings.IndexByte(alnum, s[0]) < 0 ||
		strings.IndexByte(alnum, s[len(s)-1]) < 0 || !only(s, alnum+"-_.") {
		return errors.New(
			"only 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.' are allowed, beginning and ending " +
				"with a letter or digit")
	}
	return nil
}

func checkGroup(s string) error {
	if s == "argoproj.io" || strings.HasSuffix(s, ".argoproj.io") {
		return errors.New("kinds of Argo CD itself are never a tenant's")
	}
	if s != "" && (!only(s, lower+digits+".-") || strings.IndexByte(".-", s[0]) >= 0 ||
		strings.IndexByte(".-", s[len(s)-1]) >= 0) {
		return errors.New("the group is no DNS name")
	}
	return nil
}

func checkKindName(s string) error {
	if strings.IndexByte(upper, s[0]) < 0 {
		return errors.New("a kind begins with a capital letter and holds letters and digits")
	}
	return charset("letters and digits", alnum)(s)
}

// charset makes a check that a text holds only the given characters.
func charset(what, set string) func(string) error {
	return func(s string) error {
		if !only(s, set) {
			return errors.New("only " + what + " are allowed")
		}
		return nil
	}
}
