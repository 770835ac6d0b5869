package configschema

import (
	"maps"

	"argosy.dev/argosy/fleet/catalog"
)

// AllCodes returns the codes of every problem with their meaning: of this package, of fleet/catalog
// and of a plan.
func AllCodes() map[string]string {
	all := catalog.Codes()
	maps.Copy(all, Codes())
	maps.Copy(all, planCodes())
	return all
}

// Codes of the problems that this package finds. They are stable: people search for them and tools
// match them.
const (
	codeBlank           = "blank"
	codeUnbound         = "encrypted-for-nobody"
	codeDuplicateEntry  = "duplicate-entry"
	codeDuplicateKey    = "duplicate-key"
	codeEmptyFile       = "empty-file"
	codeEncoding        = "encoding"
	codeExclusive       = "exclusive-fields"
	codeExpression      = "invalid-expression"
	codeFileTooLarge    = "file-too-large"
	codeFreezeNeverEnds = "freeze-never-ends"
	codeHiddenCharacter = "hidden-character"
	codeInternal        = "internal"
	codeInvalidLabel    = "invalid-label"
	codeInvalidName     = "invalid-name"
	codeInvalidPath     = "invalid-path"
	codeInvalidRevision = "invalid-revision"
	codeInvalidURL      = "invalid-url"
	codeInvalidValue    = "invalid-value"
	codeIrregular       = "irregular-entry"
	codeUnreadable      = "unreadable-folder"
	codeLFSPointer      = "lfs-pointer"
	codeMisplaced       = "misplaced-file"
	codeMissingField    = "missing-field"
	codeNotAllowed      = "field-not-allowed"
	codeNothingListed   = "empty-listing"
	codeNotExpanded     = "not-expanded"
	codeOutOfRange      = "out-of-range"
	codePathCase        = "path-twin"
	codePlaintextSecret = "plaintext-secret"
	codeSealed          = "invalid-sealed-file"
	codeSyntax          = "syntax"
	codeUntested        = "untested-version"
	codeTooDeep         = "too-deep"
	codeTooManyProblems = "too-many-problems" // fleet.CodeMoreProblems
	codeUnknownChannel  = "unknown-channel"
	codeUnknownField    = "unknown-field"
	codeUnknownKind     = "unknown-kind"
	codeUnknownValue    = "unknown-value"
	codeUnknownRef      = "unknown-ref"
	codeUnknownSource   = "unknown-source"
	codeUnknownVariable = "unknown-variable"
	codeUnsupported     = "unsupported"
	codeWrongExtension  = "wrong-extension"
	codeWrongKind       = "wrong-kind"
	codeWrongName       = "wrong-name"
	codeWrongType       = "wrong-type"
	codeWrongVersion    = "wrong-api-version"
	codeYAMLFeature     = "yaml-feature"
)

// CodeNotExpanded is the code of a set without a listing that it requests.
const CodeNotExpanded = codeNotExpanded

