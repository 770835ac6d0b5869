package configschema

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

var written = []fleet.Problem{
	{Key: fleet.Key{Kind: fleet.KindFile, Name: "fleet/x"}, Path: "fleet/x",
		Severity: fleet.SeverityError, Code: codeMisplaced, Message: "no declaration belongs here",
		Fix: "move it"},
	{Key: fleet.Key{Kind: fleet.KindTenant, Name: "acme"}, Path: "fleet/tenants/acme.yaml", Line: 3,
		Column: 7, Field: "spec.quota", Severity: fleet.SeverityWarning, Code: "quota-lowered",
		Message: "20% are over: 5, 6"},
	{Path: "tenants/a\nb/\x1b[31m,:%.yaml", Line: 1, Column: 2, Severity: fleet.SeverityError,
		Code: codeSyntax, Message: "one\ntwo \u202e \"q\"", Fix: "a\r\n::error::x"},
}

func TestTextIsOneLinePerProblemAndOnePerFix(t *testing.T) {
	var b bytes.Buffer
	if err := WriteText(&b, written, false); err != nil {
		t.Fatal(err)
	}
	want := `fleet/x: error[misplaced-file]: no declaration belongs here
    fix: move it
fleet/tenants/acme.yaml:3:7: warning[quota-lowered]: 20% are over: 5, 6
tenants/a\nb/\x1b[31m,:%.yaml:1:2: error[syntax]: one\ntwo \u202e "q"
    fix: a\r\n::error::x
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
	b.Reset()
	if err := WriteText(&b, written[:1], true); err != nil {
		t.Fatal(err)
	}
	if want :=
		"\x1b[1mfleet/x\x1b[0m: \x1b[31merror[misplaced-file]\x1b[0m: no declaration belongs " +
			"here\n    \x1b[36mfix:\x1b[0m move it\n"; b.String() != want {
		t.Errorf("in colour: %q", b.String())
	}
}

func TestGitHubAnnotationsAreEscaped(t *testing.T) {
	var b bytes.Buffer
	if err := WriteGitHub(&b, written); err != nil {
		t.Fatal(err)
	}
	want := `::error file=fleet/x,title=misplaced-file::no declaration belongs here%0Afix: move it
::warning file=fleet/tenants/acme.yaml,line=3,col=7,title=quota-lowered::20%25 are over: 5, 6
::error file=tenants/a%0Ab/\x1b[31m%2C%3A%25.yaml,line=1,col=2,title=syntax::one\ntwo \u202e "q"%0Afix: a\r\n::error::x
`
	if b.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", b.String(), want)
	}
}

func TestJSONCountsErrorsAndWarnings(t *testing.T) {
	var b bytes.Buffer
	if err := WriteJSON(&b, written); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Problems         []fleet.Problem
		Errors, Warnings int
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil || got.Errors != 2 || got.Warnings != 1 ||
		len(got.Problems) != 3 || got.Problems[2] != written[2] {
		t.Errorf("%v: %s", err, b.String())
	}
	b.Reset()
	if err := WriteJSON(&b, nil); err != nil || !strings.Contains(b.String(), `"problems": []`) {
		t.Errorf("no problems: %v %s", err, b.String())
	}
}

// sarifShape is what SARIF 2.1.0 demands of the properties that are written here (OASIS
// sarif-schema-2.1.0).
const sarifShape = `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["version", "runs"], "additionalProperties": false, "properties": {
 "$schema": {"type": "string", "format": "uri"}, "version": {"enum": ["2.1.0"]},
 "runs": {"type": "array", "minItems": 0, "items": {"type": "object", "required": ["tool"], "additionalProperties": false, "properties": {
  "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
  "tool": {"type": "object", "required": ["driver"], "properties": {"driver": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
   "name": {"type": "string"}, "version": {"type": "string"}, "informationUri": {"type": "string", "format": "uri"},
   "rules": {"type": "array", "uniqueItems": true, "items": {"type": "object", "required": ["id"], "additionalProperties": false, "properties": {"id": {"type": "string"}, "shortDescription": {"$ref": "#/definitions/text"}}}}}}}},
  "results": {"type": "array", "items": {"type": "object", "required": ["message"], "additionalProperties": false, "properties": {
   "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": -1}, "level": {"enum": ["none", "note", "warning", "error"]}, "message": {"$ref": "#/definitions/text"},
   "locations": {"type": "array", "items": {"type": "object", "additionalProperties": false, "properties": {"physicalLocation": {"type": "object", "required": ["artifactLocation"], "additionalProperties": false, "properties": {
    "artifactLocation": {"type": "object", "additionalProperties": false, "properties": {"uri": {"type": "string", "format": "uri-reference", "pattern": "^[!-~]*$"}, "uriBaseId": {"type": "string"}}},
    "region": {"type": "object", "additionalProperties": false, "properties": {"startLine": {"type": "integer", "minimum": 1}, "startColumn": {"type": "integer", "minimum": 1}}}}}}}}}}}}}}},
 "definitions": {"text": {"type": "object", "required": ["text"], "additionalProperties": false, "properties": {"text": {"type": "string", "minLength": 1}}}}}`

func TestSARIFHasTheShapeOfItsStandard(t *testing.T) {
	for name, problems := range map[string][]fleet.Problem{"some": written, "none": nil} {
		var b bytes.Buffer
		if err := WriteSARIF(&b, problems, "0.1.0"); err != nil {
			t.Fatal(err)
		}
		if err := judge(compiled(t, []byte(sarifShape)), b.Bytes()); err != nil {
			t.Errorf("%s: %v\n%s", name, err, b.String())
		}
	}
	var b bytes.Buffer
	if err := WriteSARIF(&b, written, ""); err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	if err := json.Unmarshal(b.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	for i, r := range run.Results {
		if rule := run.Tool.Driver.Rules[r.RuleIndex]; rule.ID != r.RuleID ||
			r.RuleID != written[i].Code || rule.ShortDescription.Text == "" {
			t.Errorf("result %d has rule %+v", i, rule)
		}
	}
	uri := run.Results[2].Locations[0].PhysicalLocation.ArtifactLocation.URI
	if uri != "tenants/a%0Ab/%1B%5B31m%2C:%25.yaml" {
		t.Errorf("the path is written %q", uri)
	}
	if run.Results[0].Locations[0].PhysicalLocation.Region != nil {
		t.Error("a problem of a whole file has a region")
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestWritersReturnWriteErrors(t *testing.T) {
	for name, err := range map[string]error{
		"text": WriteText(brokenPipe{}, written, false), "json": WriteJSON(brokenPipe{}, written),
		"sarif":  WriteSARIF(brokenPipe{}, written, ""),
		"github": WriteGitHub(brokenPipe{}, written),
	} {
		if err == nil {
			t.Errorf("%s: the error is lost", name)
		}
	}
}
