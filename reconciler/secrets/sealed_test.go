package secrets

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/aes"
	sopsage "github.com/getsops/sops/v3/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keyservice"
	"github.com/getsops/sops/v3/stores/yaml"

	"argosy.dev/argosy/fleet"
)

var acmeGit = fleet.CredentialSource{Tenant: "acme", Folder: "credentials", Name: "git",
	Sealed: "b"}

const canary = "s3cr3t-canary"

func encrypt(t *testing.T, of fleet.CredentialSource, values map[string]string,
	to ...*age.X25519Identity) []byte {
	t.Helper()
	var recipients []string
	for _, id := range to {
		recipients = append(recipients, id.Recipient().String())
	}
	b, err := Encrypt(of, recipients, values)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rawFile encrypts any tree like sops; the metadata may leave values in plaintext.
func rawFile(t *testing.T, id *age.X25519Identity, meta sops.Metadata,
	items ...sops.TreeItem) []byte {
	t.Helper()
	master, err := sopsage.MasterKeyFromRecipient(id.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	meta.KeyGroups, meta.Version, meta.LastModified = []sops.KeyGroup{{master}}, "3.9.0",
		time.Now().UTC()
	tree := sops.Tree{Branches: sops.TreeBranches{items}, Metadata: meta}
	key, errs := tree.GenerateDataKeyWithKeyServices([]keyservice.KeyServiceClient{
		keyservice.NewLocalClient()})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	cipher := aes.NewCipher()
	mac, err := tree.Encrypt(key, cipher)
	if err != nil {
		t.Fatal(err)
	}
	if tree.Metadata.MessageAuthenticationCode, err = cipher.Encrypt(mac, key,
		tree.Metadata.LastModified.Format(time.RFC3339)); err != nil {
		t.Fatal(err)
	}
	b, err := yaml.NewStore(&config.NewStoresConfig().YAML).EmitEncryptedFile(tree)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func identityFile(t *testing.T, file string, ids ...*age.X25519Identity) string {
	t.Helper()
	var text strings.Builder
	for _, id := range ids {
		text.WriteString(id.String() + "\n")
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// blobs reads files by name.
func blobs(files map[string][]byte) Ciphertexts {
	return func(_ context.Context, blob string) ([]byte, error) {
		b, ok := files[blob]
		if !ok {
			return nil, errors.New("no such blob")
		}
		return b, nil
	}
}

func resolver(t *testing.T, file []byte, ids ...*age.X25519Identity) *Resolver {
	t.Helper()
	r := &Resolver{}
	from := Age{IdentityFile: identityFile(t, filepath.Join(t.TempDir(), "age.txt"), ids...)}
	if err := r.AddAge(from, blobs(map[string][]byte{"b": file})); err != nil {
		t.Fatal(err)
	}
	return r
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// refused requires an error that contains every part of want and no secret.
func refused(t *testing.T, r *Resolver, ref fleet.CredentialSource, want ...string) {
	t.Helper()
	s, err := r.Get(t.Context(), ref)
	if err == nil || !s.IsZero() {
		t.Fatalf("opened with keys %v", s.Keys())
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want it to hold %q", err, w)
		}
	}
	if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "AGE-SECRET-KEY") {
		t.Errorf("the error holds the secret: %v", err)
	}
}

func TestEncryptedFileOpensForItsOwnPath(t *testing.T) {
	id := identity(t)
	r := resolver(t, encrypt(t, acmeGit, map[string]string{"username": "bot", "password": canary},
		id), id)
	s, err := r.Get(t.Context(), acmeGit)
	if err != nil || value(s, "username") != "bot" || value(s, "password") != canary {
		t.Fatalf("got %v, %v", s.Keys(), err)
	}
	if s.Has(fleet.EncryptedForKey) {
		t.Error("the path is among the secret's values")
	}
}

func TestCopyOfAnEncryptedFileIsRejected(t *testing.T) {
	id := identity(t)
	file := encrypt(t, acmeGit, map[string]string{"password": canary}, id)
	for name, ref := range map[string]fleet.CredentialSource{
		"another tenant": {Tenant: "evil", Folder: "credentials", Name: "git",
			Sealed: "b"},
		"another folder": {Tenant: "acme", Folder: "environments", Name: "git",
			Sealed: "b"},
		"another name": {Tenant: "acme", Folder: "credentials", Name: "other",
			Sealed: "b"},
		"a name that reads alike": {Tenant: "acme", Folder: "credentials", Name: "gi",
			Sealed: "b"},
		"a folder that is unknown": {Tenant: "acme", Name: "git", Sealed: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, resolver(t, file, id), ref)
		})
	}
	refused(t, resolver(t, file, id), fleet.CredentialSource{Tenant: "evil", Folder: "credentials",
		Name: "loot", Sealed: "b"},
		"encrypted for another path",
		"argosy encrypt tenants/evil/credentials/loot.sops.yaml --recipient")
}

func TestEncryptedFileThatHoldsNoPathIsRefusedWithTheCommand(t *testing.T) {
	id := identity(t)
	file := rawFile(t, id, sops.Metadata{}, sops.TreeItem{Key: "password", Value: canary})
	refused(t, resolver(t, file, id), acmeGit, "argosy.dev/for",
		"argosy encrypt tenants/acme/credentials/git.sops.yaml --identity KEYFILE")
}

// A line is one value; an attacker can mix the lines of two files, and the metadata too.
func TestValuesGraftedOntoAnotherFileOpenNothing(t *testing.T) {
	id := identity(t)
	evil := fleet.CredentialSource{Tenant: "evil", Folder: "credentials", Name: "loot", Sealed: "b"}
	victim := string(encrypt(t, acmeGit, map[string]string{"password": canary}, id))
	own := string(encrypt(t, evil, map[string]string{"password": "mine"}, id))
	line := func(text, key string) string {
		for _, l := range strings.SplitAfter(text, "\n") {
			if strings.HasPrefix(l, key) {
				return l
			}
		}
		t.Fatalf("no %s in %s", key, text)
		return ""
	}
	const bound = fleet.EncryptedForKey + ":"
	clear := bound + " tenants/evil/credentials/loot\n"
	_, meta, _ := strings.Cut(victim, "sops:\n")
	unencrypted := rawFile(t, id, sops.Metadata{UnencryptedRegex: "for$", MACOnlyEncrypted: true},
		sops.TreeItem{Key: "password", Value: canary}, sops.TreeItem{Key: fleet.EncryptedForKey,
			Value: "tenants/evil/credentials/loot"})
	for name, file := range map[string]string{
		"the path of a file of its own": strings.Replace(victim, line(victim, bound),
			line(own, bound), 1),
		"the path in clear": strings.Replace(victim, line(victim, bound), clear,
			1),
		"the path in clear, by the metadata": strings.Replace(victim, line(victim, bound), clear,
			1) + "    unencrypted_regex: for$\n    mac_only_encrypted: true\n",
		"the path twice":                 clear + victim,
		"the path twice, both encrypted": line(own, bound) + victim,
		"no path at all":                 strings.Replace(victim, line(victim, bound), "", 1),
		"the value of the victim's password": strings.Replace(own, line(own, "password:"),
			line(victim, "password:"), 1),
		"the victim's data key and values": line(own, bound) + line(victim, "password:") +
			"sops:\n" + meta,
		"a path that never was encrypted": string(unencrypted),
		"another value under the path's name": strings.Replace(victim, line(victim, bound),
			bound+strings.TrimPrefix(line(victim, "password:"), "password:"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, resolver(t, []byte(file), id), evil)
		})
	}
	if s, err := resolver(t, []byte(own), id).Get(t.Context(), evil); err != nil ||
		value(s, "password") != "mine" {
		t.Errorf("its own file does not open: %v", err)
	}
}

func TestUndecryptableFileReportsTheReasonAndNoSecret(t *testing.T) {
	id, stranger := identity(t), identity(t)
	good := encrypt(t, acmeGit, map[string]string{"password": canary, "other": "0ther"}, id)
	var less []string
	for _, line := range strings.Split(string(good), "\n") {
		if !strings.HasPrefix(line, "other:") {
			less = append(less, line)
		}
	}
	nested := rawFile(t, id, sops.Metadata{}, sops.TreeItem{Key: fleet.EncryptedForKey,
		Value: acmeGit.EncryptedFor()},
		sops.TreeItem{Key: "a", Value: sops.TreeBranch{{Key: "b", Value: canary}}})
	for name, c := range map[string]struct {
		id   *age.X25519Identity
		file []byte
		want string
	}{
		"a stranger's identity":    {stranger, good, "none of its age identities"},
		"a value that was removed": {id, []byte(strings.Join(less, "\n")), "MAC"},
		"no sops file":             {id, []byte("password: " + canary + "\n"), "no sops file"},
		"a nested value":           {id, nested, "flat map"},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, resolver(t, c.file, c.id), acmeGit, c.want)
		})
	}
}

