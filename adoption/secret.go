package adoption

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// credential is a repository Secret as one tenant's RepositoryCredential.
type credential struct {
	tenant  fleet.TenantName
	secret  *Original
	draft   *draft
	refusal string
}

func (c *credential) url() string { return text(c.draft.document, "spec", "repoURL") }

func (c *credential) refuse(reason string) bool {
	if c.refusal != "" {
		return false
	}
	c.refusal = reason
	return true
}

// repositorySecrets are the Secrets of repositories and of prefixes of repositories.
func (im *importer) repositorySecrets() (found []Original) {
	for _, o := range im.of(KindSecret) {
		if t := secretType(o.Object); (t == "repository" || t == "repo-creds") && im.wanted(o.Kind,
			o.Namespace, o.Name) {
			found = append(found, o)
		}
	}
	return found
}

// credentialsOf are the credentials of a tenant: the repository Secrets that its sources use and
// that its project may use.
func (im *importer) credentialsOf(t *tenant, g grants) (found []*credential) {
	for _, o := range im.repositorySecrets() {
		url := secretValue(o.Object, "url")
		prefix := secretType(o.Object) == "repo-creds"
		if project := secretValue(o.Object, "project"); project != "" &&
			im.tenantOfProject(project) != t.name &&
			!slices.ContainsFunc(im.apps, func(a *app) bool {
				return !a.out() && a.moved && a.project == project && a.tenant == t.name
			}) {
			continue
		}
		used := false
		for _, have := range keys(g.repositories) {
			used = used || sameRepository(have, url) ||
				prefix && strings.HasPrefix(repositoryKey(have), repositoryKey(url)+"/")
		}
		if used {
			if c := im.credential(t.name, o, url, prefix); c.refusal == "" {
				found = append(found, c)
			}
		}
	}
	return found
}

// credential drafts the credential of a tenant once.
func (im *importer) credential(t fleet.TenantName, o Original, url string,
	prefix bool) *credential {
	for _, c := range im.credentials {
		if c.tenant == t && sameOriginal(*c.secret, o) {
			return c
		}
	}
	name := validName(strings.TrimPrefix(o.Name, "repo-"), "repository")
	for n := 2; slices.ContainsFunc(im.credentials, func(c *credential) bool {
		return c.tenant == t && c.draft.key.Name == name
	}); n++ {
		name = validName(fmt.Sprintf("%s-%d", o.Name, n), "repository")
	}
	d := newDraft(fleet.Key{Kind: fleet.KindRepositoryCredential, Tenant: t, Name: name})
	others := spellingsOf(url)
	if prefix { // a folder ends in a slash
		url = strings.TrimSuffix(url, "/")
		others = spellingsOf(url)
		for i := range others {
			others[i] = others[i].(string) + "/"
		}
		url += "/"
	}
	d.set("spec.repoURL", url, others...)
	if kind := secretValue(o.Object, "type"); kind != "" && kind != "git" {
		if secretValue(o.Object, "enableOCI") == "true" {
			kind = "oci"
		}
		d.set("spec.type", kind)
	}
	d.set("spec.credentialsRef", map[string]any{"name": name})
	d.fit()
	c := &credential{tenant: t, secret: &o, draft: d, refusal: d.refusal}
	if reason := d.reason("spec.type"); reason != "" {
		c.refusal = "spec.type: " + reason
	}
	im.credentials = append(im.credentials, c)
	return c
}

// sharedRepositories are the repositories that several tenants read and that Argo CD reads for all
// of them with Secrets without a project: one of several spellings each, sorted. A Secret of a
// project is no statement about other projects, so such a repository is not proposed.
func (im *importer) sharedRepositories(w *whole) (urls []string) {
	readers, spelled := map[string][]fleet.TenantName{}, map[string]string{}
	byName := func(a, b *tenant) int { return strings.Compare(string(a.name), string(b.name)) }
	for _, t := range slices.SortedFunc(maps.Values(w.tenants), byName) {
		for _, url := range texts(t.draft.document, "spec", "repositories") {
			key, err := fleet.NormalizeRepoURL(url)
			if err != nil || strings.HasSuffix(url, "/") {
				continue
			}
			if spelled[key] == "" {
				spelled[key] = url
			}
			if !slices.Contains(readers[key], t.name) {
				readers[key] = append(readers[key], t.name)
			}
		}
	}
	for key, tenants := range readers {
		if len(tenants) > 1 && openToProjects(w, key, tenants) {
			urls = append(urls, spelled[key])
		}
	}
	slices.Sort(urls)
	return urls
}

