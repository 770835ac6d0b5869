package configschema

import (
	"strconv"
	"testing"
)

func TestEmojiAreVisibleAndTheirPartsAloneAreNot(t *testing.T) {
	file := func(text string) File {
		return File{Path: "tenants/acme/deployments/web.yaml", Bytes: []byte(`apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata: {name: web}
spec:
  source:
    repoURL: https://git.example.com/acme/web
    path: deploy
    targetRevision: v1
    helm: {values: {banner: "` + text + `"}}
  destination: {environments: [prod], namespace: web}
`)}
	}
	for _, text := range []string{"\U0001f680", "\u2764\ufe0f", "\u26a0\ufe0f warning",
		"\U0001f468\u200d\U0001f4bb", "1\ufe0f\u20e3", "\U0001f44b\U0001f3fd",
		"\U0001f3f3\ufe0f\u200d\U0001f308"} {
		if doc := Decode(file(text)); doc.Declaration == nil {
			t.Errorf("%q: %v", text, doc.Problems)
		}
	}
	for _, text := range []string{"a\ufe0f", "\ufe0f", "a\u200db", "\U0001f680\u200da",
		"\U0001f680\u200d", "1\ufe0f", "\u202e\U0001f680", "\U0001f680\ufe0f\ufe0f",
		"\U000e0041"} {
		if doc := Decode(file(text)); doc.Declaration != nil {
			t.Errorf("%q is accepted", text)
		}
		escaped := strconv.QuoteToASCII(text)
		if doc := Decode(file(escaped[1 : len(escaped)-1])); doc.Declaration != nil {
			t.Errorf("%s is accepted", escaped)
		}
	}
}