func TestEncryptedFileNeverUsesTheMachinesOwnKeys(t *testing.T) {
	mine, theirs := identity(t), identity(t)
	t.Setenv("SOPS_AGE_KEY", theirs.String())
	refused(t, resolver(t, encrypt(t, acmeGit, map[string]string{"password": canary}, theirs),
		mine), acmeGit)
}

func TestIdentityOfATenantAloneOpensItsFiles(t *testing.T) {
	operator, acme, evil := identity(t), identity(t), identity(t)
	dir := t.TempDir()
	identityFile(t, filepath.Join(dir, "acme"), acme)
	identityFile(t, filepath.Join(dir, "evil"), evil)
	ref := func(tenant fleet.TenantName, blob string) fleet.CredentialSource {
		return fleet.CredentialSource{Tenant: tenant, Folder: "credentials", Name: "git",
			Sealed: blob}
	}
	values := map[string]string{"password": canary}
	files := map[string][]byte{
		"acme-own":         encrypt(t, ref("acme", ""), values, acme),
		"acme-operator":    encrypt(t, ref("acme", ""), values, operator),
		"evil-acme":        encrypt(t, ref("evil", ""), values, acme),
		"globex-operator":  encrypt(t, ref("globex", ""), values, operator),
		"initech-to-acmes": encrypt(t, ref("initech", ""), values, acme),
	}
	r := &Resolver{}
	from := Age{IdentityFile: identityFile(t, filepath.Join(t.TempDir(), "age.txt"), operator),
		TenantIdentities: dir}
	if err := r.AddAge(from, blobs(files)); err != nil {
		t.Fatal(err)
	}
	for _, own := range []fleet.CredentialSource{ref("acme", "acme-own"),
		ref("globex", "globex-operator")} {
		if _, err := r.Get(t.Context(), own); err != nil {
			t.Errorf("%s: %v", own.Tenant, err)
		}
	}
	for _, other := range []fleet.CredentialSource{ref("acme", "acme-operator"),
		ref("evil", "evil-acme"), ref("initech", "initech-to-acmes")} {
		refused(t, r, other, "none of its age identities")
	}

	t.Run("a replaced identity needs no restart", func(t *testing.T) {
		identityFile(t, filepath.Join(dir, "acme"), identity(t))
		refused(t, r, ref("acme", "acme-own"), "none of its age identities")
		identityFile(t, filepath.Join(dir, "acme"), acme)
	})
	t.Run("an unreadable identity does not count as missing", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(dir, "acme"), []byte("AGE-SECRET-KEY-broken"),
			0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, r, ref("acme", "acme-operator"), "cannot be parsed")
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		refused(t, r, ref("globex", "globex-operator"), "folder of tenants' age identities")
	})
	t.Run("without an operator's identity the error names the file to write", func(t *testing.T) {
		dir := t.TempDir()
		r := &Resolver{}
		if err := r.AddAge(Age{TenantIdentities: dir}, blobs(files)); err != nil {
			t.Fatal(err)
		}
		refused(t, r, ref("acme", "acme-own"), fmt.Sprintf("%s/acme", dir))
	})
}

