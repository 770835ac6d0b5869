package configschema

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// sealed checks a `*.sops.yaml`: every value encrypted, for age recipients alone. Its content is
// never decrypted here and never repeated.
func (d *decoder) sealed(root node, into *fleet.Declaration) {
	folder, _, _ := strings.Cut(d.key.Name, "/")
	into.Sealed = &fleet.SealedSpec{Folder: folder}
	meta := child(root, "sops")
	if meta == nil || meta.Kind != yaml.MappingNode {
		d.lineProblem(root.Line, root.Column, codePlaintextSecret,
			"the file is not encrypted: it has no sops metadata", "revoke what stands in it, then "+
				d.encryptWith("--recipient <recipient> < values"))
		return
	}
	if !d.uniqueKeys(root) || !d.uniqueKeys(meta) {
		return
	}
	if len(root.Content) == 2 {
		d.lineProblem(root.Line, root.Column, codeSealed, "the file holds no value",
			d.encryptWith("--recipient <recipient> < values"))
		d.ageOnly(meta)
		return
	}
	d.bound(root)
	for i := 0; i+1 < len(root.Content); i += 2 {
		if key := root.Content[i]; key.Value != "sops" && key.Value != fleet.EncryptedForKey {
			d.encrypted(root.Content[i+1])
		}
	}
	d.ageOnly(meta)
}

// encryptWith is the command that writes the file.
func (d *decoder) encryptWith(rest string) string {
	return "run: argosy encrypt " + quoted(d.path) + " " + rest
}

// bound demands the key under which the file holds its own path, encrypted. Whether it is its own
// shows after decryption only.
func (d *decoder) bound(root node) {
	fix := d.encryptWith(
		"--recipient <recipient> < values, or, to encrypt the values that it has again, " +
			"--identity <key file>")
	value := child(root, fleet.EncryptedForKey)
	switch {
	case value == nil:
		d.lineProblem(root.Line, root.Column, codeUnbound,
			"the file does not say which path it is for: it has no key "+fleet.EncryptedForKey, fix)
	case !isCiphertext(value):
		d.lineProblem(value.Line, value.Column, codeUnbound, "the value of "+fleet.EncryptedForKey+
			" is not encrypted, so that anyone could have written it", fix)
	}
}

func isCiphertext(n node) bool {
	return n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Value, "ENC[AES256_GCM,data:") &&
		strings.HasSuffix(n.Value, ",type:str]")
}

// encrypted demands that each leaf is ciphertext. sops leaves "" and null as they are: they tell
// nothing.
func (d *decoder) encrypted(n node) {
	if n.Kind != yaml.ScalarNode {
		for i, c := range n.Content {
			if n.Kind == yaml.SequenceNode || i%2 == 1 {
				d.encrypted(c)
			}
		}
		return
	}
	if n.Value != "" && n.Tag != "!!null" && (!strings.HasPrefix(n.Value, "ENC[AES256_GCM,data:") ||
		!strings.HasSuffix(n.Value, "]")) {
		d.lineProblem(n.Line, n.Column, codePlaintextSecret,
			"a value of an encrypted file stands in clear",
			"revoke it, then encrypt the whole file, without unencrypted_suffix or encrypted_regex")
	}
}

// otherKeys are sops' other key services. Each would have the control plane call out, or decrypt
// with a key that is not the platform's.
var otherKeys = []string{"kms", "pgp", "gcp_kms", "azure_kv", "hc_vault", "hckms", "key_groups",
	"shamir_threshold"}

func (d *decoder) ageOnly(meta node) {
	for _, name := range otherKeys {
		if n := child(meta, name); n != nil && n.Tag != "!!null" &&
			(len(n.Content) > 0 || n.Kind == yaml.ScalarNode && n.Value != "" && n.Value != "0") {
			d.lineProblem(n.Line, n.Column, codeSealed, "the file is encrypted with "+name+
				"; only age is read", "encrypt it anew with --age alone")
		}
	}
	recipients := child(meta, "age")
	if recipients == nil || recipients.Kind != yaml.SequenceNode || len(recipients.Content) == 0 {
		d.lineProblem(meta.Line, meta.Column, codeSealed, "the file has no age recipient",
			d.encryptWith("--recipient <recipient> < values"))
		return
	}
	for _, r := range recipients.Content {
		to, enc := child(r, "recipient"), child(r, "enc")
		if to == nil || !strings.HasPrefix(to.Value, "age1") || enc == nil ||
			!strings.HasPrefix(enc.Value, "-----BEGIN AGE ENCRYPTED FILE-----") {
			d.lineProblem(r.Line, r.Column, codeSealed,
				"an entry of sops.age has no recipient and encrypted key",
				"encrypt the file anew with --age <recipient>")
		}
	}
	if mac := child(meta, "mac"); mac == nil || !strings.HasPrefix(mac.Value,
		"ENC[AES256_GCM,data:") {
		d.lineProblem(meta.Line, meta.Column, codeSealed,
			"the file has no message authentication code",
			"encrypt it anew; a file without it could have been changed by anyone")
	}
}
