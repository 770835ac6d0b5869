package settings

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

const good = `
source: {url: "https://git.example.com/platform/config", tokenFile: token}
database: {embedded: pg}
dataDir: data
`

func TestLoadFillsDefaultsAndResolvesPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "argosy.yaml")
	if err := os.WriteFile(file, []byte(good), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.Source.Branch != "main" || time.Duration(s.Source.Poll) != 30*time.Second ||
		s.Engines.InFlight != 32 || !s.Database.Migrate ||
		s.Agents != (Agents{Enabled: true, ConnectRate: 100}) {
		t.Errorf("defaults are not there: %+v", s)
	}
	if s.Database.Embedded != filepath.Join(dir, "pg") || s.Source.TokenFile != filepath.Join(
		dir, "token") {
		t.Errorf("paths are not relative to the file: %+v", s)
	}
}

func TestEachErrorNamesItsFix(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":       {"", "argosy schema settings"},
		"unknown key": {good + "databse: {}\n", "databse"},
		"key twice":   {good + "dataDir: other\n", "already defined"},
		"no source":   {"database: {embedded: pg}\ndataDir: d\n", "source.url is required"},
		"spans without encryption": {good + "tracing: {endpoint: \"http://otel:4318\"}\n",
			"tracing.allowHTTP"},
		"collector with a credential": {
			good + "tracing: {endpoint: \"https://u:p@otel:4318\"}\n", "tracing.endpoint must be"},
		"collector without a host": {good + "tracing: {endpoint: otel}\n",
			"tracing.endpoint must be"},
		"impatient export": {
			good + "tracing: {endpoint: \"https://otel:4318\", patience: 1s}\n", "1m to 12h"},
		"two databases": {strings.Replace(good, "embedded: pg", "embedded: pg, url: x", 1),
			"exactly one"},
		"credential in URL": {strings.Replace(good, "https://git", "https://user:hunter2@git", 1),
			"carries a credential"},
		"plain http": {strings.Replace(good, "https://", "http://", 1), "allowHTTP"},
		"ext transport": {
			strings.Replace(good, "https://git.example.com/platform/config", "ext::sh -c id", 1),
			"https and ssh"},
		"file URL": {
			strings.Replace(good, "https://git.example.com/platform/config",
				"file:///srv/git/config.git", 1), "write /srv/git/config.git"},
		"file URL of a host": {
			strings.Replace(good, "https://git.example.com/platform/config",
				"file://localhost/srv/config", 1), "write /srv/config"},
		"relative path": {
			strings.Replace(good, "https://git.example.com/platform/config", "../config.git", 1),
			"its path from the root"},
		"short form of ssh": {
			strings.Replace(good, "https://git.example.com/", "git@git.example.com:", 1),
			"ssh://user@host/path"},
		"ssh without hosts": {strings.Replace(good, "https://", "ssh://git@", 1),
			"knownHostsFile"},
		"number as duration": {strings.Replace(good, "tokenFile: token", "poll: 5", 1),
			"write it as"},
		"poll out of range": {strings.Replace(good, "tokenFile: token", "poll: 1ms", 1),
			"1s to 1h"},
		"log level":         {good + "log: {level: loud}\n", "debug, info"},
		"no agent connects": {good + "agents: {connectRate: 0}\n", "agents.connectRate"},
		"half of TLS":       {good + "listen: {certFile: a}\n", "go together"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(strings.NewReader(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want it to contain %q", err, c.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("the error repeats a password: %v", err)
			}
		})
	}
}

func TestSchemaAcceptsWhatLoadsAndRefusesUnknownKeys(t *testing.T) {
	var doc any
	if err := json.Unmarshal(Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("settings.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("settings.json")
	if err != nil {
		t.Fatal(err)
	}
	instance := func(text string) any {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if err := schema.Validate(instance(good)); err != nil {
		t.Errorf("a good file is refused: %v", err)
	}
	if schema.Validate(instance(good+"databse: {}\n")) == nil {
		t.Error("an unknown key is accepted")
	}
}
