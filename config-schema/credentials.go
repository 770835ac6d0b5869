package configschema

import (
	"reflect"

	"argosy.dev/argosy/fleet"
)

var kindCredential = describe(kind{
	name: fleet.KindRepositoryCredential, place: "tenants/<tenant>/credentials/<name>.yaml",
	doc: "Access of this tenant to a private repository, or to all repositories of a folder.",
}, object(
	field{
		name: "repoURL",
		doc: "The repository, exactly as deployments name it; or with a trailing slash every " +
			"repository below it that deployments read, which the Tenant grants as a whole. " +
			"A credential of the repository itself wins, then that of the nearest folder.",
		example: "https://git.example.com/acme/checkout", required: true,
		value: textOf(formatCredentialURL).atMost(1024)},
	field{
		name: "type",
		doc: "`git`, `helm` for a Helm repository, or `oci` for a registry of OCI charts or " +
			"artifacts. A chart's dependencies are read without the credential.",
		example: "git", fallback: "oci without a scheme and for oci://, else git",
		value: wordOf(string(fleet.RepositoryGit), string(fleet.RepositoryHelm),
			string(fleet.RepositoryOCI))},
	field{
		name: "credentialsRef",
		doc: "The secret of this tenant that holds a user and password, a token or, for Git, an " +
			"ssh key or a GitHub App's key.",
		example: "{name: checkout-git}", required: true,
		value: secretRef("The secret's name.", "checkout-git")},
).checked(typeFits), func(d *fleet.Declaration, s *fleet.CredentialSpec) { d.Credential = s })

// typeFits refuses a type that no repository of the URL can have.
func typeFits(d *decoder, into reflect.Value, at node) {
	s := into.Addr().Interface().(*fleet.CredentialSpec)
	u, _, err := fleet.ParseRepoScope(s.RepoURL)
	if err != nil {
		return // the format has reported it
	}
	if err := s.TypeOf().Fits(u); err != nil {
		d.at("repoURL", func() {
			d.problem(child(at, "repoURL"), codeInvalidURL, err.Error(),
				"write the URL of a "+string(s.TypeOf())+" repository, or another type")
		})
	}
}

func secretRef(doc, example string) value {
	return object(
		field{name: "name", doc: doc, example: example, required: true,
			value: textOf(formatLabelWord)})
}
