package configschema

import (
	"errors"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// SetEngineState returns the file of an Engine with another spec.state, in its canonical form. It
// keeps comments, and refuses a file that it cannot change without changing more.
func SetEngineState(text []byte, state fleet.EngineState) ([]byte, error) {
	text, err := Format(text) // which also makes sure that it parses
	if err != nil {
		return nil, err
	}
	root := tree(text)
	if kind := child(root, "kind"); kind == nil || kind.Value != string(fleet.KindEngine) {
		return nil, errors.New("the file declares no Engine")
	}
	spec := child(root, "spec")
	if spec == nil || spec.Kind != yaml.MappingNode || !block(spec) {
		return nil, errors.New("spec is not written as one field per line; write spec.state: " +
			string(state) + " yourself")
	}
	e := edit(text)
	if old := child(spec, "state"); old != nil {
		err = e.scalar(old, string(state))
	} else {
		e.below(keyOf(root, "spec").Line, pad(spec.Content[0].Column-1)+"state: "+string(state))
	}
	if err != nil {
		return nil, errStateByHand
	}
	out, err := Format(e.text())
	if err != nil {
		return nil, err
	}
	after := tree(out)
	if got := child(child(after, "spec"), "state"); got == nil || got.Value != string(state) {
		return nil, errStateByHand
	}
	return out, nil
}

var errStateByHand = errors.New("spec.state cannot be changed without changing more; write it " +
	"yourself")

// keyOf returns the key of a map's entry.
func keyOf(m node, name string) node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i]
		}
	}
	return nil
}