// Codes returns the codes of this package with their meaning, in one sentence each.
func Codes() map[string]string {
	return map[string]string{
		codeBlank: "A field is empty (\"\", null, [] or {}). A blank never means a " +
			"default or a wildcard: leave the field out.",
		codeUnbound: "A *.sops.yaml file does not hold its own path as an encrypted " +
			"value, so that a copy of the file would open for any tenant.",
		codeDuplicateEntry: "A list names the same thing twice.",
		codeDuplicateKey:   "A map has a key twice, or twice with different case.",
		codeEmptyFile:      "The file holds no declaration.",
		codeEncoding:       "The file is not plain UTF-8 text with LF or CRLF line ends.",
		codeExclusive:      "Fields exclude one another, or none of a group that needs one is set.",
		codeExpression: "An expression of a policy does not compile, gives another type " +
			"than it should, or may cost too much.",
		codeFileTooLarge:    "The file is larger than a declaration may be.",
		codeFreezeNeverEnds: "A freeze begins again before it ends, without an end.",
		codeUntested:        "A ring has a version of Argo CD that Argosy's tests do not run.",
		codeHiddenCharacter: "The file holds an invisible character, or one that changes how " +
			"the text reads.",
		codeInternal: "Argosy failed on this file. The fault is Argosy's; the " +
			"declaration is kept at its last good state.",
		codeInvalidLabel:    "A label's key or value is not allowed.",
		codeInvalidName:     "A name is not allowed.",
		codeInvalidPath:     "A path leaves its repository or is not in its plain form.",
		codeInvalidRevision: "A revision is no plain branch, tag or commit.",
		codeInvalidURL:      "A URL or host is refused.",
		codeInvalidValue:    "A value does not have the form that the field demands.",
		codeIrregular: "The entry is a symlink, a submodule or another entry that is no " +
			"regular file. Argosy never follows it.",
		codeLFSPointer:   "The file is a Git LFS pointer; declarations are stored in Git itself.",
		codeMisplaced:    "The file is in a place where no declaration belongs.",
		codeMissingField: "A required field is missing.",
		codeNotAllowed: "The field exists in Argo CD or Kubernetes but is Argosy's or the " +
			"platform's to set.",
		codeNothingListed: "Nothing in the repository of a set matches: the set's deployments " +
			"keep their last good state.",
		CodeNotExpanded: "The repository of a set is not read: the set's deployments keep their " +
			"last good state.",
		codeOutOfRange: "A number, a text's length or a list's length is out of its bounds.",
		codePathCase: "Two paths differ only in case, and would be one file on some " +
			"machines.",
		codePlaintextSecret: "The file seems to hold a secret in plaintext. Revoke it, since " +
			"Git keeps it.",
		codeSealed:          "A *.sops.yaml file is not wholly encrypted for age recipients.",
		codeSyntax:          "The file is not valid YAML.",
		codeTooDeep:         "Maps and lists are nested deeper than any declaration needs.",
		codeTooManyProblems: "The file has more problems than one report shows.",
		codeUnknownChannel:  "A subscription names a channel that the file does not declare.",
		codeUnknownField:    "There is no such field.",
		codeUnknownKind:     "There is no such kind.",
		codeUnknownValue:    "The field does not allow the value.",
		codeUnreadable: "The folder holds entries that Git would not have written, or is " +
			"too large to be read; its applied declarations stay in effect.",
		codeUnknownSource:   "The override names no source of the deployment, or more than one.",
		codeUnknownVariable: "A text holds ${...} that is no variable.",
		codeUnknownRef:      "A value file names a ref that no source of the deployment has.",
		codeUnsupported: "The kind or field belongs to a later version of Argosy and does " +
			"nothing in this one.",
		codeWrongExtension: "Declarations end in .yaml.",
		codeWrongKind:      "The folder holds declarations of another kind.",
		codeWrongName:      "metadata.name is not the file's name.",
		codeWrongType:      "The value has another type than the field.",
		codeWrongVersion:   "This version of Argosy does not read the apiVersion.",
		codeYAMLFeature: "The file uses a feature of YAML that declarations do not have: " +
			"anchors, aliases, merges, tags, directives, several documents.",
	}
}

// planCodes returns the codes that only a plan has: problems of reconciler/plan, and the notes of
// `argosy plan -o sarif` on changes. This package does not import reconciler/plan; a test keeps the
// two in step.
func planCodes() map[string]string {
	return map[string]string{
		"adopt-namespace": "The engine does not give the Applications of that namespace to the " +
			"tenant.",
		"already-adopted": "Another declaration has or adopts the Application of that name on the " +
			"engine: an Application has one declaration.",
		"artifact-unsupported": "The environment is on an engine whose Argo CD deploys no OCI " +
			"artifacts.",
		"ring-manifests": "A ring's directory does not have the manifests that the ring declares.",
		"cannot-render": "No object for Argo CD can be made from the declaration; it keeps " +
			"its last good state.",
		"engine-in-use": "The engine still serves environments or holds objects: it cannot " +
			"be removed, nor become another Argo CD.",
		"environment-in-use": "The environment still has Applications. A warning: a change between " +
			"`cluster` and `agent` waits until they have moved. An error: neither the mode nor " +
			"the Argo CD of its agent can change under them. During a move, or while an " +
			"Application of it is being deleted, neither can the address of its cluster.",
		"wave-in-slices": "A deployment with a wave is in an environment that is split into slices: " +
			"no worker has all of its Applications.",
		"environment-outgrown": "The environment has more Applications than its engine has capacity: " +
			"it stays, and a drain may find no engine for it.",
		"environment-too-large": "No engine that may serve the environment is large enough for " +
			"it, not even an empty one.",
		"listing-failed": "The repository of a set cannot be read now: the deployments of its " +
			"last listing stay.",
		"plan-create": "An object is created on an engine.",
		"plan-delete": "An object is deleted from an engine.",
		"plan-freeze": "An object is created or changed once a freeze ends, or a person releases it.",
		"plan-hold":   "An object would be deleted, and waits for an approval.",
		"plan-update": "An object is changed on an engine.",
		"shared-clone": "Another tenant reads the repository on the same engine, and one of " +
			"the two has a credential of its own: Argo CD keeps one clone for both.",
		"sync-not-run": "The SyncRun is not run in an environment that no engine serves yet.",
		"unplaced":     "No engine can serve the environment.",
	}
}
