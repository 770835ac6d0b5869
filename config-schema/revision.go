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
	now, wanted := Decode(f), Decode(f).Declaration
	switch {
	case wanted != nil && wanted.Deployment != nil:
	case len(now.Problems) > 0:
		return nil, fmt.Errorf("%s: %s", now.Problems[0].Code, now.Problems[0].Message)
	default:
		return nil, errors.New("the file declares no deployment")
	}
	e := deploymentEditor{editor: edit(f.Bytes), root: tree(f.Bytes), env: env}
	if err := e.set(wanted.Deployment, revision); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(now.Declaration.Deployment, wanted.Deployment) {
		return f.Bytes, nil
	}
	f.Bytes = e.text()
	after := Decode(f).Declaration
	if after == nil || !reflect.DeepEqual(after.Deployment, wanted.Deployment) {
		return nil, errByHand
	}
	return f.Bytes, nil
}

var errByHand = errors.New("the file is written in a way that cannot be changed without changing " +
	"more; change targetRevision yourself")

// deploymentEditor changes the file of a deployment, and the declaration in the same way: the file
// must then declare that.
type deploymentEditor struct {
	editor
	root node
	env  fleet.EnvironmentName
}

func (e *deploymentEditor) set(spec *fleet.DeploymentSpec, revision string) error {
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

func (e *deploymentEditor) setSources(sources []fleet.Source, at node, revision string) error {
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

func (e *deploymentEditor) setOverride(o *fleet.Override, at node, revision string) error {
	had, field := o.Source.TargetRevision, "targetRevision: "+scalarOf(revision)
	o.Source.TargetRevision = revision
	source := child(at, "source")
	switch {
	case had != "":
		return e.scalar(child(source, "targetRevision"), revision)
	case source != nil && flow(source):
		return e.splice(source, 1, 0, field+", ")
	case source != nil:
		e.above(source.Content[0], field)
		return nil
	case flow(at):
		name := child(at, "environment")
		length, err := e.length(name)
		if err != nil {
			return err
		}
		return e.splice(name, length, 0, ", source: {"+field+"}")
	}
	key := keyOf(at, "environment")
	e.below(key.Line, pad(key.Column-1)+"source:", pad(key.Column+1)+field)
	return nil
}

func (e *deploymentEditor) addOverride(spec *fleet.DeploymentSpec, at node, revision string) error {
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
		e.below(fields[len(fields)-1].end,
			append([]string{pad(indent) + "overrides:"}, entry(indent+2)...)...)
		return nil
	}
	i = slices.IndexFunc(fields, func(p part) bool { return p.key.Value == "overrides" })
	items, _ := e.parts(list, fields[i].first+1, fields[i].end)
	e.below(items[len(items)-1].end, entry(list.Column-1)...)
	return nil
}
