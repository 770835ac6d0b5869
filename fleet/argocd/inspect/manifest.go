package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/rogpeppe/go-internal/diff"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/printable"
)

// state is one resource that an Application manages, as Argo CD has compared it, masked.
type state struct {
	ref    mirror.ResourceRef
	change mirror.ResourceChange // "": none
	// as YAML; live and desired are "" if they do not exist
	live, desired string
	diff          string
	masked, cut   bool
}

// read parses and masks a resource. Live and desired are the states that Argo CD has normalized, so
// that they differ only where Argo CD finds a difference.
func read(r *v1alpha1.ResourceDiff) (s state, err error) {
	s.ref = mirror.ResourceRef{Group: short(r.Group), Kind: short(r.Kind),
		Namespace: short(r.Namespace), Name: short(r.Name)}
	live, err := decode(r.LiveState)
	if err != nil {
		return s, fmt.Errorf("live state of %s: %w", s.ref, err)
	}
	target, err := decode(r.TargetState)
	if err != nil {
		return s, fmt.Errorf("desired state of %s: %w", s.ref, err)
	}
	before, after := live, target
	if live != nil && target != nil {
		if before, err = decode(r.NormalizedLiveState); err == nil {
			after, err = decode(r.PredictedLiveState)
		}
		if err != nil {
			return s, fmt.Errorf("compared state of %s: %w", s.ref, err)
		}
		if before == nil || after == nil {
			before, after = live, target
		}
	}
	if live != nil {
		s.ref.UID = uidOf(live)
	}
	s.shown(r, live, before, after)
	return s, nil
}

// shown fills the texts of a resource.
func (s *state) shown(r *v1alpha1.ResourceDiff, live, before, after map[string]any) {
	switch {
	case r.Hook:
	case live == nil && after != nil:
		s.change = mirror.ResourceCreated
	case live != nil && after == nil:
		s.change = mirror.ResourcePruned
	case live != nil && r.Modified:
		s.change = mirror.ResourceUpdated
	}
	apart := sameMap(live, before)
	if live != nil && !apart { // the live state itself keeps what Argo CD ignores
		s.masked = maskPair(r.Group, r.Kind, live, nil)
	}
	s.masked = maskPair(r.Group, r.Kind, before, after) || s.masked
	liveText, wholeLive := text(live)
	beforeText, wholeBefore := text(before)
	afterText, wholeAfter := text(after)
	s.live, s.desired, s.cut = liveText, afterText, !wholeLive || !wholeBefore || !wholeAfter
	if s.change != "" {
		var whole bool
		s.diff, whole = Unified(beforeText, afterText)
		s.cut = s.cut || !whole
	}
}

// sameMap reports whether both are the same map, not an equal one.
func sameMap(a, b map[string]any) bool {
	return a != nil && b != nil && fmt.Sprintf("%p", a) == fmt.Sprintf("%p", b)
}

func uidOf(o map[string]any) string {
	uid, _ := below(o, []string{"metadata"})["uid"].(string)
	return short(uid)
}

// decode parses a manifest; nil for null.
func decode(text string) (map[string]any, error) {
	if text == "" || text == "null" {
		return nil, nil
	}
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // whole numbers stay whole
	if err := d.Decode(&o); err != nil {
		return nil, fmt.Errorf("it is not a JSON object") // the parser's error quotes it
	}
	return o, nil
}

// text is the object as YAML, at most mirror.MaxManifestBytes; whole is false if it is cut off.
func text(o map[string]any) (yamlText string, whole bool) {
	if o == nil {
		return "", true
	}
	raw, err := json.Marshal(o)
	if err == nil {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err != nil {
		return "# it cannot be shown as YAML\n", false
	}
	return clipLines(string(raw))
}

func clipLines(s string) (string, bool) {
	if len(s) <= mirror.MaxManifestBytes {
		return s, true
	}
	s = printable.Cut(s, mirror.MaxManifestBytes-128, "")
	s = s[:strings.LastIndexByte(s, '\n')+1]
	return s + "# cut off here\n", false
}

// Unified returns the unified diff of two texts, without a head; "" if they are equal. It takes
// time in proportion to their size (an anchored diff).
func Unified(before, after string) (text string, whole bool) {
	all := diff.Diff("live", []byte(before), "desired", []byte(after))
	for range 3 { // "diff live desired", "--- live", "+++ desired"
		_, rest, _ := bytes.Cut(all, []byte("\n"))
		all = rest
	}
	return clipLines(string(all))
}

// Detail returns the manifests of a managed resource; false if the Application does not manage it.
func Detail(all []*v1alpha1.ResourceDiff, n mirror.TreeNode) (mirror.ResourceDetail, bool, error) {
	d := mirror.ResourceDetail{ResourceRef: n.ResourceRef, Version: n.Version}
	for _, r := range all {
		if (object{r.Group, r.Kind, r.Namespace, r.Name}) != objectOf(n.ResourceRef) {
			continue
		}
		s, err := read(r)
		if err != nil {
			return d, false, err
		}
		if s.ref.UID != "" && n.UID != "" && s.ref.UID != n.UID {
			return d, false, nil // the cache has another object of the name
		}
		d.Live, d.Desired, d.Diff = s.live, s.desired, s.diff
		d.Masked, d.Truncated = s.masked, s.cut
		if live, err := decode(r.LiveState); err == nil && isPod(n) {
			d.Containers = containers(live)
		}
		return d, true, nil
	}
	return d, false, nil
}

func isPod(n mirror.TreeNode) bool { return n.Group == "" && n.Kind == podKind }

// Live returns a resource that the Application does not manage, as the cluster has it.
func Live(n mirror.TreeNode, manifest map[string]any) mirror.ResourceDetail {
	d := mirror.ResourceDetail{ResourceRef: n.ResourceRef, Version: n.Version}
	if isPod(n) {
		d.Containers = containers(manifest)
	}
	d.Masked = maskPair(n.Group, n.Kind, manifest, nil)
	live, whole := text(manifest)
	d.Live, d.Truncated = live, !whole
	return d
}

// Diff returns the managed resources that a sync would change.
func Diff(app *v1alpha1.Application, all []*v1alpha1.ResourceDiff) (mirror.ApplicationDiff, error) {
	d := mirror.ApplicationDiff{Resources: []mirror.ResourceDiff{},
		ComparedAt: timeOf(app.Status.ReconciledAt)}
	size := 0
	for _, r := range all {
		if r.Hook {
			continue
		}
		s, err := read(r)
		if err != nil {
			return d, err
		}
		switch {
		case s.change == "":
			d.Same++
			continue
		case len(d.Resources) == mirror.MaxDiffs || size+len(s.diff) > mirror.MaxDiffBytes:
			d.More++
			continue
		}
		size += len(s.diff)
		d.Resources = append(d.Resources, mirror.ResourceDiff{ResourceRef: s.ref,
			Change: s.change, Diff: s.diff, Masked: s.masked, Truncated: s.cut})
	}
	slices.SortFunc(d.Resources, func(a, b mirror.ResourceDiff) int {
		return strings.Compare(a.Namespace+"\x00"+a.Kind+"\x00"+a.Name,
			b.Namespace+"\x00"+b.Kind+"\x00"+b.Name)
	})
	return d, nil
}
