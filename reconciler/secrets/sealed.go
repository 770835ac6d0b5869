package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
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

type ageIdentity = age.Identity

// AddAge adds the identities of an age key file, as `age-keygen -o FILE` writes it, and where ciphertexts are read.
func (r *Resolver) AddAge(identityFile string, from Ciphertexts) error {
	f, err := os.Open(identityFile)
	if err != nil {
		return fmt.Errorf("age identities: %w", err)
	}
	defer f.Close()
	ids, err := age.ParseIdentities(f)
	if err != nil {
		return fmt.Errorf("age identities of %s cannot be parsed; write the file with age-keygen", identityFile)
	}
	r.identities = append(r.identities, ids...)
	r.ciphertexts = from
	return nil
}

func (r *Resolver) unseal(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error) {
	subject := fmt.Sprintf("sealed secret %s of %s", ref.Name, owner(ref.Tenant))
	if len(r.identities) == 0 || r.ciphertexts == nil {
		return fleet.Secret{}, fmt.Errorf("%s: no age identity is configured; set secrets.age.identityFile in argosy.yaml", subject)
	}
	sealed, err := r.ciphertexts(ctx, ref.Sealed)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: read ciphertext: %w", subject, err)
	}
	values, err := decrypt(sealed, r.identities)
	if err != nil {
		return fleet.Secret{}, fmt.Errorf("%s: %w", subject, err)
	}
	return fleet.NewSecret(values), nil
}

// decrypt opens a sops file by age alone and verifies its MAC: a value moved in from another file does not pass.
func decrypt(sealed []byte, identities []age.Identity) (map[string][]byte, error) {
	store := yaml.NewStore(&config.NewStoresConfig().YAML)
	tree, err := store.LoadEncryptedFile(sealed)
	if err != nil {
		return nil, errors.New("is no sops file")
	}
	key, err := tree.Metadata.GetDataKeyWithKeyServices([]keyservice.KeyServiceClient{ageOnly{identities}}, nil)
	if err != nil {
		return nil, errors.New("none of the configured age identities opens it; encrypt it to the operator's recipient")
	}
	cipher := aes.NewCipher()
	mac, err := tree.Decrypt(key, cipher)
	if err != nil {
		return nil, errors.New("its values do not decrypt; it was changed after encryption")
	}
	original, err := cipher.Decrypt(tree.Metadata.MessageAuthenticationCode, key, tree.Metadata.LastModified.Format(time.RFC3339))
	if err != nil || original != mac {
		return nil, errors.New("its MAC does not match; it was changed after encryption")
	}
	return flat(tree.Branches)
}

// flat takes a map of text values; anything deeper has no meaning as a secret's keys.
func flat(branches sops.TreeBranches) (map[string][]byte, error) {
	if len(branches) != 1 {
		return nil, errors.New("holds more than one document; keep one map of keys")
	}
	values := map[string][]byte{}
	for _, item := range branches[0] {
		if _, isComment := item.Key.(sops.Comment); isComment {
			continue
		}
		key, ok := item.Key.(string)
		value, isText := item.Value.(string)
		if !ok || !isText {
			return nil, fmt.Errorf("key %v is no text; a secret is one flat map of text values", item.Key)
		}
		values[key] = []byte(value)
	}
	if len(values) == 0 {
		return nil, errors.New("holds no key")
	}
	return values, nil
}

// ageOnly opens data keys with the operator's age identities and refuses every other kind of key: no cloud, no environment variable and no
// agent of this machine is ever asked on a tenant's behalf.
type ageOnly struct{ identities []age.Identity }

func (s ageOnly) Encrypt(context.Context, *keyservice.EncryptRequest, ...grpc.CallOption) (*keyservice.EncryptResponse, error) {
	return nil, errors.New("only opens")
}

func (s ageOnly) Decrypt(_ context.Context, in *keyservice.DecryptRequest, _ ...grpc.CallOption) (*keyservice.DecryptResponse, error) {
	if in.GetKey().GetAgeKey() == nil {
		return nil, errors.New("only age keys are opened")
	}
	key := sopsage.MasterKey{EncryptedKey: string(in.GetCiphertext())}
	sopsage.ParsedIdentities(s.identities).ApplyToMasterKey(&key)
	plain, err := key.Decrypt()
	if err != nil {
		return nil, errors.New("no identity opens it")
	}
	return &keyservice.DecryptResponse{Plaintext: plain}, nil
}
