package configschema

import "argosy.dev/argosy/fleet"

var kindAccess = describe(kind{
	name: fleet.KindAccess, place: accessFile,
	doc: "The platform's roles: who may see and do what in the whole fleet (`docs/roles.md`). At " +
		"most one. Without it, only bearer tokens have roles of the platform.",
}, object(
	field{
		name: "admins", first: true,
		doc: "Who may do everything, tokens and other people's sessions included: people and " +
			"teams of the Git host, and groups of the identity provider.",
		example: `["group:platform"]`, value: owners()},
	field{
		name: "operators",
		doc: "Who may see everything and decide for the fleet and for every tenant: approve, " +
			"stop, move, drain, sync and the like.",
		example: `["group:on-call", "github:alice"]`, value: owners()},
	field{name: "viewers", doc: "Who may see everything, and change nothing.",
		example: `["group:engineering"]`, value: owners()},
).not(map[string]word{
	"owners": {codeUnknownField, "the owners of fleet/ are those of the Fleet",
		"write them in fleet/fleet.yaml, or give people a role with admins"},
	"members": {codeUnknownField, "members are a tenant's",
		"write them in fleet/tenants/<tenant>.yaml"},
	"roles": {codeUnknownField, "each role is a field of its own",
		"use admins, operators and viewers"},
}), func(d *fleet.Declaration, s *fleet.AccessSpec) { d.Access = s })
