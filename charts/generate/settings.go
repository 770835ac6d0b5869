package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/cmd/argosy/settings"
)

// filled maps each setting outside of `config` to its source: a value of the chart, or the chart
// itself. Every other setting is part of `config` as soon as the binary has it.
var filled = map[string]string{
	"bootstrapTokenFile":       "credentials.bootstrapToken",
	"dataDir":                  "an emptyDir",
	"database":                 "credentials.database",
	"forge.app.keyFile":        "credentials.forgeAppKey",
	"forge.caFile":             "credentials.forgeCA",
	"forge.tokenFile":          "credentials.forgeToken",
	"forge.webhookSecretFiles": "credentials.webhookSecrets",
	"listen.address":           "port 8080 of the Pod",
	"listen.ops":               "port 8081 of the Pod",
	"listen.certFile":          "credentials.tls",
	"listen.keyFile":           "credentials.tls",
	"secrets": "secrets, credentials.ageIdentity, " +
		"credentials.ageTenantIdentities and credentials.secretsKubeconfig",
	"source.caFile":         "credentials.sourceCA",
	"source.knownHostsFile": "credentials.sourceKnownHosts",
	"source.passwordFile":   "credentials.sourcePassword",
	"source.sshKeyFile":     "credentials.sourceSSHKey",
	"source.tokenFile":      "credentials.sourceToken",
}

// settingsSchema returns the schema of `config`, and its rows.
func settingsSchema(text string) (schema, []row, error) {
	var s schema
	if err := json.Unmarshal(settings.Schema(), &s); err != nil {
		return nil, nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(filled)) {
		if err := remove(s, strings.Split(path, ".")); err != nil {
			return nil, nil, fmt.Errorf("the setting %s, which the chart fills in: %w", path, err)
		}
	}
	relax(s)
	delete(s, "$schema")
	delete(s, "title")
	s["description"] = text
	return s, append([]row{{"config", "{}", text}}, settingRows("config", s)...), nil
}

func remove(s schema, path []string) error {
	properties, _ := s["properties"].(schema)
	next, ok := properties[path[0]].(schema)
	switch {
	case !ok:
		return errors.New("is not there any more: take it out of the list")
	case len(path) > 1:
		return remove(next, path[1:])
	}
	delete(properties, path[0])
	return nil
}

// relax drops the required fields: the templates check them after they have set their part.
func relax(s schema) {
	delete(s, "required")
	properties, _ := s["properties"].(schema)
	for _, p := range properties {
		relax(p.(schema))
	}
}

func settingRows(path string, s schema) []row {
	properties, _ := s["properties"].(schema)
	var rows []row
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(schema)
		if p["properties"] != nil {
			rows = append(rows, settingRows(path+"."+name, p)...)
			continue
		}
		text, _ := p["description"].(string)
		rows = append(rows, row{path + "." + name, "", text})
	}
	return rows
}
