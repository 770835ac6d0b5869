package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/jsonpath"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

// selection is what the client chooses from a list, and in which order it shows it.
type selection struct {
	names     []string
	labels    string
	sortBy    string
	noHeaders bool

	selector k8slabels.Selector // nil: all
	sortKey  *jsonpath.JSONPath // nil: the order of the control plane
}

// labelled are the kinds whose objects have labels; an Application has those of its deployment.
var labelled = []string{"applications", "deployments", "environments"}

func (s *selection) addFlags(cmd *cobra.Command, r resource) {
	if slices.Contains(labelled, r.plural) {
		cmd.Flags().StringVarP(&s.labels, "selector", "l", "",
			"only with these labels, such as team=payments,tier!=dev")
	}
	cmd.Flags().StringVar(&s.sortBy, "sort-by", "",
		"a field of the JSON to sort by, such as .createdAt")
	cmd.Flags().BoolVar(&s.noHeaders, "no-headers", false, "print tables without their heads")
}

// parse checks the flags before anything is read.
func (s *selection) parse(r resource, names []string) error {
	s.names = names
	if s.labels != "" {
		selector, err := k8slabels.Parse(s.labels)
		if err != nil {
			return fmt.Errorf("--selector: %w", err)
		}
		s.selector = selector
	}
	if s.sortBy != "" {
		s.sortKey = jsonpath.New("sort-by").AllowMissingKeys(true)
		if err := s.sortKey.Parse(braced(s.sortBy)); err != nil {
			return fmt.Errorf("--sort-by: %w", err)
		}
	}
	if r.named == nil {
		return nil
	}
	for _, name := range names {
		if err := r.named(&view.Filter{}, name); err != nil {
			return err
		}
	}
	return nil
}

// list reads the list and selects. A name that the control plane can look up is one request of its
// own; the limit counts what is selected.
func (s *selection) list(ctx context.Context, c *client.Client, r resource, f view.Filter,
	limit int) (listing, error) {
	var found listing
	var err error
	switch {
	case len(s.names) == 0:
		most := limit
		if s.selector != nil {
			most = 0
		}
		found, err = r.list(ctx, c, f, most)
	case r.named == nil:
		found, err = r.list(ctx, c, f, 0)
	default:
		for _, name := range s.names {
			of := f
			_ = r.named(&of, name) // parse has checked it
			part, failed := r.list(ctx, c, of, 0)
			if failed != nil {
				return listing{}, failed
			}
			found.heads = part.heads
			found.entries = append(found.entries, part.entries...)
		}
	}
	if err != nil {
		return listing{}, err
	}
	if len(s.names) > 0 {
		found.entries = slices.DeleteFunc(found.entries, func(e entry) bool {
			return !slices.ContainsFunc(s.names, e.isNamed)
		})
	}
	if s.selector != nil {
		if err := s.byLabels(ctx, c, r, f, &found); err != nil {
			return listing{}, err
		}
	}
	if err := s.sort(found.entries); err != nil {
		return listing{}, err
	}
	if limit > 0 && len(found.entries) > limit {
		found.entries = found.entries[:limit]
	}
	return found, nil
}

const commitDigits = 40 // of a whole commit ID

// isNamed reports whether the name is the entry's; a commit may be shortened.
func (e entry) isNamed(name string) bool {
	return e.name == name || len(name) >= shortest && len(e.name) == commitDigits &&
		strings.HasPrefix(e.name, name)
}

// missing returns an error for each name that no object has.
func (s *selection) missing(r resource, found listing) error {
	var failed []error
	for _, name := range s.names {
		if !slices.ContainsFunc(found.entries, func(e entry) bool { return e.isNamed(name) }) {
			failed = append(failed, fmt.Errorf("%s %s: no such object, or not one that this "+
				"token may see; list all with `argosy get %s`", r.singular(), name, r.plural))
		}
	}
	return errors.Join(failed...)
}

