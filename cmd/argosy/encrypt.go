package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/checkout"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/reconciler/secrets"
)

func encryptCommand(a *app) *cobra.Command {
	var recipients []string
	var identity string
	cmd := &cobra.Command{
		Use:   "encrypt FILE",
		Short: "Write a *.sops.yaml that opens for its own path only",
		Long: "Reads a flat YAML map of values from stdin and writes FILE,\n" +
			"tenants/TENANT/environments/NAME.sops.yaml or\n" +
			"tenants/TENANT/credentials/NAME.sops.yaml in a checkout of the config repo:\n" +
			"encrypted to the age recipients, and holding its own path among the encrypted\n" +
			"values. The control plane opens the file for that path only. Without\n" +
			"--recipient, an existing FILE keeps its recipients.\n\n" +
			"With --identity the values come from FILE itself, which the identity must open:\n" +
			"use it for files that do not hold their path yet, or to change recipients. No\n" +
			"value is ever printed.",
		Example: "  argosy encrypt tenants/acme/credentials/git.sops.yaml --recipient age1... < " +
			"values.yaml\n" +
			"  argosy encrypt tenants/acme/credentials/git.sops.yaml --identity age.txt",
		Args: exactly("FILE"),
	}
	cmd.Flags().StringArrayVar(&recipients, "recipient", nil,
		"age recipient that can open the file; repeatable")
	cmd.Flags().StringVar(&identity, "identity", "",
		"age key file that opens FILE, to encrypt its own values again")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		source, root, err := encryptedSource(args[0])
		if err != nil {
			return err
		}
		before, err := os.ReadFile(args[0])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var after []byte
		if identity != "" {
			after, err = encryptAgain(source, root, before, identity, recipients)
		} else {
			after, err = a.encryptValues(source, before, recipients)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if err := write(args[0], after); err != nil {
			return err
		}
		return a.printLine("%s", args[0])
	}
	return cmd
}

// encryptedSource is the secret that the file's path names, and the folder of the config repo.
func encryptedSource(file string) (fleet.CredentialSource, string, error) {
	full, err := filepath.Abs(file)
	if err != nil {
		return fleet.CredentialSource{}, "", err
	}
	parts := strings.Split(filepath.ToSlash(full), "/")
	if len(parts) > 4 {
		at := len(parts) - 4
		key, ours, problem := configschema.Classify(strings.Join(parts[at:], "/"))
		if folder, name, ok := strings.Cut(key.Name, "/"); ours && problem == nil && ok &&
			key.Kind == fleet.KindSealedSecret {
			root := filepath.FromSlash(strings.Join(parts[:at], "/") + "/")
			return fleet.CredentialSource{Tenant: key.Tenant, Folder: folder, Name: name}, root, nil
		}
	}
	return fleet.CredentialSource{}, "",
		fmt.Errorf(
			"%s: an encrypted file is tenants/TENANT/environments/NAME.sops.yaml or "+
				"tenants/TENANT/credentials/NAME.sops.yaml; its path decides who may open it", file)
}

// encryptAgain refuses a file that was made from another tenant's: binding such a copy to its new
// path would open the other tenant's secret.
func encryptAgain(source fleet.CredentialSource, root string, before []byte, identity string,
	recipients []string) ([]byte, error) {
	if before == nil {
		return nil, fs.ErrNotExist
	}
	ids, err := secrets.ReadIdentities(identity)
	if err != nil {
		return nil, err
	}
	after, err := secrets.EncryptAgain(source, before, ids, recipients)
	if err != nil {
		return nil, err
	}
	return after, checkOriginal(source, root, before, ids)
}

func checkOriginal(source fleet.CredentialSource, root string, before []byte,
	ids secrets.Identities) error {
	files, err := checkout.Read(root)
	if err != nil {
		return err
	}
	for _, f := range files {
		key, _, problem := configschema.Classify(f.Path)
		if problem != nil || key.Kind != fleet.KindSealedSecret || key.Tenant == source.Tenant {
			continue
		}
		if secrets.SameDataKey(before, f.Bytes, ids) {
			return fmt.Errorf(
				"the file shares its data key with %s of another tenant: one is a copy of the "+
					"other; encrypt its own values with --recipient", f.Path)
		}
	}
	return nil
}

const maxValues = 1 << 20 // bytes that are read from stdin

func (a *app) encryptValues(source fleet.CredentialSource, before []byte,
	recipients []string) ([]byte, error) {
	if len(recipients) == 0 {
		recipients = secrets.Recipients(before)
	}
	if len(recipients) == 0 {
		return nil, errors.New("--recipient is required: the age recipient of the platform")
	}
	text, err := io.ReadAll(io.LimitReader(a.in, maxValues+1))
	if err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	if len(text) > maxValues {
		return nil, fmt.Errorf("the values are longer than %d bytes", maxValues)
	}
	values, err := secrets.ParseValues(text)
	if err != nil {
		return nil, fmt.Errorf("stdin: %w", err)
	}
	return secrets.Encrypt(source, recipients, values)
}

// write replaces the file as a whole, or makes it.
func write(file string, content []byte) error {
	err := replace(file, content)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}
