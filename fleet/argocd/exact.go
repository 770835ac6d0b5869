package argocd

import (
	"errors"
	"fmt"
	"strings"

	"argosy.dev/argosy/fleet"
)

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
// key is unique, so it matches nothing else. With a zero env it accepts any environment's key. With
// own it is the cluster that the engine's Argo CD runs on: a URL that Argo CD would use with its
// own service account if it were without the query, and that no declaration names.
func exactServer(field, key string, env fleet.EnvironmentID, own bool) error {
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
	if own {
		if server != fleet.InClusterServer {
			return fmt.Errorf("%s %q is not the engine's own cluster, %s", field, key,
				fleet.InClusterServer)
		}
		return nil
	}
	if err := fleet.CheckServerURL(server); err != nil {
		return fmt.Errorf("%s %q: %w", field, key, err)
	}
	return nil
}

// onOwnCluster reports whether an object is on the own cluster of the engine that it is rendered
// for, and rejects one that is on another engine's.
func onOwnCluster(field string, on, engine fleet.EngineName) (bool, error) {
	if on != "" && (on != engine || engine.OfEnvironment()) {
		return false, fmt.Errorf("%s: engine %s does not run on the cluster of engine %s", field,
			engine, on)
	}
	return on != "", nil
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
func exactDestination(field string, d fleet.Destination, engine fleet.EngineName,
	env fleet.EnvironmentID) error {
	own, err := onOwnCluster(field, d.OnEngine, engine)
	if err != nil {
		return err
	}
	server := d.Server
	if !engine.OfEnvironment() {
		return exactServer(field, server, env, own)
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

// place is the tenant of an object and the engine that it is rendered for.
type place struct {
	tenant fleet.TenantName
	name   fleet.EngineName
	engine fleet.EngineSpec
}

// exactNamespace accepts any namespace except reserved ones and the engine's own. A granted one may
// be reserved, and the engine's own if the engine serves this tenant alone or
// it is the platform's.
func (p place) exactNamespace(field, ns string, granted bool) error {
	check := fleet.ValidateNamespace
	if granted {
		check = fleet.CheckNamespace
	}
	if err := check(ns); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if ns == p.engine.ArgoCD.Namespace && !(granted &&
		(p.name.OfEnvironment() || p.engine.Trusts(p.tenant))) {
		return fmt.Errorf("%s %q is Argo CD's own namespace on the engine", field, ns)
	}
	return nil
}

// alone reports whether the engine serves this tenant and no other: write access to its namespace
// is the instance.
func (p place) alone() bool {
	return p.name.OfEnvironment() || p.engine.Serves(p.tenant)
}

// every is Argo CD's pattern for everything. Only a grant of the platform is rendered so; no text
// of a declaration is.
const every = "*"

// exactGroupKind rejects patterns and Argo CD's own kinds.
func exactGroupKind(gk fleet.GroupKind) error {
	if err := exact("clusterResources.kind", gk.Kind, 63); err != nil {
		return err
	}
	if gk.Group != "" {
		if err := exact("clusterResources.group", gk.Group, 253); err != nil {
			return err
		}
	}
	if strings.EqualFold(gk.Group, "argoproj.io") {
		return fmt.Errorf("clusterResources: %s/%s is Argo CD's own and never granted", gk.Group,
			gk.Kind)
	}
	return nil
}
