// Package sealed writes *.sops.yaml files as `sops --encrypt --age RECIPIENT` does, for tests and the demo.
package sealed

import (
	"fmt"
	"time"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	"github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/stores/yaml"
)

// File encrypts values to an age recipient.
func File(recipient string, values map[string]any) ([]byte, error) {
	var branch sops.TreeBranch
	for k, v := range values {
		branch = append(branch, sops.TreeItem{Key: k, Value: v})
	}
	master, err := age.MasterKeyFromRecipient(recipient)
	if err != nil {
		return nil, err
	}
	tree := sops.Tree{Branches: sops.TreeBranches{branch}, Metadata: sops.Metadata{KeyGroups: []sops.KeyGroup{{master}}, Version: "3.9.0"}}
	key, errs := tree.GenerateDataKeyWithKeyServices([]keyservice.KeyServiceClient{keyservice.NewLocalClient()})
	if len(errs) > 0 {
		return nil, fmt.Errorf("seal: %v", errs)
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(key, cipher)
	if err != nil {
		return nil, err
	}
	tree.Metadata.LastModified = time.Now().UTC()
	if tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key, tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		return nil, err
	}
	return yaml.NewStore(&config.NewStoresConfig().YAML).EmitEncryptedFile(tree)
}
