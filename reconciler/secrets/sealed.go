package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/stores/yaml"
	"google.golang.org/grpc"

	"argosy.dev/argosy/fleet"
)

// Age names the identities that decrypt encrypted files.
type Age struct {
	// decrypts the files of every tenant without an identity of its own; "": none
	IdentityFile string
	// folder with one identity file per tenant, named after the tenant; "": none
	TenantIdentities string
}

// Identities decrypt encrypted files.
type Identities []age.Identity

// ageKeys holds the identities of Age. It reads those of tenants at each use, so that a replaced
// file takes effect without a restart.
type ageKeys struct {
	fleet   Identities
	tenants string
}

// AddAge adds the identities, in the format of `age-keygen -o FILE`, and the reader of ciphertexts.
func (r *Resolver) AddAge(from Age, ciphertexts Ciphertexts) error {
	keys := &ageKeys{tenants: from.TenantIdentities}
	if from.IdentityFile != "" {
		ids, err := ReadIdentities(from.IdentityFile)
		if err != nil {
			return err
		}
		keys.fleet = ids
	}
	if keys.tenants != "" {
		if info, err := os.Stat(keys.tenants); err != nil {
			return fmt.Errorf("folder of tenants' age identities: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("folder of tenants' age identities: %s is a file", keys.tenants)
		}
	}
	r.age, r.ciphertexts = keys, ciphertexts
	return nil
}

// ReadIdentities reads an age key file.
func ReadIdentities(file string) (Identities, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("age identities: %w", err)
	}
	return parseIdentities(file, text)
}

// parseIdentities drops the parser's error, because it quotes the file's content.
func parseIdentities(file string, text []byte) (Identities, error) {
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil,
			fmt.Errorf("age identities of %s cannot be parsed; write the file with age-keygen",
				file)
	}
	return ids, nil
}

// of returns the identities that decrypt the tenant's files: its own alone, or those of the fleet
// if it has none. An unreadable folder is an error: it does not prove that the tenant has none.
func (k *ageKeys) of(tenant fleet.TenantName) (Identities, error) {
	if k.tenants == "" {
		return k.fleet, nil
	}
	root, err := os.OpenRoot(k.tenants)
	if err != nil {
		return nil, fmt.Errorf("folder of tenants' age identities: %w", err)
	}
	defer root.Close()
	text, err := root.ReadFile(string(tenant))
	switch {
	case err == nil:
		return parseIdentities(k.tenants+"/"+string(tenant), text)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("age identities of tenant %s: %w", tenant, err)
	case len(k.fleet) == 0:
		return nil,
			fmt.Errorf(
				"tenant %s has no age identity: put it into %s/%s, or set "+
					"secrets.age.identityFile in argosy.yaml", tenant, k.tenants, tenant)
	}
	return k.fleet, nil
}

func (r *Resolver) unseal(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	subject := fmt.Sprintf("encrypted secret %s of %s", ref.Name, owner(ref.Tenant))
	if r.age == nil || r.ciphertexts == nil {
		return fleet.Secret{},
			fmt.Errorf(
				"%s: no age identity is configured; set secrets.age.identityFile in argosy.yaml",
				subject)
	}
	if ref.Tenant == "" || ref.Folder == "" {
		return fleet.Secret{}, fmt.Errorf("%s: the reference names no tenant or no folder", subject)
	}
	identities, err := r.age.of(ref.Tenant)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", subject, err)
	}
	sealed, err := r.ciphertexts(ctx, ref.Sealed)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: read ciphertext: %w", subject, err)
	}
	values, err := open(sealed, identities, ref)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", subject, err)
	}
	return fleet.NewSecret(values), nil
}

// open decrypts the file and returns its values only if it was encrypted for the reference's path.
func open(sealed []byte, identities []age.Identity, ref fleet.CredentialSource) (map[string][]byte,
	error) {
	o, err := decrypt(sealed, identities)
	if err != nil {
		return nil, err
	}
	switch {
	case o.boundTo == "":
		return nil,
			fmt.Errorf(
				"%s does not hold its own path, encrypted, under the key %s, so that a copy of "+
					"it would open for any tenant; encrypt it again: %s",
				ref.EncryptedPath(), fleet.EncryptedForKey, command(ref, "--identity KEYFILE"))
	case o.boundTo != ref.EncryptedFor():
		return nil,
			fmt.Errorf(
				"%s was encrypted for another path, and a copied or renamed file is invalid; "+
					"encrypt its own values: %s",
				ref.EncryptedPath(), command(ref, "--recipient RECIPIENT < VALUES"))
	}
	return o.values, nil
}

// command returns the command line that encrypts the file for its path.
func command(ref fleet.CredentialSource, rest string) string {
	return "argosy encrypt " + ref.EncryptedPath() + " " + rest
}

// opened is a decrypted file.
type opened struct {
	key        []byte // the data key
	recipients []string
	boundTo    string // the path that it was encrypted for; "" if the file has none
	values     map[string][]byte
}

