package adoption

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parameters are the values of a template. Templates without goTemplate know texts alone, by
// dotted names.
type parameters map[string]any

// generator evaluates the generators of an ApplicationSet over what is at hand.
type generator struct {
	im  *importer
	set *set
	r   renderer
	// the only cluster of a clusters generator, in place of those at hand; nil: none
	assumed *assumed
	probe   *probe // in place of the items of list and git; nil: none
}

// generate returns the parameters of a generator. outer are those of the first generator of a
// matrix, which the fields of the second one may use.
func (g *generator) generate(at string, raw map[string]any, outer parameters) (found []parameters,
	err error) {
	for _, k := range keys(raw) {
		if k == "selector" {
			continue
		}
		block, _ := raw[k].(map[string]any)
		if outer != nil && k != "matrix" && k != "merge" {
			rendered, err := g.r.tree(block, outer)
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", at, k, err)
			}
			block, _ = rendered.(map[string]any)
		}
		if block["template"] != nil && compact(clone(block["template"])) != nil {
			return nil, fmt.Errorf("%s.%s.template: a template of one generator is not read", at, k)
		}
		field := at + "." + k
		switch k {
		case "list":
			found, err = g.list(field, block)
		case "clusters":
			found, err = g.clusters(field, block)
		case "clusterDecisionResource":
			found, err = g.decisions(field, block)
		case "git":
			found, err = g.git(field, block)
		case "matrix":
			found, err = g.matrix(field, block, outer)
		case "merge":
			found, err = g.merge(field, block, outer)
		default:
			return nil,
				fmt.Errorf("%s: the generator asks another system; import the Applications "+
					"that it generates", field)
		}
		if err != nil {
			return nil, err
		}
	}
	if s, ok := raw["selector"].(map[string]any); ok {
		found = slices.DeleteFunc(found, func(p parameters) bool {
			labels := map[string]string{}
			for k, v := range p {
				labels[k] = fmt.Sprint(v)
			}
			return !selects(s, labels)
		})
	}
	return found, nil
}

func (g *generator) list(field string, block map[string]any) (found []parameters, err error) {
	if g.probe != nil {
		return g.probeList(block), nil
	}
	elements := list(block, "elements")
	if y := text(block, "elementsYaml"); y != "" {
		tree, err := parse("elements:\n" + indent(y))
		if err != nil {
			return nil, fmt.Errorf("%s.elementsYaml: %w", field, err)
		}
		elements = append(elements, list(tree, "elements")...)
	}
	for _, e := range elements {
		m, ok := e.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s.elements: an element is no map; if an overlay replaces it, "+
				"import what kustomize build prints, or the live objects", field)
		}
		found = append(found, g.params(m))
	}
	return found, nil
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}

// params are the values of an element: as they are for Go templates, else as texts. Maps of the
// values of an element are named values.<key>.
func (g *generator) params(m map[string]any) parameters {
	if g.r.goTemplate {
		return clone(m).(map[string]any)
	}
	p := parameters{}
	flatten("", m, p)
	return p
}

func flatten(prefix string, v any, into parameters) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			name := k
			if prefix != "" {
				name = prefix + "." + k
			}
			flatten(name, e, into)
		}
	case []any:
		for i, e := range v {
			flatten(prefix+"."+strconv.Itoa(i), e, into)
		}
	case nil:
		into[prefix] = ""
	default:
		into[prefix] = fmt.Sprint(v)
	}
}

