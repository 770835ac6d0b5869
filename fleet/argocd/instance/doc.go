// Package instance installs, upgrades and repairs one Argo CD (ADR 0071). It is the only importer
// of fluxcd/pkg/ssa.
//
//	Parse    reads Argo CD's published manifests, pure
//	Objects  lays what Argosy depends on over them, pure
//	Target   applies the objects to a cluster, with the inventory of what it has applied
//
// A Target takes steps: each one returns the reason why it has to be repeated, and any replica can
// take the next one.
package instance
