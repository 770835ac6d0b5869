package secrets

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/stores/yaml"
	goyaml "go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// formatVersion is the SOPS version whose file format Encrypt writes.
const formatVersion = "3.9.0"

// Encrypt writes values as the encrypted file of source: to the age recipients, under a new data
// key, bound to the path of source.
func Encrypt(source fleet.CredentialSource, recipients []string, values map[string]string) ([]byte,
	error) {
	if len(recipients) == 0 {
		return nil, errors.New("an age recipient is required")
	}
	if len(values) == 0 {
		return nil, errors.New("there is no value to encrypt")
	}
	var group sops.KeyGroup
	for _, to := range recipients {
		key, err := sopsage.MasterKeyFromRecipient(to)
		if err != nil || !strings.HasPrefix(to, "age1") {
			return nil,
				fmt.Errorf(
					"%.80q is no age recipient; age-keygen prints it as \"public key\", "+
						"beginning with age1", to)
		}
		group = append(group, key)
	}
	branch := sops.TreeBranch{{Key: fleet.EncryptedForKey, Value: source.EncryptedFor()}}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if values[key] == "" {
			return nil, fmt.Errorf("the value of %q is empty; leave the key out", key)
		}
		if key != fleet.EncryptedForKey {
			branch = append(branch, sops.TreeItem{Key: key, Value: values[key]})
		}
	}
	tree := sops.Tree{
		Branches: sops.TreeBranches{branch},
		Metadata: sops.Metadata{KeyGroups: []sops.KeyGroup{group}, Version: formatVersion,
			LastModified: time.Now().UTC()},
	}
	key, errs := tree.GenerateDataKeyWithKeyServices([]keyservice.KeyServiceClient{byAge{}})
	if len(errs) > 0 {
		return nil, fmt.Errorf("wrap the data key: %w", errors.Join(errs...))
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(key, cipher)
	if err != nil {
		return nil, errors.New("the values cannot be encrypted")
	}
	if tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key,
		tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		return nil, errors.New("the message authentication code cannot be encrypted")
	}
	return yaml.NewStore(&config.NewStoresConfig().YAML).EmitEncryptedFile(tree)
}

// EncryptAgain re-encrypts the values of the existing file of source, bound to its path: to its own
// recipients unless others are given. It rejects a file that was encrypted for another path: the
// command must not make a copied file valid.
func EncryptAgain(source fleet.CredentialSource, file []byte, identities Identities,
	to []string) ([]byte, error) {
	o, err := decrypt(file, identities)
	if err != nil {
		return nil, err
	}
	if o.boundTo != "" && o.boundTo != source.EncryptedFor() {
		return nil,
			fmt.Errorf("was encrypted for another path; encrypt its original values: %s",
				command(source, "--recipient RECIPIENT < VALUES"))
	}
	if len(to) == 0 {
		to = o.recipients
	}
	values := make(map[string]string, len(o.values))
	for k, v := range o.values {
		if len(v) > 0 {
			values[k] = string(v)
		}
	}
	return Encrypt(source, to, values)
}

// SameDataKey reports whether two files that the identities decrypt share one data key: then one of
// them was derived from the other.
func SameDataKey(a, b []byte, identities Identities) bool {
	first, err := decrypt(a, identities)
	if err != nil && first.key == nil {
		return false
	}
	second, err := decrypt(b, identities)
	if err != nil && second.key == nil {
		return false
	}
	return subtle.ConstantTimeCompare(first.key, second.key) == 1
}

// Recipients returns the age recipients of an encrypted file.
func Recipients(file []byte) []string {
	tree, err := yaml.NewStore(&config.NewStoresConfig().YAML).LoadEncryptedFile(file)
	if err != nil {
		return nil
	}
	return recipients(tree.Metadata)
}

// ParseValues reads a flat YAML map of texts. Its errors name keys and lines, never a value, which
// the errors of a YAML parser may contain.
func ParseValues(text []byte) (map[string]string, error) {
	var doc goyaml.Node
	if err := goyaml.Unmarshal(text, &doc); err != nil {
		return nil, errors.New("the values are not valid YAML")
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != goyaml.MappingNode {
		return nil, errors.New("the values must be one flat map, such as `token: ...`")
	}
	values := map[string]string{}
	fields := doc.Content[0].Content
	for i := 0; i+1 < len(fields); i += 2 {
		key, value := fields[i], fields[i+1]
		if key.Kind != goyaml.ScalarNode || value.Kind != goyaml.ScalarNode {
			return nil, fmt.Errorf("line %d: the values are one flat map of texts", key.Line)
		}
		if _, twice := values[key.Value]; twice {
			return nil, fmt.Errorf("line %d: duplicate key", key.Line)
		}
		if key.Value == "sops" {
			return nil,
				fmt.Errorf(
					"line %d: the values are encrypted already; give --identity to encrypt a "+
						"file again", key.Line)
		}
		if value.Tag == "!!null" || value.Value == "" {
			return nil, fmt.Errorf("line %d: the value of %q is empty; leave the key out", key.Line,
				key.Value)
		}
		values[key.Value] = value.Value
	}
	return values, nil
}
