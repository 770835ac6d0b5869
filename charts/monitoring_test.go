package charts

import (
	"encoding/json"
	"os"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestAlertsAndDashboardAreRenderedUnchanged(t *testing.T) {
	all := objects(t, "argosy", "hub", ci("argosy", "full")...)
	read := func(name string, unmarshal func([]byte, any) error) any {
		content, err := os.ReadFile("argosy/files/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := unmarshal(content, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if got, want := text(t, find(t, all, "PrometheusRule", "release-argosy").get("spec")), text(t,
		read("alerts.yaml", yaml.Unmarshal)); got != want {
		t.Errorf("the alerts are\n%s\nwant\n%s", got, want)
	}
	var shown any
	if err := json.Unmarshal([]byte(find(t, all, "ConfigMap", "release-argosy-dashboard").at("data",
		"argosy.json")), &shown); err != nil {
		t.Fatal(err)
	}
	if text(t, shown) != text(t, read("dashboard.json", json.Unmarshal)) {
		t.Error("the dashboard is another")
	}
}