// openToProjects reports whether a repository is read with a credential by one of the tenants, and
// with none of a project.
func openToProjects(w *whole, repository string, tenants []fleet.TenantName) (open bool) {
	for _, c := range w.credentials {
		scope, err := fleet.RepoScopeKey(c.url())
		if err != nil || !fleet.RepoScopeCovers(scope, repository) ||
			!slices.Contains(tenants, c.tenant) {
			continue
		}
		if secretValue(c.secret.Object, "project") != "" {
			return false
		}
		open = true
	}
	return open
}

// noteShared adds the note about the repositories that the written Fleet shares.
func (im *importer) noteShared() {
	if len(im.shared) > 0 {
		im.notes = append(im.notes, fmt.Sprintf("several tenants read %s with a credential that "+
			"Argo CD gives to every project: sharedRepositories of fleet/fleet.yaml lets them "+
			"share an engine; confirm that every tenant with a grant may read all of it, or remove the "+
			"entry, and each of these tenants needs an engine of its own",
			strings.Join(im.shared, " and ")))
	}
}

func sameOriginal(a, b Original) bool {
	return a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name && a.File == b.File
}

// repositoryKey is one spelling of a repository's URL.
func repositoryKey(url string) string {
	url = strings.ToLower(strings.TrimSpace(url))
	for _, s := range spellingsOf(url) {
		url = s.(string)
	}
	return strings.TrimSuffix(strings.TrimSuffix(url, "/"), ".git")
}

func sameRepository(a, b string) bool { return repositoryKey(a) == repositoryKey(b) }

// secretKeys are the keys of Argo CD's repository Secrets, and those of a credential here.
var secretKeys = []string{"username", "password", "sshPrivateKey", "githubAppID",
	"githubAppInstallationID", "githubAppPrivateKey", "bearerToken"}

// plainKeys are the keys of Secrets that hold no credential and that the declarations replace.
var plainKeys = map[string]bool{"url": true, "type": true, "name": true, "project": true,
	"server": true}

// concludeSecrets adds the results of the Secrets, and the commands that create those of tenants.
// A command reads the existing Secret; no value is printed.
func (im *importer) concludeSecrets() {
	for _, o := range im.of(KindSecret) {
		if !im.wanted(o.Kind, o.Namespace, o.Name) {
			continue
		}
		r := Result{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Source: o.File}
		switch secretType(o.Object) {
		case "cluster":
			im.concludeCluster(o, &r)
		case "repository", "repo-creds":
			im.concludeRepository(o, &r)
		default:
			r.Status = Refused
			r.Reason = "Secrets of type " + secretType(o.Object) + " have no counterpart"
		}
		im.results = append(im.results, r)
	}
}

func (im *importer) concludeRepository(o Original, r *Result) {
	for _, c := range im.credentials {
		if !sameOriginal(*c.secret, o) {
			continue
		}
		if c.refusal != "" {
			r.Reason = c.refusal
			continue
		}
		r.File = pathOf(c.draft.key)
		im.commands = append(im.commands, im.createSecret(c.tenant, c.draft.key.Name, o,
			present(o.Object, secretKeys)))
	}
	if r.File == "" {
		r.Status = Refused
		if r.Reason == "" {
			r.Reason = "no Application that is written uses it"
		}
		return
	}
	r.Status, r.Reason = Exact, ""
	for _, k := range present(o.Object, keys(object(o.Object, "data")), keys(object(o.Object,
		"stringData"))) {
		v := secretValue(o.Object, k)
		if plainKeys[k] || slices.Contains(secretKeys, k) || v == "" || v == "false" ||
			k == "enableOCI" {
			continue
		}
		r.Differences = append(r.Differences, Difference{Path: "data." + k, From: "(not shown)",
			Reason: "a RepositoryCredential has no counterpart"})
		r.Status = Changed
	}
}

