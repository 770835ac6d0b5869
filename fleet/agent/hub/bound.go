package hub

import (
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet/mirror"
)

// An agent's answer keeps the bounds of package mirror, whatever the agent sends: readers rely on
// them.

// cut shortens a text to most bytes of valid UTF-8.
func cut(text *string, most int) (shortened bool) {
	if len(*text) > most {
		*text, shortened = strings.ToValidUTF8((*text)[:most], ""), true
	}
	if !utf8.ValidString(*text) {
		*text = strings.ToValidUTF8(*text, "\uFFFD")
		if len(*text) > most {
			*text = strings.ToValidUTF8((*text)[:most], "")
		}
	}
	return shortened
}

func cutAll(most int, texts ...*string) {
	for _, t := range texts {
		cut(t, most)
	}
}

// limit shortens a list and adds what it leaves out to more.
func limit[T any](list *[]T, most int, more *int) {
	left := len(*list) - most
	if more != nil {
		*more = clamp(*more, maxObjects)
	}
	if left <= 0 {
		return
	}
	*list = (*list)[:most]
	if more != nil {
		*more = clamp(*more+left, maxObjects)
	}
}

func boundRef(r *mirror.ResourceRef) {
	cutAll(maxName, &r.Group, &r.Kind, &r.Namespace, &r.Name, &r.UID)
}

// boundTree keeps nodes that follow their parent: a tree without cycles.
func boundTree(t *mirror.Tree) {
	limit(&t.Nodes, mirror.MaxTreeNodes, &t.More)
	for i := range t.Nodes {
		n := &t.Nodes[i]
		boundRef(&n.ResourceRef)
		cutAll(maxName, &n.Version, (*string)(&n.Sync), (*string)(&n.Health), &n.Ready,
			&n.Reason, &n.Revision)
		cut(&n.Message, mirror.MaxMessageBytes)
		limit(&n.Images, mirror.MaxImages, nil)
		for j := range n.Images {
			cut(&n.Images[j], maxURL)
		}
		n.Restarts = clamp(n.Restarts, maxObjects)
		if n.Parent < 0 || n.Parent >= i {
			n.Parent, n.Depth = -1, 0
			continue
		}
		n.Depth = t.Nodes[n.Parent].Depth + 1
	}
}

func boundResource(d *mirror.ResourceDetail) {
	boundRef(&d.ResourceRef)
	cut(&d.Version, maxName)
	for _, text := range []*string{&d.Live, &d.Desired, &d.Diff} {
		if cut(text, mirror.MaxManifestBytes) {
			d.Truncated = true
		}
	}
	cut(&d.Note, mirror.MaxMessageBytes)
	limit(&d.Containers, maxContainers, nil)
	for i := range d.Containers {
		c := &d.Containers[i]
		cutAll(maxName, &c.Name, &c.State, &c.Reason)
		cut(&c.Image, maxURL)
		cutAll(mirror.MaxMessageBytes, &c.Message, &c.Last)
		c.Restarts = clamp(c.Restarts, maxObjects)
	}
}

const maxContainers = 256 // of one Pod

func boundDiff(d *mirror.ApplicationDiff) {
	limit(&d.Resources, mirror.MaxDiffs, &d.More)
	d.Same = clamp(d.Same, maxObjects)
	left := mirror.MaxDiffBytes
	for i := range d.Resources {
		r := &d.Resources[i]
		boundRef(&r.ResourceRef)
		cut((*string)(&r.Change), maxName)
		if cut(&r.Diff, min(mirror.MaxManifestBytes, left)) {
			r.Truncated = true
		}
		left -= len(r.Diff)
	}
}

func boundEvents(all *[]mirror.ResourceEvent) {
	limit(all, mirror.MaxEvents, nil)
	for i := range *all {
		e := &(*all)[i]
		boundRef(&e.Resource)
		cutAll(maxName, &e.Type, &e.Reason, &e.Source)
		cut(&e.Message, mirror.MaxMessageBytes)
		e.Count = clamp(e.Count, maxObjects)
	}
}

func boundSyncs(all *[]mirror.PastSync) {
	limit(all, mirror.MaxSyncs, nil)
	for i := range *all {
		p := &(*all)[i]
		limit(&p.Revisions, mirror.MaxImages, nil)
		for j := range p.Revisions {
			cut(&p.Revisions[j], maxText)
		}
		cutAll(maxText, &p.By, &p.Phase)
		cut(&p.Message, mirror.MaxMessageBytes)
		limit(&p.Results, mirror.MaxSyncResults, &p.More)
		for j := range p.Results {
			r := &p.Results[j]
			boundRef(&r.ResourceRef)
			cutAll(maxName, &r.Status, &r.Hook)
			cut(&r.Message, mirror.MaxMessageBytes)
		}
	}
}

// boundLines keeps lines of at most left bytes together, and reports whether there were more.
func boundLines(lines []mirror.LogLine, left int) (kept []mirror.LogLine, over bool) {
	for i := range lines {
		if cut(&lines[i].Text, mirror.MaxLogLineBytes) {
			lines[i].Truncated = true
		}
		if left -= len(lines[i].Text); left < 0 {
			return lines[:i], true
		}
	}
	return lines, false
}
