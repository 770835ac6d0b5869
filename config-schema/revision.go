package configschema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// SetRevision returns the file of a deployment in which one environment has another target
// revision, of several sources joined by commas as in fleet.TargetRevisions. It changes the
// source's targetRevision if the deployment has no other environment, and else the override that
// names the environment, which it adds if there is none. Everything else stays as it is written,
// comments too. It refuses a file that it cannot change so, and returns one that declares the
// revision already as it is.
func SetRevision(f File, env fleet.EnvironmentName, revision string) (out []byte, err error) {
	defer func() {
		// a panic of the parser, which is third-party code: nothing is changed
		if recover() != nil {
			out, err = nil, errByHand
		}
	}()
	before := Decode(f)
	if len(before.Problems) > 0 && before.Declaration == nil {
		return nil, fmt.Errorf("%s: %s", before.Problems[0].Code, before.Problems[0].Message)
	}
	if before.Declaration == nil || before.Declaration.Deployment == nil {
		return nil, errors.New("the file declares no deployment")
	}
	e := editor{source: source{strings.Split(string(f.Bytes), "\n")}, root: tree(f.Bytes), env: env}
	spec := before.Declaration.Deployment
	if err := e.set(spec, revision); err != nil {
		return nil, err
	}
	changed := f
	changed.Bytes = []byte(strings.Join(e.lines, "\n"))
	after := Decode(changed)
	switch {
	case reflect.DeepEqual(Decode(f).Declaration.Deployment, spec):
		return f.Bytes, nil
	case after.Declaration == nil || !reflect.DeepEqual(after.Declaration.Deployment, spec):
		return nil, errByHand
	}
	return changed.Bytes, nil
}

var errByHand = errors.New("the file is written in a way that cannot be changed without changing " +
	"more; change targetRevision yourself")

// editor changes lines of a file. It changes the declaration in the same way: the file must then
// declare that.
type editor struct {
	source
	root node
	env  fleet.EnvironmentName
}

func (e *editor) set(spec *fleet.DeploymentSpec, revision string) error {
	own := slices.IndexFunc(spec.Overrides, func(o fleet.Override) bool {
		return o.Environment == e.env
	})
	pinned := slices.ContainsFunc(spec.Overrides, func(o fleet.Override) bool {
		return o.Source.TargetRevision != ""
	})
	only := slices.Equal(spec.Destination.Environments, []fleet.EnvironmentName{e.env})
	at := child(e.root, "spec")
	switch {
	case !pinned && len(spec.Sources) == 0 && spec.Source.TargetRevision == revision:
		return nil
	case only && !pinned && len(spec.Sources) > 0:
		return e.setSources(spec.Sources, child(at, "sources"), revision)
	case len(spec.Sources) > 0:
		return errors.New("it has several sources and several environments, or an override of a " +
			"targetRevision; declare the revisions yourself")
	case only && !pinned:
		spec.Source.TargetRevision = revision
		return e.scalar(child(child(at, "source"), "targetRevision"), revision)
	case own >= 0:
		return e.setOverride(&spec.Overrides[own], child(at, "overrides").Content[own], revision)
	}
	return e.addOverride(spec, at, revision)
}