func TestEncryptAgainBindsAndKeepsTheValues(t *testing.T) {
	id, next := identity(t), identity(t)
	old := rawFile(t, id, sops.Metadata{}, sops.TreeItem{Key: "username", Value: "bot"},
		sops.TreeItem{Key: "password", Value: canary})
	again, err := EncryptAgain(acmeGit, old, Identities{id}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if SameDataKey(old, again, Identities{id}) || !SameDataKey(old, old, Identities{id}) {
		t.Error("the data key is not new, or is not recognized")
	}
	moved, err := EncryptAgain(acmeGit, again, Identities{id}, []string{next.Recipient().String()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := resolver(t, moved, next).Get(t.Context(), acmeGit)
	if err != nil || value(s, "username") != "bot" || value(s, "password") != canary {
		t.Fatalf("got %v, %v", s.Keys(), err)
	}
	refused(t, resolver(t, moved, id), acmeGit)
	_, err = EncryptAgain(fleet.CredentialSource{Tenant: "evil", Folder: "credentials",
		Name: "loot"}, again, Identities{id}, nil)
	if err == nil || !strings.Contains(err.Error(), "another path") || strings.Contains(err.Error(),
		canary) {
		t.Errorf("a file of another path is bound again: %v", err)
	}
}

func TestValuesAreAFlatMapAndNoErrorRepeatsThem(t *testing.T) {
	values, err := ParseValues([]byte("token: 0123\nkey: |\n  a\n  b\n"))
	if err != nil || values["token"] != "0123" || values["key"] != "a\nb\n" {
		t.Errorf("got %q, %v", values, err)
	}
	for _, text := range []string{
		"", canary, "- " + canary, "a: {b: " + canary + "}", "a: " + canary + "\na: x", "a: ''",
		"a: null", "a: *" + canary, "a: [" + canary,
		"a: !" + canary + " x: y", "\t" + canary, "a: x\nsops: {mac: " + canary + "}",
	} {
		if _, err := ParseValues([]byte(text)); err == nil || strings.Contains(err.Error(),
			canary) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
