package argocd

import (
	"errors"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

// maxObject bounds the bytes of a manifest. etcd allows 1.5 MiB, and Argo CD adds its status to the
// same object.
const maxObject = 1 << 20

// Renderer makes manifests of desired objects. It is pure and safe for concurrent use.
type Renderer struct{}

// Render returns the object for an engine as canonical JSON without secrets. An error means that
// the object must not reach Argo CD: a name that does not match its identity, a pattern character
// of Argo CD, or more than 1 MiB. The error names the object and the field.
func (Renderer) Render(engine fleet.EngineSpec, o fleet.Object) (fleet.Manifest, error) {
	obj, err := build(engine, o)
	if err != nil {
		return fleet.Manifest{}, fmt.Errorf("%s %s: %w", o.Key.Kind, o.Key.Name, err)
	}
	obj.Metadata.Annotations = map[string]string{annotationEngine: string(o.Key.Engine)}
	if o.Application != nil && o.Application.Hold != "" {
		obj.Metadata.Annotations[annotationHold] = string(o.Application.Hold)
	}
	body, err := canonicalOf(obj)
	if err != nil {
		return fleet.Manifest{}, fmt.Errorf("%s %s: %w", o.Key.Kind, o.Key.Name, err)
	}
	if len(body) > maxObject {
		return fleet.Manifest{},
			fmt.Errorf(
				"%s %s: it would be %d bytes; an engine takes at most %d: shorten its values",
				o.Key.Kind, o.Key.Name, len(body), maxObject)
	}
	return fleet.Manifest{Body: body, Hash: hashOf(body)}, nil
}

// build makes the typed object, or rejects it.
func build(engine fleet.EngineSpec, o fleet.Object) (object, error) {
	set := 0
	for _, is := range []bool{o.Project != nil, o.Cluster != nil, o.Repository != nil,
		o.Application != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return object{}, fmt.Errorf("exactly one of its parts must be set, not %d", set)
	}
	if err := checkEngine(o.Key.Engine); err != nil {
		return object{}, fmt.Errorf("engine: %w", err)
	}
	switch {
	case o.Project != nil && o.Key.Kind == fleet.ObjectProject:
		return renderProject(engine, o.Key, *o.Project)
	case o.Cluster != nil && o.Key.Engine.OfEnvironment():
		return object{},
			fmt.Errorf("an environment's own cluster needs no cluster Secret, and gets none")
	case o.Cluster != nil && o.Key.Kind == fleet.ObjectCluster:
		return renderCluster(engine, o.Key, *o.Cluster)
	case o.Repository != nil && o.Key.Kind == fleet.ObjectRepository:
		return renderRepository(o.Key, *o.Repository)
	case o.Application != nil && o.Key.Kind == fleet.ObjectApplication:
		return renderApplication(engine, o.Key, *o.Application)
	}
	return object{}, fmt.Errorf("its key's kind %q does not match its content", o.Key.Kind)
}

// patternChars are the special characters of Argo CD's matcher (gobwas/glob, with '!' as a prefix
// for "not"). It matches AppProject sources and destinations, and the url and server of scoped
// Secrets (app_project_types.go, util/argo/argo.go).
const patternChars = "*?[]{}!\\"

// exact rejects text that is empty, has a pattern character, white space or a control character, or
// is longer than most bytes.
func exact(field, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", field)
	case len(s) > most:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", field, len(s), most)
	}
	for _, r := range s {
		switch {
		case strings.ContainsRune(patternChars, r):
			return fmt.Errorf("%s %q holds %q, which Argo CD reads as a pattern", field, s, r)
		case r <= ' ' || r == 0x7f || r > 0x7e:
			return fmt.Errorf("%s %q holds a character that is not plain printable ASCII", field, s)
		}
	}
	return nil
}

// exactServer accepts a server key: a checked URL and the query of ServerKey, whose '?' is the only
// pattern character. As a pattern it matches any one character, itself included. The rest of the
// key is unique, so it matches nothing else. With a zero env it accepts any environment's key.
func exactServer(field, key string, env fleet.EnvironmentID) error {
	server, query, _ := strings.Cut(key, "?")
	name, isKey := strings.CutPrefix(query, "managedEnvironment=")
	if !isKey || env != (fleet.EnvironmentID{}) && key != fleet.ServerKey(server, env) {
		return fmt.Errorf("%s %q is not the server key of the environment", field, key)
	}
	for _, part := range []string{server, name} {
		if err := exact(field, part, 1024); err != nil {
			return err
		}
	}
	if err := fleet.CheckServerURL(server); err != nil {
		return fmt.Errorf("%s %q: %w", field, key, err)
	}
	return nil
}

// checkEngine accepts the name of a declared engine or of an environment's own cluster, which is
// two names joined by a dot.
func checkEngine(name fleet.EngineName) error {
	first, second, own := strings.Cut(string(name), ".")
	if !own {
		return fleet.ValidateName(first)
	}
	if len(name) > 63 {
		return fmt.Errorf("the name is %d characters long; at most 63 are allowed", len(name))
	}
	return errors.Join(fleet.ValidateName(first), fleet.ValidateName(second))
}

// exactDestination accepts a destination of an engine: on an environment's own cluster only that
// cluster, elsewhere a server key. With a zero env it accepts any environment's key.
func exactDestination(field, server string, engine fleet.EngineName,
	env fleet.EnvironmentID) error {
	if !engine.OfEnvironment() {
		return exactServer(field, server, env)
	}
	if server != fleet.InClusterServer {
		return fmt.Errorf("%s %q is not the environment's own cluster, %s", field, server,
			fleet.InClusterServer)
	}
	if env != (fleet.EnvironmentID{}) && engine != fleet.AgentEngine(env) {
		return fmt.Errorf("%s: engine %s is not the own cluster of environment %s", field, engine,
			env)
	}
	return nil
}

// exactRepo accepts the URL of a repository, without credentials in it.
func exactRepo(field, url string) error {
	if _, err := fleet.ParseRepoURL(url); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return exact(field, url, 1024)
}

// exactNamespace accepts any namespace except the engine's own.
func exactNamespace(field, ns string, engine fleet.EngineSpec) error {
	if err := fleet.ValidateNamespace(ns); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if ns == engine.ArgoCD.Namespace {
		return fmt.Errorf("%s %q is Argo CD's own namespace on the engine", field, ns)
	}
	return nil
}
