package argocd

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// The messages are those of Argo CD 2.14 and 3.5 with real servers;
// TestAParkedClusterCostsItsNeighboursNothing checks them again.
func TestOnlyArgoCDsOwnMessagesMakeAClusterUnreachable(t *testing.T) {
	const get = `failed to get server version: Get "https://c.example.com/version?timeout=30s": `
	const lead = `Failed to load target state: failed to get cluster version for cluster "https://c.example.com?argosy=x": ` +
		`failed to get cluster info for "https://c.example.com?argosy=x": error synchronizing cache state : `
	for message, want := range map[string]mirror.UnreachableReason{
		lead + get +
			`net/http: TLS handshake timeout`: mirror.UnreachableTimeout,
		lead + get +
			`dial tcp 192.0.2.1:443: i/o timeout`: mirror.UnreachableTimeout,
		lead + get +
			`context deadline exceeded (Client.Timeout exceeded while ` +
			`awaiting headers)`: mirror.UnreachableTimeout,
		lead + get +
			`dial tcp 127.0.0.1:1: connect: connection refused`: mirror.UnreachableRefused,
		lead + get +
			`dial tcp: lookup c.example.com: no such host`: mirror.UnreachableRefused,
		lead +
			`failed to get server version: the server has asked for the client to provide credentials`: mirror.UnreachableDenied,
		lead + get +
			`tls: failed to verify certificate: x509: certificate signed by unknown authority`: mirror.UnreachableDenied,
		lead +
			`failed to sync cluster https://c.example.com: failed to load initial state of resource Shop.example.com: conversion webhook failed`: mirror.UnreachableError,
		lead + `failed to sync cluster https://c.example.com: failed to load initial state of ` +
			`resource Secret: secrets is forbidden: User "system:serviceaccount:a:b" cannot ` +
			`list resource "secrets" in API group "" in the namespace "c"`: mirror.UnreachableError,
		// Output of a repository's tools or a workload is not Argo CD's own message.
		`Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: error synchronizing cache state : i/o timeout`: "",
		`Failed to load target state: failed to generate manifest for source 1 of 1: rpc error: context deadline exceeded`:                     "",
		`error synchronizing cache`: "",
	} {
		o := &liveObject{}
		o.Status.Conditions = []struct{ Type, Message string }{{"SyncError", lead + "i/o timeout"},
			{"ComparisonError", message}}
		if got := contactOf(&engine.Live{}, false, o); got.Reason != want {
			t.Errorf("%s\nis %q, not %q (%s)", message, got.Reason, want, got.Message)
		} else if forbidden := strings.Contains(message, "cannot list"); forbidden !=
			strings.HasSuffix(got.Message, "(docs/clusters.md)") {
			t.Errorf("%s\nhas the next step: %t", got.Message, !forbidden)
		}
	}
}