// decrypt decrypts a SOPS file by age alone and verifies its MAC, which fails for a value copied
// from another file.
func decrypt(sealed []byte, identities Identities) (opened, error) {
	var o opened
	tree, err := yaml.NewStore(&config.NewStoresConfig().YAML).LoadEncryptedFile(sealed)
	if err != nil {
		return o, errors.New("is no sops file")
	}
	o.recipients = recipients(tree.Metadata)
	o.key, err = tree.Metadata.GetDataKeyWithKeyServices([]keyservice.KeyServiceClient{
		byAge{identities}}, nil)
	if err != nil {
		return o,
			errors.New(
				"none of its age identities decrypts it; encrypt it to the recipient that " +
					"the platform names")
	}
	cipher := aes.NewCipher()
	if o.boundTo, err = boundTo(tree.Branches, o.key, cipher); err != nil {
		return o, err
	}
	mac, err := tree.Decrypt(o.key, cipher)
	if err != nil {
		return o, errors.New("its values do not decrypt; it was changed after encryption")
	}
	original, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, o.key,
		tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil || original != mac {
		return o, errors.New("its MAC does not match; it was changed after encryption")
	}
	o.values, err = flat(tree.Branches)
	return o, err
}

// boundTo decrypts the path that the file was encrypted for, before any other value: with the
// file's own data key, even if the file's metadata marks values as plaintext. Writing that value
// requires the data key, and no MAC covers the metadata.
func boundTo(branches sops.TreeBranches, key []byte, cipher sops.Cipher) (string, error) {
	var found []any
	for _, branch := range branches {
		for _, item := range branch {
			if item.Key == fleet.EncryptedForKey {
				found = append(found, item.Value)
			}
		}
	}
	if len(found) == 0 {
		return "", nil
	}
	text, isText := found[0].(string)
	if len(found) > 1 || !isText {
		return "", fmt.Errorf("the key %s must occur in it once, with a text",
			fleet.EncryptedForKey)
	}
	value, err := cipher.Decrypt(text, key, fleet.EncryptedForKey+":")
	path, isText := value.(string)
	if err != nil || !isText || path == "" {
		return "", fmt.Errorf("the value of %s is not encrypted, or was encrypted in another file",
			fleet.EncryptedForKey)
	}
	return path, nil
}

func recipients(meta sops.Metadata) (to []string) {
	for _, group := range meta.KeyGroups {
		for _, k := range group {
			if a, ok := k.(*sopsage.MasterKey); ok {
				to = append(to, a.Recipient)
			}
		}
	}
	return to
}

// flat accepts a map of text values; a secret's keys cannot be nested.
func flat(branches sops.TreeBranches) (map[string][]byte, error) {
	if len(branches) != 1 {
		return nil, errors.New("holds more than one document; keep one map of keys")
	}
	values := map[string][]byte{}
	for _, item := range branches[0] {
		if _, isComment := item.Key.(sops.Comment); isComment || item.Key == fleet.EncryptedForKey {
			continue
		}
		key, ok := item.Key.(string)
		value, isText := item.Value.(string)
		if !ok || !isText {
			return nil, fmt.Errorf("key %v is no text; a secret is one flat map of text values",
				item.Key)
		}
		values[key] = []byte(value)
	}
	if len(values) == 0 {
		return nil, errors.New("holds no key")
	}
	return values, nil
}

// byAge wraps and unwraps data keys by age alone and rejects every other kind of key, so that no
// tenant's file triggers a request to a cloud, an environment variable or an agent of this machine.
type byAge struct{ identities Identities }

func (s byAge) Encrypt(_ context.Context, in *keyservice.EncryptRequest,
	_ ...grpc.CallOption) (*keyservice.EncryptResponse, error) {
	to := in.GetKey().GetAgeKey()
	if to == nil {
		return nil, errors.New("only age keys are encrypted to")
	}
	key, err := sopsage.MasterKeyFromRecipient(strings.TrimSpace(to.GetRecipient()))
	if err != nil {
		return nil, errors.New("no age recipient")
	}
	if err := key.Encrypt(in.GetPlaintext()); err != nil {
		return nil, errors.New("the recipient cannot be encrypted to")
	}
	return &keyservice.EncryptResponse{Ciphertext: []byte(key.EncryptedKey)}, nil
}

func (s byAge) Decrypt(_ context.Context, in *keyservice.DecryptRequest,
	_ ...grpc.CallOption) (*keyservice.DecryptResponse, error) {
	if in.GetKey().GetAgeKey() == nil {
		return nil, errors.New("only age keys are accepted")
	}
	key := sopsage.MasterKey{EncryptedKey: string(in.GetCiphertext())}
	sopsage.ParsedIdentities(s.identities).ApplyToMasterKey(&key)
	plain, err := key.Decrypt()
	if err != nil {
		return nil, errors.New("no identity decrypts it")
	}
	return &keyservice.DecryptResponse{Plaintext: plain}, nil
}
