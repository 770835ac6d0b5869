package configschema

import (
	"maps"

	"argosy.dev/argosy/fleet/catalog"
)

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
	codeOutOfRange      = "out-of-range"
	codePathTwin        = "path-twin"
	codePlaintextSecret = "plaintext-secret"
	codeSealed          = "invalid-sealed-file"
	codeSyntax          = "syntax"
	codeTooDeep         = "too-deep"
	codeTooManyProblems = "too-many-problems" // fleet.CodeMoreProblems
	codeUnknownField    = "unknown-field"
	codeUnknownKind     = "unknown-kind"
	codeUnknownValue    = "unknown-value"
	codeUnsupported     = "unsupported"
	codeWrongExtension  = "wrong-extension"
	codeWrongKind       = "wrong-kind"
	codeWrongName       = "wrong-name"
	codeWrongType       = "wrong-type"
	codeWrongVersion    = "wrong-api-version"
	codeYAMLFeature     = "yaml-feature"
)

// AllCodes are the codes that argosy may tell: of this package, of what fleet/catalog finds between
// files, and of what a plan finds.
func AllCodes() map[string]string {
	all := catalog.Codes()
	maps.Copy(all, Codes())
	maps.Copy(all, planCodes())
	return all
}

// Codes says what each code of this package means, in one sentence.
func Codes() map[string]string {
	return map[string]string{
		codeBlank: "A field is empty (\"\", null, [] or {}). A blank never means a " +
			"default or a wildcard: leave the field out.",
		codeUnbound: "A *.sops.yaml file does not hold its own path as an encrypted " +
			"value, so that a copy of it would open for any tenant.",
		codeDuplicateEntry: "A list names the same thing twice.",
		codeDuplicateKey:   "A key stands twice in one map, or twice with different case.",
		codeEmptyFile:      "The file holds no declaration.",
		codeEncoding:       "The file is not plain UTF-8 text with LF or CRLF line ends.",
		codeExclusive:      "Fields exclude one another, or none of a group that needs one is set.",
		codeExpression: "An expression of a policy does not compile, gives another type " +
			"than it should, or may cost too much.",
		codeFileTooLarge: "The file is larger than a declaration may be.",
		codeHiddenCharacter: "The file holds a character that is not seen, or that makes the " +
			"text read differently from what it says.",
		codeInternal: "Argosy failed on this file. The fault is Argosy's; the " +
			"declaration is kept at its last good state.",
		codeInvalidLabel:    "A label's key or value is not allowed.",
		codeInvalidName:     "A name is not allowed.",
		codeInvalidPath:     "A path leaves its repository or is not in its plain form.",
		codeInvalidRevision: "A revision is no plain branch, tag or commit.",
		codeInvalidURL:      "A URL or host is refused.",
		codeInvalidValue:    "A value does not have the form that the field demands.",
		codeIrregular: "The entry is a symlink, a submodule or another thing that is no " +
			"regular file; it is never followed.",
		codeLFSPointer:   "The file is a Git LFS pointer; declarations are stored in Git itself.",
		codeMisplaced:    "The file stands where no declaration belongs.",
		codeMissingField: "A required field is missing.",
		codeNotAllowed: "The field exists in Argo CD or Kubernetes but is Argosy's or the " +
			"platform's to set.",
		codeOutOfRange: "A number, a text's length or a list's length is out of its bounds.",
		codePathTwin: "Two paths differ only in case, and would be one file on some " +
			"machines.",
		codePlaintextSecret: "The file holds what looks like a secret in clear. It must be " +
			"revoked, since Git keeps it.",
		codeSealed:          "A *.sops.yaml file is not wholly encrypted for age recipients.",
		codeSyntax:          "The file is not valid YAML.",
		codeTooDeep:         "Maps and lists are nested deeper than any declaration needs.",
		codeTooManyProblems: "The file has more problems than are told at once.",
		codeUnknownField:    "There is no such field.",
		codeUnknownKind:     "There is no such kind.",
		codeUnknownValue:    "The value is none of those that the field knows.",
		codeUnreadable: "The folder holds what Git would not have written, or more than is " +
			"read of one folder; what was applied of it stays.",
		codeUnsupported: "The kind or field belongs to a later version of Argosy and does " +
			"nothing in this one.",
		codeWrongExtension: "Declarations end in .yaml.",
		codeWrongKind:      "The kind is not the one that the folder holds.",
		codeWrongName:      "metadata.name is not the file's name.",
		codeWrongType:      "The value has another type than the field.",
		codeWrongVersion:   "apiVersion is not the one that this version reads.",
		codeYAMLFeature: "The file uses a feature of YAML that declarations do not have: " +
			"anchors, aliases, merges, tags, directives, several documents.",
	}
}
