package adoption

import (
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
