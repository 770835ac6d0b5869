package main

import (
	"fmt"
	"regexp"
	"strings"

	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const resourceHelp = "KIND/NAME, or KIND.GROUP/NAMESPACE/NAME between several"

var (
	resourceKind  = regexp.MustCompile(`^[A-Za-z0-9]{1,63}$`)
	resourceGroup = regexp.MustCompile(`^[a-z0-9.-]{0,253}$`)
	resourcePart  = regexp.MustCompile(`^[^/\s]{1,253}$`)
)

// resourceName is what --resource names. Only an exact one has a certain group, which is the core
// group if it is empty.
type resourceName struct {
	view.ResourceRef
	exact bool
}

// parseResource reads KIND[.GROUP]/[NAMESPACE/]NAME, or GROUP:KIND:[NAMESPACE/]NAME as the CLI of
// Argo CD writes it. A colon before the first slash is of the second form: names may have colons.
func parseResource(text string) (r resourceName, err error) {
	path := ""
	if before, _, ok := strings.Cut(text, ":"); ok && !strings.Contains(before, "/") {
		parts := strings.SplitN(text, ":", 3)
		if len(parts) == 3 {
			r.Group, r.Kind, path, r.exact = parts[0], parts[1], parts[2], true
		}
	} else {
		r.Kind, path, _ = strings.Cut(text, "/")
		r.Kind, r.Group, r.exact = strings.Cut(r.Kind, ".")
	}
	r.Name = path
	namespace, name, inNamespace := strings.Cut(path, "/")
	if inNamespace {
		r.Namespace, r.Name = namespace, name
	}
	if !resourceKind.MatchString(r.Kind) || !resourceGroup.MatchString(r.Group) ||
		!resourcePart.MatchString(r.Name) || inNamespace && !resourcePart.MatchString(namespace) {
		return resourceName{}, fmt.Errorf("--resource %q: write KIND/NAME, such as "+
			"Deployment/checkout, or KIND.GROUP/NAMESPACE/NAME", text)
	}
	return r, nil
}

// String returns the name as parseResource reads it.
func (r resourceName) String() string {
	path := r.Name
	if r.Namespace != "" {
		path = r.Namespace + "/" + r.Name
	}
	switch {
	case r.Group != "":
		return r.Kind + "." + r.Group + "/" + path
	case r.exact:
		return ":" + r.Kind + ":" + path
	}
	return r.Kind + "/" + path
}

// findNode returns the node that a person means. Kinds are compared without case.
func findNode(t view.Tree, want resourceName) (int, error) {
	found := -1
	for i, n := range t.Nodes {
		if !strings.EqualFold(n.Kind, want.Kind) || n.Name != want.Name ||
			want.Namespace != "" && n.Namespace != want.Namespace ||
			want.exact && n.Group != want.Group {
			continue
		}
		if found >= 0 {
			return 0, fmt.Errorf("--resource %s: several resources have that kind and name; write "+
				"KIND.GROUP/NAMESPACE/NAME", want)
		}
		found = i
	}
	if found < 0 {
		return 0, fmt.Errorf("--resource %s: it is no resource of the Application; `argosy tree` "+
			"lists them", want)
	}
	return found, nil
}

// parseResources reads the values of a --resource that may be repeated.
func parseResources(texts []string) ([]resourceName, error) {
	var all []resourceName
	for _, text := range texts {
		r, err := parseResource(text)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// actedOn returns the resources of an action. One without a group is looked up in the tree of the
// Application, which is read once at most.
func actedOn(names []resourceName, tree func() (view.Tree, error)) ([]mirror.ActionResource,
	error) {
	var out []mirror.ActionResource
	var known *view.Tree
	for _, r := range names {
		if !r.exact && known == nil {
			t, err := tree()
			if err != nil {
				return nil, fmt.Errorf("--resource %s has no group: %w; or write "+
					"GROUP:KIND:[NAMESPACE/]NAME", r, err)
			}
			known = &t
		}
		if !r.exact {
			at, err := findNode(*known, r)
			if err != nil {
				return nil, fmt.Errorf("%w; name a new one as GROUP:KIND:[NAMESPACE/]NAME", err)
			}
			r.ResourceRef = known.Nodes[at].ResourceRef
		}
		out = append(out, mirror.ActionResource{Group: r.Group, Kind: r.Kind,
			Namespace: r.Namespace, Name: r.Name})
	}
	return out, nil
}
