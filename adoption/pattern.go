package adoption

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// errNoClusters is the error of a clusters generator if no cluster Secret is at hand.
var errNoClusters = errors.New("no cluster Secret is at hand")

// pattern is a deployment with a selector for the clusters of an ApplicationSet that are not at
// hand: what differs between clusters is written as variables.
type pattern struct {
	draft  *draft
	tenant fleet.TenantName
	app    *app // that the first assumed cluster would get

	refusal string // of the whole config repo
}

// assumed is a cluster with the labels that a template reads. Its name and labels are marks that
// occur nowhere else, so that their places can be written as variables.
type assumed struct {
	name   string
	labels map[string]any
}

func (a assumed) server() string { return "https://" + a.name + ".example.com" }

var labelInTemplate = regexp.MustCompile(
	`metadata\.labels\.([A-Za-z0-9_-]+)|metadata\.labels "([^"]+)"`)

// assume is one of two assumed clusters.
func assume(s *set, suffix string) (assumed, map[string]string) {
	c := assumed{name: "zqx-name-" + suffix, labels: map[string]any{}}
	marks := map[string]string{c.name: "${environment.name}"}
	for _, found := range labelInTemplate.FindAllStringSubmatch(writeYAML(s.Object["spec"]), -1) {
		label := found[1] + found[2]
		if _, ok := c.labels[label]; !ok {
			mark := fmt.Sprintf("zqx-label%d-%s", len(c.labels), suffix)
			c.labels[label] = mark
			marks[mark] = "${environment.labels." + label + "}"
		}
	}
	return c, marks
}

// patterns writes an ApplicationSet over clusters that are not at hand as deployments with the
// selector of its generator, or returns why it cannot. Two assumed clusters prove each of them:
// what is rendered in their environments equals what the ApplicationSet generates for them.
func (im *importer) patterns(s *set, r renderer) string {
	if s.selector == nil {
		return "spec.generators: no cluster Secret at hand matches, and one selector cannot replace " +
			"the generators; import with the cluster Secrets, or from the live Argo CD"
	}
	one, marks := assume(s, "one")
	two, _ := assume(s, "two")
	first, err := im.assumedApplications(s, r, one)
	if err != nil {
		return err.Error()
	}
	second, err := im.assumedApplications(s, r, two)
	if err != nil {
		return err.Error()
	}
	if len(first) != len(second) {
		return "spec.generators: the number of Applications depends on the cluster"
	}
	for i := range first {
		if reason := im.pattern(s, [2]Original{first[i], second[i]}, [2]assumed{one, two},
			marks); reason != "" {
			return reason
		}
	}
	return ""
}

// assumedApplications are the Applications that the ApplicationSet generates for one cluster.
func (im *importer) assumedApplications(s *set, r renderer, c assumed) (all []Original, err error) {
	g := &generator{im: im, set: s, r: r, assumed: &c}
	for i, raw := range list(s.Object, "spec", "generators") {
		m, _ := raw.(map[string]any)
		params, err := g.generate(fmt.Sprintf("spec.generators[%d]", i), m, nil)
		if err != nil {
			return nil, err
		}
		for _, p := range params {
			o, err := im.generated(s, r, p)
			if err != nil {
				return nil, err
			}
			all = append(all, o)
		}
	}
	return all, nil
}

// pattern proves one deployment in an import of its own and keeps it.
func (im *importer) pattern(s *set, originals [2]Original, clusters [2]assumed,
	marks map[string]string) string {
	trial := &importer{Options: im.Options, tools: im.tools,
		tenants: map[fleet.TenantName]*tenant{}, clusters: newClusters(im.Engine, nil),
		decision: im.decision, ownerless: map[site]bool{},
		filesAt: im.filesAt, owned: map[string][]Original{}}
	for _, c := range clusters {
		trial.clusters.add(c.name, c.server()).labels = c.labels
	}
	var apps [2]*app
	for i, o := range originals {
		a := trial.add(o, s)
		if a.refused() {
			return a.result.Reason
		}
		if a.cluster != trial.clusters.byName[clusters[i].name] {
			return "spec.template.spec.destination: it is not the cluster of the generator"
		}
		apps[i] = a
	}
	if apps[0].tenant != apps[1].tenant || strings.Contains(apps[0].project, clusters[0].name) {
		return "spec.template.spec.project: it depends on the cluster"
	}
	trial.nameEnvironments()
	name := patternName(apps[0].Name, marks, s.Name)
	d := apps[0].deployment(name, nil)
	d.document, _ = unmarked(d.document, marks).(map[string]any)
	for field, others := range d.spellings {
		for i := range others {
			others[i] = unmarked(others[i], marks)
		}
		d.spellings[field] = others
	}
	d.put("spec.destination.environments", []any{string(apps[0].env), string(apps[1].env)})
	if d.fit(); d.refusal != "" {
		return d.refusal
	}
	for _, a := range apps {
		a.draft = d
		a.namespace = text(a.Object, "spec", "destination", "namespace")
		if a.namespace == "" {
			a.namespace = name
		}
		a.lost = a.metadataLost(im.ArgoNamespace)
	}
	if _, err := trial.complete(); err != nil {
		return err.Error()
	}
	for _, a := range apps {
		if a.refused() {
			s.result.reasons = append(s.result.reasons, a.result.causes()...)
			return a.result.Reason
		}
	}
	im.keepPattern(s, d, apps[0])
	return ""
}

// keepPattern gives the proven deployment its selector and a free name.
func (im *importer) keepPattern(s *set, d *draft, a *app) {
	d.put("spec.destination", map[string]any{"environmentSelector": s.selector,
		"namespace": text(d.document, "spec", "destination", "namespace")})
	name := d.key.Name
	for n := 2; im.patternNames[d.key]; n++ {
		d.key.Name = validName(fmt.Sprintf("%s-%d", name, n), "set")
	}
	im.patternNames[d.key] = true
	d.put("metadata.name", d.key.Name)
	for i := range a.result.Differences {
		a.result.Differences[i].From = unmarked(a.result.Differences[i].From,
			map[string]string{"zqx-name-one": "{{name}}"})
	}
	s.patterns = append(s.patterns, &pattern{draft: d, tenant: a.tenant, app: a})
	im.tenant(a.tenant)
}

// patternName is the name of a deployment: that of its Applications without the cluster's.
func patternName(name string, marks map[string]string, otherwise string) string {
	for _, m := range keys(marks) {
		name = strings.ReplaceAll(name, m, "-")
	}
	name = strings.Trim(strings.ReplaceAll(strings.ReplaceAll(name, "---", "-"), "--", "-"), "-.")
	if name == "" {
		name = otherwise
	}
	return validName(name, "set")
}

// unmarked is a tree with variables in place of marks.
func unmarked(v any, marks map[string]string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = unmarked(e, marks)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = unmarked(e, marks)
		}
		return out
	case string:
		// longer marks first: label10 before label1
		for _, m := range slices.Backward(keys(marks)) {
			v = strings.ReplaceAll(v, m, marks[m])
		}
		return v
	}
	return v
}