func (s *selection) byLabels(ctx context.Context, c *client.Client, r resource, f view.Filter,
	found *listing) error {
	if r.plural == "applications" {
		deployments, err := c.Deployments(ctx, view.Filter{Tenant: f.Tenant,
			Deployment: f.Deployment}, 0)
		if err != nil {
			return err
		}
		labels := map[fleet.DeploymentID]map[string]string{}
		for _, d := range deployments {
			labels[fleet.DeploymentID{Tenant: d.Tenant, Name: d.Name}] = d.Labels
		}
		for i, e := range found.entries {
			if a, ok := e.item.(shownApplication); ok {
				found.entries[i].labels = labels[fleet.DeploymentID{Tenant: a.Tenant,
					Name: a.Deployment}]
			}
		}
	}
	found.entries = slices.DeleteFunc(found.entries, func(e entry) bool {
		return !s.selector.Matches(k8slabels.Set(e.labels))
	})
	return nil
}

// sort orders the entries by the field of --sort-by; entries without it come first.
func (s *selection) sort(entries []entry) error {
	if s.sortKey == nil {
		return nil
	}
	type keyed struct {
		entry
		key any
	}
	all := make([]keyed, len(entries))
	some := len(entries) == 0
	for i, e := range entries {
		generic, err := genericOf(e.item)
		if err != nil {
			return err
		}
		found, err := s.sortKey.FindResults(generic)
		if err != nil {
			return fmt.Errorf("--sort-by: %w", err)
		}
		all[i].entry = e
		if len(found) > 0 && len(found[0]) > 0 && found[0][0].CanInterface() {
			all[i].key = found[0][0].Interface()
			some = true
		}
	}
	if !some {
		return fmt.Errorf("--sort-by: no object has the field %s; -o json shows the fields",
			s.sortBy)
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compareFields(a.key, b.key) })
	for i, k := range all {
		entries[i] = k.entry
	}
	return nil
}

// compareFields compares two values of JSON: numbers by size, everything else by its text. Times
// are in UTC and one format, so that their text has their order.
func compareFields(a, b any) int {
	x, xIsNumber := number(a)
	y, yIsNumber := number(b)
	if xIsNumber && yIsNumber {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(fieldText(a), fieldText(b))
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

func fieldText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// labelsOf returns the labels of an item that has some of its own.
func labelsOf(item any) map[string]string {
	switch v := item.(type) {
	case view.Environment:
		return v.Labels
	case view.Deployment:
		return v.Labels
	}
	return nil
}

// The filters that select the object of a name.

func namedApplication(f *view.Filter, name string) error {
	id, err := applicationID(name)
	f.Tenant, f.Deployment, f.Environment = id.Tenant, id.Deployment, id.Environment
	return err
}

func namedEnvironment(f *view.Filter, name string) error {
	tenant, short, err := twoParts("environment", name)
	f.Tenant, f.Environment = tenant, fleet.EnvironmentName(short)
	return err
}

func namedDeployment(f *view.Filter, name string) error {
	tenant, short, err := twoParts("deployment", name)
	f.Tenant, f.Deployment = tenant, fleet.DeploymentName(short)
	return err
}

func namedSet(f *view.Filter, name string) error {
	tenant, short, err := twoParts("set", name)
	f.Tenant, f.Name = tenant, short
	return err
}

var queryField = regexp.MustCompile(`\bquery\.([a-z]+)\b`)

// withFlags names the flags in a refusal of the API, which names its parameters.
func withFlags(err error) error {
	var refused *wire.Refusal
	if !errors.As(err, &refused) || len(refused.Errors) == 0 {
		return err
	}
	named := *refused
	named.Errors = slices.Clone(refused.Errors)
	for i, e := range named.Errors {
		named.Errors[i] = queryField.ReplaceAllString(strings.TrimSpace(e), "--$1")
	}
	return &named
}
