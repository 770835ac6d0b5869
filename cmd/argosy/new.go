package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
)

func (a *app) newCommand() *cobra.Command {
	var tenant, dir string
	var write bool
	cmd := &cobra.Command{
		Use:   "new KIND NAME",
		Short: "A first file of a kind, with every field explained",
		Long: "Prints the file. With --write it is put where it belongs in the config repo; " +
			"a file that is there already is never touched.",
		Example: "  argosy new GitOpsDeployment checkout --tenant acme\n  argosy new Engine " +
			"eu-2 --write --dir path/to/config-repo",
		Args: exactly("KIND", "NAME"),
	}
	cmd.Flags().StringVar(&tenant, "tenant", "",
		"whose it is, for the kinds that belong to a tenant")
	cmd.Flags().BoolVar(&write, "write", false, "write the file where it belongs")
	cmd.Flags().StringVar(&dir, "dir", ".", "folder of the config repo, for --write")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		kind, err := findKind(args[0])
		if err != nil {
			return err
		}
		where, err := pathOf(kind, fleet.TenantName(tenant), args[1])
		if err != nil {
			return err
		}
		content := configschema.New(kind, fleet.TenantName(tenant), args[1])
		if !write {
			a.hint("it belongs at %s; --write puts it there", where)
			_, err := a.out.Write(content)
			return err
		}
		return a.create(filepath.Join(dir, filepath.FromSlash(where)), content)
	}
	return cmd
}

func (a *app) create(file string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already and is left as it is", file)
	}
	if err != nil {
		return err
	}
	if _, err := f.Write(content); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return err
	}
	return a.say("%s", file)
}

// pathOf is where the declaration belongs: of all places in a config repo the one that gives it
// this identity.
func pathOf(kind fleet.Kind, tenant fleet.TenantName, name string) (string, error) {
	if err := fleet.ValidateName(name); err != nil {
		return "", fmt.Errorf("%s %q: %w", kind, name, err)
	}
	places := []string{"fleet/fleet.yaml"}
	for _, folder := range []string{"engines", "tenants", "policies"} {
		places = append(places, "fleet/"+folder+"/"+name+".yaml")
	}
	whose := first(string(tenant), "acme")
	if err := fleet.ValidateName(whose); err != nil {
		return "", fmt.Errorf("--tenant: %w", err)
	}
	for _, folder := range []string{"environments", "deployments", "credentials", "syncs"} {
		places = append(places, "tenants/"+whose+"/"+folder+"/"+name+".yaml")
	}
	for _, p := range places {
		key, _, problem := configschema.Classify(p)
		if problem != nil || key.Kind != kind {
			continue
		}
		switch {
		case key.Tenant != "" && tenant == "":
			return "", fmt.Errorf("a %s belongs to a tenant: say which with --tenant", kind)
		case key.Tenant == "" && tenant != "":
			return "", fmt.Errorf("a %s belongs to the platform: leave out --tenant", kind)
		case key.Name != name:
			return "", fmt.Errorf("there is one %s, and it is named %q", kind, key.Name)
		}
		return p, nil
	}
	return "", fmt.Errorf("a %s has no place of its own in a config repo", kind)
}