// present are the keys of a Secret among the given ones, sorted.
func present(o map[string]any, lists ...[]string) (found []string) {
	for _, l := range lists {
		for _, k := range l {
			if at(o, "data", k) != nil || at(o, "stringData", k) != nil {
				found = append(found, k)
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func (im *importer) concludeCluster(o Original, r *Result) {
	c := im.clusters.byServer[strings.TrimSuffix(secretValue(o.Object, "server"), "/")]
	if c == nil {
		r.Status, r.Reason = Refused, "it has no server, or a template"
		return
	}
	for _, name := range keys(im.tenants) {
		for _, e := range im.tenants[name].envs {
			if e.cluster != c || e.draft == nil || len(e.namespaces) == 0 {
				continue
			}
			if r.File == "" {
				r.File = pathOf(e.draft.key)
			}
			if e.by == c.server && c.server != "" {
				im.commands = append(im.commands, im.createClusterSecret(e, o, r))
			}
		}
	}
	if r.File == "" {
		r.Status, r.Reason = Refused, "no Application that is written deploys to it"
		return
	}
	r.Status = Exact
	for _, k := range present(o.Object, keys(object(o.Object, "data")), keys(object(o.Object,
		"stringData"))) {
		if plainKeys[k] || k == "config" || secretValue(o.Object, k) == "" {
			continue
		}
		d := Difference{Path: "data." + k, From: "(not shown)", Reason: clusterKeys[k]}
		if d.Reason != "" { // a known key is no credential
			d.From = secretValue(o.Object, k)
		}
		r.Differences = append(r.Differences, d)
	}
	var config map[string]json.RawMessage
	if json.Unmarshal([]byte(secretValue(o.Object, "config")), &config) == nil {
		for _, k := range keys(config) {
			if reason := clusterConfig[k]; reason != "" {
				r.Differences = append(r.Differences, Difference{Path: "data.config." + k,
					From: "(not shown)", Reason: reason})
			}
		}
	}
	if len(r.Differences) > 0 {
		r.Status = Changed
	}
}

var clusterKeys = map[string]string{
	"namespaces":       "an environment names the namespaces of its deployments",
	"clusterResources": "an environment allows the cluster-scoped kinds that its tenant is granted",
	"shard":            "Argo CD places clusters on its shards itself",
}

var clusterConfig = map[string]string{
	"username": "a password of a cluster's user has no counterpart: use a token",
	"password": "a password of a cluster's user has no counterpart: use a token",
	"awsAuthConfig": "the platform declares a Cluster with eks, or write a token into the " +
		"new Secret",
	"execProviderConfig": "the platform declares a Cluster with gke or aks, or write a token " +
		"into the new Secret",
	"proxyUrl":           "an environment has no proxy",
	"disableCompression": "the engine decides",
}

// createSecret is the command that copies the keys of an existing Secret into the namespace of a
// tenant's secrets.
func (im *importer) createSecret(t fleet.TenantName, name string, o Original,
	copied []string) string {
	im.space(t)
	var b strings.Builder
	fmt.Fprintf(&b, "kubectl -n %s create secret generic %s", fleet.TenantNamespace(t), name)
	for _, k := range copied {
		fmt.Fprintf(&b, " --from-file=%s=<(kubectl -n %s get secret %s -o go-template="+
			"'{{index .data %q | base64decode}}')", k, shell(im.namespaceOf(o)), shell(o.Name), k)
	}
	return b.String()
}

func (im *importer) createClusterSecret(e *environment, o Original, r *Result) string {
	var config struct {
		BearerToken string `json:"bearerToken"`
		TLS         struct {
			CertData string `json:"certData"`
		} `json:"tlsClientConfig"`
	}
	_ = json.Unmarshal([]byte(secretValue(o.Object, "config")), &config) // an empty one has neither
	read := fmt.Sprintf("kubectl -n %s get secret %s -o go-template="+
		"'{{.data.config | base64decode}}'", shell(im.namespaceOf(o)), shell(o.Name))
	im.space(e.tenant)
	create := fmt.Sprintf("kubectl -n %s create secret generic %s", fleet.TenantNamespace(e.tenant),
		e.name)
	switch {
	case config.BearerToken != "":
		return create + " --from-file=token=<(" + read + " | jq -rj .bearerToken)"
	case config.TLS.CertData != "":
		return create + " --from-file=cert=<(" + read + " | jq -rj .tlsClientConfig.certData | " +
			"base64 -d) --from-file=key=<(" + read +
			" | jq -rj .tlsClientConfig.keyData | base64 -d)"
	}
	r.Notes = append(r.Notes, "it holds no token and no certificate: create one for Argosy")
	return create + " --from-file=token=TOKEN-FILE"
}

func (im *importer) namespaceOf(o Original) string {
	if o.Namespace != "" {
		return o.Namespace
	}
	return im.ArgoNamespace
}

// shell quotes a name for a shell; names of Kubernetes need no quotes.
func shell(s string) string {
	if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.-") == "" && s != "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
