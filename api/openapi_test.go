package api_test

import (
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/api/apitest"
)

//go:generate go test -run TestOpenAPIDocument -update .

var update = flag.Bool("update", false, "write docs/openapi.json")

const documentPath = "../docs/openapi.json"

func TestOpenAPIDocumentInTheDocsIsTheOneThatIsServed(t *testing.T) {
	store := apitest.New(apitest.Mirror{})
	made, err := api.New(configOf(store)).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(documentPath, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	if string(kept) != string(made) {
		t.Errorf("%s is stale: run make generate", documentPath)
	}
	s := newSite(t, content())
	var served, fromDocs any
	if err := json.Unmarshal([]byte(s.do(http.MethodGet, "/openapi.json", "", "").body),
		&served); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(kept, &fromDocs); err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(served)
	b, _ := json.Marshal(fromDocs)
	if string(a) != string(b) {
		t.Error("the served document differs from the one in docs")
	}
}

// No schema of the API has a field for a secret, except those with a new token or a new session.
func TestNoSchemaHasAFieldForASecret(t *testing.T) {
	kept, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(kept, &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Components.Schemas) < 20 {
		t.Fatalf("only %d schemas", len(document.Components.Schemas))
	}
	// Hashes identify a plan, the content of a manifest or a difference, without the content of
	// Secrets, or an entry of the audit log, which has none; a credential of the protocol is
	// encrypted to its agent, and the listed one of a repository has the name of a secret.
	sound := []string{"CredentialView.secret",
		"PullView.hash", "PlanReport.hash", "ProtocolRow.hash",
		"ProtocolRow.credential", "ProtocolAck.hash", "ProtocolComparison.hash",
		"Entry.hash", "Head.hash"}
	for name, schema := range document.Components.Schemas {
		for property := range schema.Properties {
			if slices.Contains(sound, name+"."+property) {
				continue
			}
			for _, word := range []string{"password", "secret", "plaintext", "cadata", "credential",
				"hash", "kubeconfig"} {
				if strings.Contains(strings.ToLower(property), word) && name != "CreatedToken" &&
					name != "CreatedAgentToken" && name+"."+property != "SignedIn.plaintext" {
					t.Errorf("%s.%s", name, property)
				}
			}
		}
	}
}
