package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"argosy.dev/argosy/fleet/mirror"
)

// stopMarker is the ConfigMap that stores emergency stops on the engine: they survive the loss of
// the database.
const stopMarker = "argosy-emergency-stop"

func (e *Engine) configMaps() string {
	return "/api/v1/namespaces/" + url.PathEscape(e.namespace) + "/configmaps"
}

func stopName(scope mirror.StopScope, name string) string {
	if name == "" {
		return string(scope)
	}
	return string(scope) + "." + name
}

// SetStop stores a stop on the engine in addition to the existing ones. It does not write to a
// tenant's object and needs no preflight.
func (e *Engine) SetStop(ctx context.Context, stop mirror.Stop) error {
	text, err := json.Marshal(stop)
	if err != nil {
		return fmt.Errorf("stop %s: %w", stopName(stop.Scope, stop.Name), err)
	}
	return e.writeStop(ctx, stopName(stop.Scope, stop.Name), string(text))
}

// ClearStop removes a stop from the engine. A missing one is no error.
func (e *Engine) ClearStop(ctx context.Context, scope mirror.StopScope, name string) error {
	return e.writeStop(ctx, stopName(scope, name), nil)
}

// writeStop patches the marker, or creates it. It retries if the marker is created or deleted
// meanwhile.
func (e *Engine) writeStop(ctx context.Context, name string, value any) error {
	data := map[string]any{"data": map[string]any{name: value}}
	for range attempts {
		patch, err := json.Marshal(data)
		if err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
		err = e.client.do(ctx, request{method: http.MethodPatch, path: e.configMaps() + "/" +
			stopMarker, contentType: mergePatch, accept: metadataOnly,
			query: url.Values{"fieldManager": {fieldManager}}, body: patch}, nil)
		if !isMissing(err) {
			return e.stopError(err)
		}
		if value == nil {
			return nil
		}
		marker, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"data": data["data"],
			"metadata": map[string]any{"name": stopMarker, "labels": map[string]any{
				labelManagedBy: managedBy}}})
		if err != nil {
			return fmt.Errorf("stop %s: %w", name, err)
		}
		err = e.client.do(ctx, request{method: http.MethodPost, path: e.configMaps(),
			contentType: plainJSON, accept: metadataOnly,
			query: url.Values{"fieldManager": {fieldManager}}, body: marker}, nil)
		if codeOf(err) != http.StatusConflict {
			return e.stopError(err)
		}
	}
	return fmt.Errorf("stop %s: ConfigMap %s keeps being created and deleted", name, stopMarker)
}

// ReadStops returns the stored stops, sorted. An unreadable entry stops the engine without a time,
// so that only its removal ends the stop.
func (e *Engine) ReadStops(ctx context.Context) ([]mirror.Stop, error) {
	var marker struct {
		Metadata struct{ UID string }
		Data     map[string]string
	}
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.configMaps() + "/" +
		stopMarker}, &marker)
	if isMissing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.stopError(err)
	}
	var stops []mirror.Stop
	for _, name := range slices.Sorted(maps.Keys(marker.Data)) {
		var stop mirror.Stop
		if err := json.Unmarshal([]byte(marker.Data[name]), &stop); err != nil ||
			stopName(stop.Scope, stop.Name) != name {
			stop = mirror.Stop{Scope: mirror.StopEngine, Name: string(e.name), By: "argosy",
				Reason: fmt.Sprintf(
					"entry %q of ConfigMap %s on engine %s cannot be read; fix or remove it",
					clip(name, 64), stopMarker, e.name)}
		}
		stops = append(stops, stop)
	}
	return stops, nil
}

func isMissing(err error) bool {
	var s *statusError
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.named == "configmaps"
}

func (e *Engine) stopError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ConfigMap %s in namespace %s: %w", stopMarker, e.namespace, err)
}
