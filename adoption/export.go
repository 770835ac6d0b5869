package adoption

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"argosy.dev/argosy/fleet"
)

// own are labels and annotations that Argosy sets on its objects.
func own(k, v string) bool {
	domain, _, _ := strings.Cut(k, "/")
	return domain == "argosy.dev" || k == "app.kubernetes.io/managed-by" && v == "argosy"
}

// CredentialNote returns the comment on the file of a rendered Secret whose credential is not
// exported.
func CredentialNote(rendered map[string]any) string {
	account := text(object(object(rendered, "metadata"), "annotations"), fleet.AccountAnnotation)
	if account == "" {
		return "# The credential is in the live Secret and is not exported.\n"
	}
	return "# Argosy renews the token in the live Secret, which ends within a day. Before you\n" +
		"# uninstall Argosy, write one of service account " + account + " that lasts.\n"
}

// Plain returns a rendered object as a manifest of Argo CD that Argosy does not own: in the
// namespace of its Argo CD, without the labels and annotations of Argosy. An Application gets the
// finalizer of its deletion policy, which Argosy itself sets only when it deletes. A cluster Secret
// has a config only if that is the identity of a cloud: applied without the credential in it, it
// would remove that from the live Secret.
func Plain(rendered map[string]any, namespace string,
	deletion fleet.DeletionPolicy) map[string]any {
	o := clone(rendered).(map[string]any)
	metadata := object(o, "metadata")
	for _, field := range []string{"labels", "annotations"} {
		entries := object(metadata, field)
		for _, k := range keys(entries) {
			if own(k, text(entries, k)) {
				delete(entries, k)
			}
		}
		if len(entries) == 0 {
			delete(metadata, field)
		}
	}
	if text(metadata, "namespace") == "" {
		metadata["namespace"] = namespace // else an adopted Application's own
	}
	if text(o, "kind") == KindSecret && secretType(o) == "cluster" &&
		!cloudIdentity(text(o, "data", "config")) {
		delete(object(o, "data"), "config")
	}
	if text(o, "kind") == KindApplication && deletion == fleet.DeletionDelete {
		metadata["finalizers"] = []any{finalizer}
	}
	return o
}

// cloudIdentity reports whether the config of a cluster Secret is an identity without a credential.
func cloudIdentity(config string) bool {
	raw, err := base64.StdEncoding.DecodeString(config)
	var c struct{ AWSAuthConfig, ExecProviderConfig map[string]any }
	return err == nil && json.Unmarshal(raw, &c) == nil &&
		(c.AWSAuthConfig != nil || c.ExecProviderConfig != nil)
}