// clusters are the known clusters that a selector matches. Without a selector, Argo CD's own
// cluster is one of them.
func (g *generator) clusters(field string, block map[string]any) (found []parameters, err error) {
	if g.assumed != nil {
		p, err := g.cluster(g.assumed.name, g.assumed.server(), g.assumed.labels,
			g.assumed.annotations, block)
		return []parameters{p}, err
	}
	selector := object(block, "selector")
	all := compact(clone(any(selector))) == nil
	if all {
		own := g.im.clusters.own()
		p, err := g.cluster(own.key, "https://kubernetes.default.svc", nil, nil, block)
		if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	secrets := 0 // of clusters, whether they match or not
	for _, server := range slices.Sorted(maps.Keys(g.im.clusters.byServer)) {
		c := g.im.clusters.byServer[server]
		if c.secret == nil {
			continue
		}
		secrets++
		labels := map[string]string{}
		for k, v := range object(c.secret.Object, "metadata", "labels") {
			labels[k] = fmt.Sprint(v)
		}
		if c.key == inCluster && all || !all && !selects(selector, labels) {
			continue
		}
		name := secretValue(c.secret.Object, "name")
		p, err := g.cluster(name, secretValue(c.secret.Object, "server"),
			object(c.secret.Object, "metadata", "labels"),
			object(c.secret.Object, "metadata", "annotations"), block)
		if err != nil {
			return nil, err
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", field, errNoClusters)
	}
	loss := Difference{Path: field, From: block,
		Reason: "a new cluster gets the deployment when its environment is named in it"}
	if secrets == 0 {
		loss.Reason = "no cluster Secret is at hand, so only Argo CD's own cluster gets the " +
			"deployment; " + loss.Reason
	}
	g.set.lose(loss)
	return found, nil
}

// decisions is the assumed cluster in place of those that a Placement of Open Cluster Management
// chooses.
func (g *generator) decisions(field string, block map[string]any) ([]parameters, error) {
	if g.assumed == nil {
		return nil, fmt.Errorf("%s: %w", field, errNoClusters)
	}
	p, err := g.cluster(g.assumed.name, g.assumed.server(), nil, nil, block)
	if err != nil {
		return nil, err
	}
	p["clusterName"] = g.assumed.name
	g.set.lose(Difference{Path: field, From: block, Reason: "a Placement chooses the clusters; " +
		"the environments with the label in environmentSelector get the deployment"})
	return []parameters{p}, nil
}

func (s *set) lose(d Difference) {
	if !slices.ContainsFunc(s.losses, func(l Difference) bool { return l.Path == d.Path }) {
		s.losses = append(s.losses, d)
	}
}

func (g *generator) cluster(name, server string, labels, annotations,
	block map[string]any) (parameters, error) {
	m := map[string]any{"name": name, "nameNormalized": normalizeName(name), "server": server,
		"project":  "",
		"metadata": map[string]any{"labels": orEmpty(labels), "annotations": orEmpty(annotations)}}
	p := g.params(m)
	values, err := g.r.tree(orEmpty(object(block, "values")), p)
	if err != nil {
		return nil, err
	}
	if g.r.goTemplate {
		p["values"] = values
	} else {
		flatten("values", values, p)
	}
	return p, nil
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return clone(m).(map[string]any)
}

// git lists the folders or files of the repository at hand.
func (g *generator) git(field string, block map[string]any) (found []parameters, err error) {
	if g.probe != nil {
		return g.probeGit(block)
	}
	if g.im.Tree == nil {
		return nil, fmt.Errorf("%s: %w", field, errNotListed)
	}
	prefix := text(block, "pathParamPrefix")
	if dirs := list(block, "directories"); len(dirs) > 0 {
		for _, dir := range g.im.Tree.Dirs {
			if included(dir, dirs) {
				p, err := g.place(block, dir, "", prefix, map[string]any{})
				if err != nil {
					return nil, err
				}
				found = append(found, p)
			}
		}
	}
	for _, f := range list(block, "files") {
		m, _ := f.(map[string]any)
		pattern := text(m, "path")
		form, err := lsFiles(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s.files: %w", field, err)
		}
		for _, file := range g.im.Tree.Files {
			if !form.MatchString(file) {
				continue
			}
			contents, err := g.file(file)
			if err != nil {
				return nil, fmt.Errorf("%s.files: %s: %w", field, file, err)
			}
			for _, c := range contents {
				p, err := g.place(block, path.Dir(file), path.Base(file), prefix, c)
				if err != nil {
					return nil, err
				}
				found = append(found, p)
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", field, errNotListed)
	}
	what := "folder"
	if len(list(block, "files")) > 0 {
		what = "file"
	}
	g.set.lose(Difference{Path: field, From: block,
		Reason: "each " + what + " is written as a deployment; a new " + what +
			" needs a deployment of its own"})
	g.set.notes = append(g.set.notes,
		"the repository at hand is taken for "+text(block, "repoURL"))
	return found, nil
}

// included reports whether the patterns of a git generator include a folder; an excluded one loses.
func included(dir string, patterns []any) bool {
	in := false
	for _, raw := range patterns {
		m, _ := raw.(map[string]any)
		if ok, err := path.Match(text(m, "path"), dir); err != nil || !ok {
			continue
		}
		if exclude, _ := m["exclude"].(bool); exclude {
			return false
		}
		in = true
	}
	return in
}

// lsFiles is a pattern of git ls-files, whose '*' matches slashes too.
func lsFiles(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.HasPrefix(pattern[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case c == '*':
			b.WriteString(".*")
		case c == '?':
			b.WriteString(".")
		case c == '{' && strings.IndexByte(pattern[i:], '}') > 0:
			end := i + strings.IndexByte(pattern[i:], '}')
			parts := strings.Split(pattern[i+1:end], ",")
			for j := range parts {
				parts[j] = regexp.QuoteMeta(parts[j])
			}
			b.WriteString("(?:" + strings.Join(parts, "|") + ")")
			i = end
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	return regexp.Compile(b.String() + "$")
}

// file is the content of a file of parameters: a map, or a list of maps.
func (g *generator) file(name string) (out []map[string]any, err error) {
	b, err := g.im.Tree.Read(name)
	if err != nil {
		return nil, err
	}
	tree, err := parse("content:\n" + indent(string(b)))
	if err != nil || tree == nil {
		return nil, fmt.Errorf("it is not YAML or JSON")
	}
	switch c := tree["content"].(type) {
	case map[string]any:
		return []map[string]any{c}, nil
	case []any:
		for _, e := range c {
			if m, ok := e.(map[string]any); ok {
				out = append(out, m)
			}
		}
		return out, nil
	case nil:
		return []map[string]any{{}}, nil
	}
	return nil, fmt.Errorf("it is no map and no list of maps")
}

// place adds the parameters of a path.
func (g *generator) place(block map[string]any, dir, file, prefix string,
	content map[string]any) (parameters, error) {
	segments := strings.Split(dir, "/")
	base := path.Base(dir)
	p := g.params(content)
	if g.r.goTemplate {
		where := map[string]any{"path": dir, "basename": base,
			"basenameNormalized": normalizeName(base), "segments": anys(segments)}
		if file != "" {
			where["filename"], where["filenameNormalized"] = file, normalizeName(file)
		}
		if prefix != "" {
			p[prefix] = map[string]any{"path": where}
		} else {
			p["path"] = where
		}
	} else {
		at := "path"
		if prefix != "" {
			at = prefix + ".path"
		}
		p[at], p[at+".basename"] = dir, base
		p[at+".basenameNormalized"] = normalizeName(base)
		if file != "" {
			p[at+".filename"], p[at+".filenameNormalized"] = file, normalizeName(file)
		}
		for i, s := range segments {
			p[fmt.Sprintf("%s[%d]", at, i)] = s
		}
	}
	values, err := g.r.tree(orEmpty(object(block, "values")), p)
	if err != nil {
		return nil, err
	}
	if g.r.goTemplate {
		if len(values.(map[string]any)) > 0 {
			p["values"] = values
		}
	} else {
		flatten("values", values, p)
	}
	return p, nil
}

// matrix combines each result of the first generator with each of the second, which may use the
// parameters of the first.
func (g *generator) matrix(field string, block map[string]any,
	outer parameters) (found []parameters,
	err error) {
	children := list(block, "generators")
	if len(children) != 2 {
		return nil, fmt.Errorf("%s: a matrix has two generators", field)
	}
	first, _ := children[0].(map[string]any)
	second, _ := children[1].(map[string]any)
	left, err := g.generate(field+".generators[0]", first, outer)
	if err != nil {
		return nil, err
	}
	for _, l := range left {
		right, err := g.generate(field+".generators[1]", second, l)
		if err != nil {
			return nil, err
		}
		for _, r := range right {
			both := parameters(clone(map[string]any(l)).(map[string]any))
			for k, v := range r {
				both[k] = merged(both[k], v)
			}
			if found = append(found, both); len(found) > maxGenerated {
				return nil, fmt.Errorf("%s: it generates more than %d Applications", field,
					maxGenerated)
			}
		}
	}
	return found, nil
}

// merge lays the results of the later generators over those of the first that have the same keys.
func (g *generator) merge(field string, block map[string]any, outer parameters) (found []parameters,
	err error) {
	mergeKeys := texts(block, "mergeKeys")
	id := func(p parameters) string {
		var parts []string
		for _, k := range mergeKeys {
			v, ok := p[k]
			if !ok {
				v = at(p, strings.Split(k, ".")...)
			}
			parts = append(parts, fmt.Sprint(v))
		}
		return strings.Join(parts, "\n")
	}
	for i, raw := range list(block, "generators") {
		m, _ := raw.(map[string]any)
		results, err := g.generate(fmt.Sprintf("%s.generators[%d]", field, i), m, outer)
		none := i > 0 && errors.Is(err, errNoClusters) && g.im.clusters.others()
		if err != nil && !none { // of the clusters at hand, a later generator may change none
			return nil, err
		}
		if i > 0 && g.assumed != nil {
			results = g.assumed.layered(i, results, m["list"] != nil)
		}
		if i == 0 {
			found = results
			continue
		}
		over := map[string]parameters{}
		for _, r := range results {
			over[id(r)] = r
		}
		for j, base := range found {
			if o, ok := over[id(base)]; ok {
				for k, v := range o {
					found[j][k] = merged(base[k], v)
				}
			}
		}
	}
	return found, nil
}

// selects evaluates a selector of Kubernetes.
func selects(selector map[string]any, labels map[string]string) bool {
	for k, v := range object(selector, "matchLabels") {
		if have, ok := labels[k]; !ok || have != fmt.Sprint(v) {
			return false
		}
	}
	for _, e := range list(selector, "matchExpressions") {
		m, _ := e.(map[string]any)
		have, ok := labels[text(m, "key")]
		in := slices.Contains(texts(m, "values"), have)
		switch text(m, "operator") {
		case "In":
			if !ok || !in {
				return false
			}
		case "NotIn":
			if ok && in {
				return false
			}
		case "Exists":
			if !ok {
				return false
			}
		case "DoesNotExist":
			if ok {
				return false
			}
		default:
			return false
		}
	}
	return true
}

var notInNames = regexp.MustCompile(`[^-a-z0-9.]`)

// normalizeName is Argo CD's sanitized name of a cluster or folder.
func normalizeName(s string) string {
	s = notInNames.ReplaceAllString(strings.ToLower(s), "-")
	if len(s) > 253 {
		s = s[:253]
	}
	return strings.Trim(s, "-.")
}
