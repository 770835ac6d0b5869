package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// SetSpec is sources of items, each of which gives one deployment of the set's template
// (tenants/<tenant>/sets/<name>.yaml). Several sources give their product. The template has no type
// of its own: the decoder replaces the item's variables in it and decodes the result as a
// deployment.
type SetSpec struct {
	Directories *Discovery          `json:"directories,omitempty"`
	Files       *Discovery          `json:"files,omitempty"`
	List        []map[string]string `json:"list,omitempty"`
	// Listings are those that the items are from, in the order of Requests: the set is restored
	// with them, and can be expanded again without its repositories.
	Listings []Listing `json:"listings,omitempty"`
	// the deployments of the items, sorted by name, each name once
	Generated []Generated `json:"generated,omitempty"`
	// Unexpanded is why a set with Requests has no deployments: a listing is absent or empty, or
	// gives no deployments. The set's deployments in effect stay.
	Unexpanded []Problem `json:"unexpanded,omitempty"`
}

// Requests returns the listings that a set of the tenant asks for: of directories, then of files.
func (s *SetSpec) Requests(t TenantName) []ListingRequest {
	var all []ListingRequest
	if s.Directories != nil {
		all = append(all, s.Directories.Request(t, false))
	}
	if s.Files != nil {
		all = append(all, s.Files.Request(t, true))
	}
	return all
}

// Generated is one deployment of a set. It has a declaration, or problems that prevent one.
type Generated struct {
	Name        DeploymentName `json:"name"`
	Blob        string         `json:"blob"` // hash of everything else
	Declaration *Declaration   `json:"declaration,omitempty"`
	Problems    []Problem      `json:"problems,omitempty"`
}

// MaxSetItems is the most items of one set, the product of its sources.
const MaxSetItems = 1000

// Hash returns a hash in the form of a Git blob id. Equal deployments have equal hashes, so that an
// edit of a set changes the deployments whose items changed and no other.
func (g Generated) Hash() (id string, err error) {
	g.Blob = ""
	text, err := json.Marshal(g)
	if err != nil {
		return "", fmt.Errorf("hash a generated deployment: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:20]), nil
}

// TemplateField precedes the field of a generated deployment in the file of its set.
const TemplateField = "spec.template."

// SetKey returns the key of a set.
func SetKey(t TenantName, name string) Key {
	return Key{Kind: KindGitOpsDeploymentSet, Tenant: t, Name: name}
}

// SetOf returns the set that generates a deployment, given the path of the deployment's file. A
// deployment with a file of its own has none.
func SetOf(k Key, path string) (set string, generated bool) {
	if k.Kind != KindGitOpsDeployment {
		return "", false
	}
	name, generated := strings.CutPrefix(path, "tenants/"+string(k.Tenant)+"/sets/")
	if !generated {
		return "", false
	}
	return strings.TrimSuffix(name, ".yaml"), true
}

// itemVariable matches a variable of an item, or an escaped one, which has one more '$' in front.
var itemVariable = regexp.MustCompile(`\$?\$\{item\b[^}]*\}?`)

// itemField is the form of an item's field, itemPath that of a field that a file has, which may be
// nested.
var (
	itemField = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,62}$`)
	itemPath  = regexp.MustCompile(
		`^[A-Za-z][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9_-]{1,63})*$`)
)

// ValidateItemField reports why s may not name a field of an item, or nil.
func ValidateItemField(s string) error {
	if !itemField.MatchString(s) {
		return errors.New("a field of an item is 1 to 63 letters, digits, '_' and '-', beginning " +
			"with a letter")
	}
	return nil
}

// IsItemPath reports whether s may name a field of an item that is a file.
func IsItemPath(s string) bool { return len(s) <= 253 && itemPath.MatchString(s) }

// ExpandItem replaces each ${item.<field>} of a text by the item's value, which is not expanded
// again. "$${item.<field>}" is the text "${item.<field>}". An error names the first variable
// without a value.
func ExpandItem(s string, item map[string]string) (string, error) {
	if !strings.Contains(s, "${item") {
		return s, nil
	}
	var failed error
	out := itemVariable.ReplaceAllStringFunc(s, func(found string) string {
		if rest, escaped := strings.CutPrefix(found, "$$"); escaped {
			return "$" + rest
		}
		field, whole := strings.CutSuffix(strings.TrimPrefix(found, "${item"), "}")
		field, named := strings.CutPrefix(field, ".")
		v, ok := item[field]
		switch {
		case ok && whole && named:
			return v
		case failed != nil:
		case !whole || !named || !IsItemPath(field):
			failed = fmt.Errorf("%q is no variable of an item", found)
		default:
			failed = fmt.Errorf("the item has no field %q", field)
		}
		return found
	})
	return out, failed
}
