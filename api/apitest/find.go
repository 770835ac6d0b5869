package apitest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

// labelsOf are the labels that a filter matches: those of the deployment over those of the
// environment.
func labelsOf(m *Mirror, a view.Application) map[string]string {
	labels := map[string]string{}
	for _, e := range m.Environments {
		if e.Tenant == a.Tenant && e.Name == a.Environment {
			for k, v := range e.Labels {
				labels[k] = v
			}
		}
	}
	for _, d := range m.Deployments {
		if d.Tenant == a.Tenant && d.Name == a.Deployment {
			for k, v := range d.Labels {
				labels[k] = v
			}
		}
	}
	return labels
}

// found reports whether an Application matches the filter's Labels, Text and Image.
func found(m *Mirror, f view.Filter, a view.Application) bool {
	id := fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
		Environment: a.Environment}
	return (f.Labels == nil || f.Labels.Matches(labelsOf(m, a))) &&
		contains(id.String(), f.Text) &&
		(f.Image == "" || f.Image == a.SyncedRevision ||
			slices.ContainsFunc(a.Images, func(image string) bool {
				repository, _ := view.SplitImage(image)
				return image == f.Image || repository == f.Image
			}))
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// Search implements api.Finder.
func (s *Store) Search(ctx context.Context, sc view.Scope, text string, limit int) (
	view.SearchResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return view.SearchResult{}, s.fail
	}
	result := view.SearchResult{Query: text, Hits: []view.Hit{}}
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return result, nil
	}
	for _, h := range s.hits(sc) {
		named := contains(h.Name, text) || h.Kind == view.HitPull && contains(h.Title, text)
		if h.Kind == view.HitRevision || h.Kind == view.HitCommit || h.Kind == view.HitOperation {
			named = strings.HasPrefix(strings.ToLower(h.Name), text)
		}
		if named {
			result.Hits = append(result.Hits, h)
		}
	}
	if len(result.Hits) > limit {
		result.Hits, result.More = result.Hits[:limit], true
	}
	return result, nil
}

// hits are all objects of a scope.
func (s *Store) hits(sc view.Scope) (all []view.Hit) {
	m := &s.m
	add := func(h view.Hit) {
		if is(sc.Tenant, h.Tenant) {
			all = append(all, h)
		}
	}
	for _, t := range m.Tenants {
		add(view.Hit{Kind: view.HitTenant, Tenant: t.Name, Name: string(t.Name)})
	}
	images, commits := map[string]int{}, map[string]int{}
	for _, a := range m.Applications {
		id := fleet.ApplicationID{Tenant: a.Tenant, Deployment: a.Deployment,
			Environment: a.Environment}
		add(view.Hit{Kind: view.HitApplication, Tenant: a.Tenant, Environment: a.Environment,
			Deployment: a.Deployment, Name: id.String()})
		if !is(sc.Tenant, a.Tenant) {
			continue
		}
		for _, image := range a.Images {
			images[image]++
		}
		if a.SyncedRevision != "" {
			commits[a.SyncedRevision]++
		}
	}
	for _, d := range m.Deployments {
		add(view.Hit{Kind: view.HitDeployment, Tenant: d.Tenant, Deployment: d.Name,
			Name: string(d.Name)})
	}
	for _, e := range m.Environments {
		add(view.Hit{Kind: view.HitEnvironment, Tenant: e.Tenant, Environment: e.Name,
			Name: string(e.Name), Title: string(e.Engine)})
	}
	for _, a := range m.Agents {
		add(view.Hit{Kind: view.HitAgent, Tenant: a.Tenant, Environment: a.Environment,
			Name: string(a.Engine)})
	}
	for _, v := range m.Sets {
		add(view.Hit{Kind: view.HitSet, Tenant: v.Tenant, Name: v.Name})
	}
	for _, o := range m.Operations {
		add(view.Hit{Kind: view.HitOperation, Tenant: o.Tenant, Name: o.ID, Title: o.Subject})
	}
	for _, p := range m.Pulls {
		if sc.Tenant == "" || slices.Contains(p.Tenants, sc.Tenant) {
			all = append(all, view.Hit{Kind: view.HitPull, Name: fmt.Sprint(p.Number),
				Title: p.Title})
		}
	}
	for image, n := range images {
		all = append(all, view.Hit{Kind: view.HitImage, Name: image, Applications: n})
	}
	for commit, n := range commits {
		all = append(all, view.Hit{Kind: view.HitCommit, Name: commit, Applications: n})
	}
	if sc.Tenant != "" {
		return all
	}
	for _, e := range m.Engines {
		add(view.Hit{Kind: view.HitEngine, Name: string(e.Name)})
	}
	for _, r := range m.Rings {
		add(view.Hit{Kind: view.HitRing, Name: r.Name})
	}
	for _, p := range m.Pools {
		add(view.Hit{Kind: view.HitPool, Name: p.Name})
	}
	for _, r := range m.Revisions {
		add(view.Hit{Kind: view.HitRevision, Name: string(r.Revision), Title: r.Subject})
	}
	return all
}

// Matrix implements api.Finder.
func (s *Store) Matrix(ctx context.Context, sc view.Scope, f view.Filter, p view.Page) (
	view.Matrix, error) {
	deployments, next, err := s.Deployments(ctx, sc, f, p)
	if err != nil {
		return view.Matrix{}, err
	}
	var applications []view.Application
	for _, d := range deployments {
		of := view.Filter{Tenant: d.Tenant, Deployment: d.Name, Environment: f.Environment}
		more, _, err := s.Applications(ctx, sc, of, view.Page{Limit: 1000})
		if err != nil {
			return view.Matrix{}, err
		}
		applications = append(applications, more...)
	}
	m := view.MatrixOf(deployments, applications)
	m.Next = next
	return m, nil
}

// StateCounts implements api.Finder.
func (s *Store) StateCounts(ctx context.Context, sc view.Scope, f view.Filter) (
	[]view.StateCount, error) {
	narrow := view.Filter{Tenant: f.Tenant, Deployment: f.Deployment, Revision: f.Revision,
		Labels: f.Labels, Text: f.Text, Image: f.Image}
	all, _, err := s.Applications(ctx, sc, narrow, view.Page{Limit: 1 << 20})
	counts := make([]view.StateCount, len(all))
	for i, a := range all {
		counts[i] = view.StateCount{Tenant: a.Tenant, Environment: a.Environment,
			Engine: a.Engine, Sync: a.Sync, Health: a.Health, Apply: a.Apply, Count: 1}
	}
	return counts, err
}

// Changes implements api.Finder.
func (s *Store) Changes(_ context.Context, sc view.Scope, f view.Filter, p view.Page) (
	[]view.Change, string, error) {
	return listing(s, func(m *Mirror) (all []view.Change) {
		for _, a := range m.Applications {
			c := view.Change{Revision: a.Revision, Engine: a.Engine,
				Kind: fleet.ObjectApplication, Name: a.Name, Tenant: a.Tenant,
				Environment: a.Environment, Deployment: a.Deployment, Action: "update",
				Apply: a.Apply, Message: a.ApplyMessage}
			if a.CreatedAt.Equal(a.ChangedAt) {
				c.Action = "create"
			}
			if a.Apply == mirror.ApplyDeleting {
				c.Action = "delete"
			}
			all = append(all, c)
		}
		return all
	}, func(c view.Change) string { return string(c.Engine) + "/" + c.Name },
		func(c view.Change) bool {
			return is(sc.Tenant, c.Tenant) && is(f.Tenant, c.Tenant) && is(f.Revision, c.Revision)
		}, p)
}