func (e *editor) setSources(sources []fleet.Source, at node, revision string) error {
	revisions := strings.Split(revision, ",")
	if len(revisions) != len(sources) {
		return fmt.Errorf("it has %d sources, and there are %d revisions", len(sources),
			len(revisions))
	}
	for i := range sources {
		if sources[i].TargetRevision == revisions[i] {
			continue
		}
		sources[i].TargetRevision = revisions[i]
		if err := e.scalar(child(at.Content[i], "targetRevision"), revisions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *editor) setOverride(o *fleet.Override, at node, revision string) error {
	had, field := o.Source.TargetRevision, "targetRevision: "+scalarOf(revision)
	o.Source.TargetRevision = revision
	source := child(at, "source")
	switch {
	case had != "":
		return e.scalar(child(source, "targetRevision"), revision)
	case source != nil && flow(source):
		return e.splice(source, 1, 0, field+", ")
	case source != nil:
		return e.above(source.Content[0], field)
	case flow(at):
		name := child(at, "environment")
		length, err := e.length(name)
		if err != nil {
			return err
		}
		return e.splice(name, length, 0, ", source: {"+field+"}")
	}
	key := keyOf(at, "environment")
	return e.below(key.Line, pad(key.Column-1)+"source:", pad(key.Column+1)+field)
}

func (e *editor) addOverride(spec *fleet.DeploymentSpec, at node, revision string) error {
	o := fleet.Override{Environment: e.env}
	o.Source.TargetRevision = revision
	name, field := scalarOf(string(e.env)), "targetRevision: "+scalarOf(revision)
	list := child(at, "overrides")
	if list != nil && flow(list) {
		entry := "{environment: " + name + ", source: {" + field + "}}"
		if len(list.Content) > 0 {
			entry += ", "
		}
		spec.Overrides = append([]fleet.Override{o}, spec.Overrides...)
		return e.splice(list, 1, 0, entry)
	}
	if at == nil || flow(at) || at.Kind != yaml.MappingNode {
		return errByHand
	}
	spec.Overrides = append(spec.Overrides, o)
	entry := func(dash int) []string {
		return []string{pad(dash) + "- environment: " + name, pad(dash+2) + "source:",
			pad(dash+4) + field}
	}
	top, _ := e.parts(e.root, 0, len(e.lines))
	i := slices.IndexFunc(top, func(p part) bool { return p.key.Value == "spec" })
	fields, _ := e.parts(at, top[i].first+1, top[i].end)
	if list == nil {
		indent := at.Content[0].Column - 1
		return e.below(fields[len(fields)-1].end,
			append([]string{pad(indent) + "overrides:"}, entry(indent+2)...)...)
	}
	i = slices.IndexFunc(fields, func(p part) bool { return p.key.Value == "overrides" })
	items, _ := e.parts(list, fields[i].first+1, fields[i].end)
	return e.below(items[len(items)-1].end, entry(list.Column-1)...)
}

func flow(n node) bool { return n.Style&yaml.FlowStyle != 0 }

// scalar replaces a scalar on one line.
func (e *editor) scalar(n node, text string) error {
	length, err := e.length(n)
	if err != nil {
		return err
	}
	return e.splice(n, 0, length, scalarOf(text))
}

// length returns how many bytes a scalar on one line has there.
func (e *editor) length(n node) (int, error) {
	if n == nil || n.Kind != yaml.ScalarNode || n.Line < 1 || n.Line > len(e.lines) {
		return 0, errByHand
	}
	rest := e.from(n.Line-1, n.Column-1)
	for _, written := range []string{`"` + n.Value + `"`,
		"'" + strings.ReplaceAll(n.Value, "'", "''") + "'", n.Value} {
		quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0
		if (quoted == (written != n.Value)) && strings.HasPrefix(rest, written) {
			return len(written), nil
		}
	}
	return 0, errByHand
}

// splice replaces length bytes, offset bytes behind the beginning of a node.
func (e *editor) splice(n node, offset, length int, text string) error {
	at := n.Line - 1
	line := e.lines[at]
	begin := e.offset(at, n.Column-1) + offset
	if begin+length > len(line) {
		return errByHand
	}
	e.lines[at] = line[:begin] + text + line[begin+length:]
	return nil
}

// above adds a line above that of a key, as deep.
func (e *editor) above(key node, text string) error {
	return e.below(key.Line-1, pad(key.Column-1)+text)
}

// below adds lines below so many.
func (e *editor) below(n int, lines ...string) error {
	if n > 0 && strings.HasSuffix(e.lines[n-1], "\r") {
		for i := range lines {
			lines[i] += "\r"
		}
	}
	e.lines = slices.Insert(e.lines, n, lines...)
	return nil
}

// scalarOf writes a text as YAML reads it as a text everywhere: plain, or in quotes.
func scalarOf(text string) string {
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(text), &n); err == nil && len(n.Content) == 1 {
		if c := n.Content[0]; c.Kind == yaml.ScalarNode && c.Tag == "!!str" && c.Style == 0 &&
			c.Value == text && !strings.ContainsAny(text, ",[]{}#:") {
			return text
		}
	}
	return doubleQuoted(text)
}
