package configschema

import (
	"bytes"
	"maps"
	"reflect"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

const unformatted = `# the whole file
kind:   GitOpsDeployment
spec:
    destination: {namespace: checkout, environments: [staging]}   # where
    # what is deployed
    source:
        targetRevision: "1.10" # in quotes: a tag
        path: deploy

        repoURL: 'https://git.example.com/acme/checkout'
    overrides:
    -   source: {targetRevision: main}
        environment: staging
metadata:
    labels: {team: payments}
    name: checkout
apiVersion: argosy.dev/v1alpha1
# the end
`

const formatted = `# the whole file
apiVersion: argosy.dev/v1alpha1
kind: GitOpsDeployment
metadata:
  name: checkout
  labels: {team: payments}
spec:
  # what is deployed
  source:
    repoURL: 'https://git.example.com/acme/checkout'
    path: deploy
    targetRevision: "1.10" # in quotes: a tag
  destination: {namespace: checkout, environments: [staging]}   # where
  overrides:
    - environment: staging
      source: {targetRevision: main}
# the end
`

func TestFormatOrdersFieldsAndKeepsComments(t *testing.T) {
	got, err := Format([]byte(unformatted))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != formatted {
		t.Errorf("got:\n%s\nwant:\n%s", got, formatted)
	}
	crlf, err := Format([]byte(strings.ReplaceAll(unformatted, "\n", "\r\n")))
	if err != nil || string(crlf) != formatted {
		t.Errorf("with CRLF: %v\n%s", err, crlf)
	}
}

func TestFormatKeepsWhatIsWrittenOverSeveralLines(t *testing.T) {
	const before = `kind: GitOpsDeployment
spec:
 source:
  helm:
     values: |
        # a comment of the values
        a:
          - b


        c: "d"
     # which files

     valueFiles:
     # the first
     - values.yaml   # common
     # the second
     -   values-eu.yaml
     releaseName:    checkout
  repoURL:
    https://git.example.com/acme/checkout
 destination:
    environments: [
      staging,   # first
      prod-eu ]
    namespace: >-
      checkout
 overrides:
 -
   environment: a
 # of b
 - source:
     path: x
   # the name of b
   environment: b
   # below b
`
	const after = `kind: GitOpsDeployment
spec:
  source:
    repoURL:
      https://git.example.com/acme/checkout
    helm:
      releaseName: checkout
      # which files

      valueFiles:
        # the first
        - values.yaml   # common
        # the second
        - values-eu.yaml
      values: |
         # a comment of the values
         a:
           - b


         c: "d"
  destination:
    environments: [
      staging,   # first
      prod-eu ]
    namespace: >-
      checkout
  overrides:
    -
      environment: a
    # of b
    # the name of b
    - environment: b
      source:
        path: x
      # below b
`
	got, err := Format([]byte(before))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != after {
		t.Errorf("got:\n%s\nwant:\n%s", got, after)
	}
	if again, err := Format(got); err != nil || string(again) != after {
		t.Errorf("again: %v\n%s", err, again)
	}
}

func TestFormattingChangesNoMeaningAndIsDoneOnce(t *testing.T) {
	files := exampleFiles(t)
	for _, k := range kindOrder {
		files = append(
			files, File{Path: pathOf(k), Bytes: New(k.name, "acme", exampleName(k.name))})
		for _, v := range variants(k) {
			files = append(files, File{Path: pathOf(k), Bytes: []byte(v)})
		}
	}
	for _, f := range files {
		if _, ours, _ := Classify(f.Path); !ours {
			continue
		}
		once, err := Format(f.Bytes)
		if err != nil {
			t.Errorf("%s: %v", f.Path, err)
			continue
		}
		twice, err := Format(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s: formatted twice: %v\n%s\nonce:\n%s", f.Path, err, twice, once)
		}
		if !maps.Equal(comments(f.Bytes), comments(once)) {
			t.Errorf("%s loses a comment:\n%s", f.Path, once)
		}
		before, after := Decode(f), Decode(File{Path: f.Path, Blob: f.Blob, Bytes: once})
		if !reflect.DeepEqual(before.Declaration, after.Declaration) {
			t.Errorf("%s means something else:\n%s", f.Path, once)
		}
	}
}

func TestFormatRefusesWhatItCannotKeep(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML": "a: [", "empty": "", "anchor": "a: &x 1\n", "two documents": "a: 1\n---\nb: 2\n",
		"binary": "\x00", "too large": strings.Repeat("a", maxFile+1),
		"blank lines that a text keeps": "kind: |+\n  a\n\n\nspec: b\n",
	} {
		if got, err := Format([]byte(text)); err == nil {
			t.Errorf("%s is formatted: %q", name, got)
		}
	}
	sealed := "b:   ENC[x]\nsops:\n    mac:   x\n"
	if got, err := Format([]byte(sealed)); err != nil || string(got) != sealed {
		t.Errorf("an encrypted file is changed: %v\n%s", err, got)
	}
	if _, err := Format([]byte("kind: Policy\nspec: 1\n")); err != nil {
		t.Errorf("a file of an unknown kind is not formatted: %v", err)
	}
	if got, err := Format(New(fleet.KindSyncRun, "acme", "x")); err != nil ||
		!bytes.Contains(got, []byte("  # # Keeps automated sync off")) {
		t.Errorf("comments of a template are lost: %v\n%s", err, got)
	}
}

// comments counts the texts behind a '#' on any line. A '#' within a text counts too: it is in both
// texts.
func comments(text []byte) map[string]int {
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		before := byte(' ')
		for i := range len(line) {
			if line[i] == '#' && (before == ' ' || before == '\t') {
				count[strings.TrimSpace(line[i:])]++
				break
			}
			before = line[i]
		}
	}
	return count
}
