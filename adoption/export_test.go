package adoption

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestAnExportedSecretNamesTheTokenThatEnds(t *testing.T) {
	t.Parallel()
	secret := map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}}
	if note := CredentialNote(secret); !strings.Contains(note, "is not exported") {
		t.Error(note)
	}
	object(object(secret, "metadata"), "annotations")["argosy.dev/service-account"] =
		"argosy-tenant-acme/home"
	note := CredentialNote(secret)
	if !strings.Contains(note, "service account argosy-tenant-acme/home that lasts") {
		t.Error(note)
	}
	for line := range strings.Lines(note) {
		if !strings.HasPrefix(line, "# ") {
			t.Errorf("no comment: %q", line)
		}
	}
}

// A manifest without the credential in its config would remove that from the live Secret.
func TestAnExportedClusterKeepsTheLiveCredential(t *testing.T) {
	t.Parallel()
	for config, kept := range map[string]bool{
		`{"tlsClientConfig":{"caData":"Y2E="}}`:                      false,
		`{"tlsClientConfig":{},"awsAuthConfig":{"clusterName":"a"}}`: true,
		`{"execProviderConfig":{"command":"argocd-k8s-auth"}}`:       true,
	} {
		secret := map[string]any{"kind": "Secret", "metadata": map[string]any{
			"labels": map[string]any{"argocd.argoproj.io/secret-type": "cluster"}},
			"data": map[string]any{"server": "aHR0cHM6Ly9h",
				"config": base64.StdEncoding.EncodeToString([]byte(config))}}
		data := object(Plain(secret, "argocd", ""), "data")
		if _, has := data["config"]; has != kept || data["server"] == nil {
			t.Errorf("%s: exported %v", config, data)
		}
	}
}
