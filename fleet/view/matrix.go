package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// MatrixOf arranges the Applications of the deployments by environment. It is pure; rows are in the
// order of the deployments.
func MatrixOf(deployments []Deployment, applications []Application) Matrix {
	type id struct {
		tenant fleet.TenantName
		name   fleet.DeploymentName
	}
	columns := map[fleet.EnvironmentName]bool{}
	of := map[id]map[fleet.EnvironmentName]*MatrixVersion{}
	for _, a := range applications {
		row := id{a.Tenant, a.Deployment}
		if of[row] == nil {
			of[row] = map[fleet.EnvironmentName]*MatrixVersion{}
		}
		of[row][a.Environment] = &MatrixVersion{Environment: a.Environment, Engine: a.Engine,
			Version:        RunningVersion(a),
			TargetRevision: a.TargetRevision, SyncedRevision: a.SyncedRevision, Images: a.Images,
			Sync: a.Sync, Health: a.Health, Apply: a.Apply}
		columns[a.Environment] = true
	}
	m := Matrix{Environments: slices.SortedFunc(maps.Keys(columns), compareStages),
		Rows: make([]MatrixRow, 0, len(deployments))}
	if hidden := len(m.Environments) - MaxColumns; hidden > 0 {
		m.HiddenEnvironments, m.Environments = hidden, m.Environments[:MaxColumns]
	}
	for _, d := range deployments {
		row := MatrixRow{Tenant: d.Tenant, Deployment: d.Name,
			Versions: make([]*MatrixVersion, len(m.Environments))}
		for i, environment := range m.Environments {
			row.Versions[i] = of[id{d.Tenant, d.Name}][environment]
		}
		row.compare()
		m.Rows = append(m.Rows, row)
	}
	return m
}

// Applications returns the Applications of the row, with what the matrix shows of them.
func (r *MatrixRow) Applications() (all []Application) {
	for _, v := range r.Versions {
		if v != nil {
			all = append(all, Application{Tenant: r.Tenant, Deployment: r.Deployment,
				Environment: v.Environment, Engine: v.Engine, TargetRevision: v.TargetRevision,
				SyncedRevision: v.SyncedRevision, Images: v.Images, Sync: v.Sync,
				Health: v.Health, Apply: v.Apply})
		}
	}
	return all
}

// compare finds the usual version of the row, and what differs from the left.
func (r *MatrixRow) compare() {
	counts := map[string]int{}
	for _, v := range r.Versions {
		if v != nil && v.Version != "" {
			counts[v.Version]++
		}
	}
	most, several := 0, false
	for _, version := range slices.Sorted(maps.Keys(counts)) {
		switch n := counts[version]; {
		case n > most:
			r.Usual, most, several = version, n, false
		case n == most:
			several = true
		}
	}
	if several {
		r.Usual = ""
	}
	var left *MatrixVersion
	for _, v := range r.Versions {
		if v == nil {
			continue
		}
		v.Unusual = r.Usual != "" && v.Version != r.Usual
		if left != nil {
			v.Differs = v.differences(left)
		}
		left = v
	}
}

func (v *MatrixVersion) differences(from *MatrixVersion) (found []string) {
	for _, field := range []struct {
		name string
		same bool
	}{
		{"version", v.Version == from.Version},
		{"targetRevision", v.TargetRevision == from.TargetRevision},
		{"commit", v.SyncedRevision == from.SyncedRevision},
		{"images", slices.Equal(v.Images, from.Images)},
	} {
		if !field.same {
			found = append(found, field.name)
		}
	}
	return found
}

// RunningVersion returns the version that people know an Application by: the tag of the image that
// is named like the deployment, or of its only image; else the target revision if it contains a
// digit, as a tag or a chart's version does; else the synced commit, shortened; else the target
// revision.
func RunningVersion(a Application) string {
	if image := ownImage(a); image != "" {
		if _, tag := SplitImage(image); tag != "" {
			return tag
		}
	}
	commit := isCommit(a.TargetRevision)
	switch {
	case !commit && strings.ContainsAny(a.TargetRevision, "0123456789"):
		return a.TargetRevision
	case a.SyncedRevision != "":
		return fleet.Revision(a.SyncedRevision).Short()
	case commit:
		return fleet.Revision(a.TargetRevision).Short()
	}
	return a.TargetRevision
}

func isCommit(revision string) bool {
	return len(revision) == 40 && strings.Trim(revision, "0123456789abcdef") == ""
}

func ownImage(a Application) string {
	if len(a.Images) == 1 {
		return a.Images[0]
	}
	for _, image := range a.Images {
		repository, _ := SplitImage(image)
		if repository[strings.LastIndex(repository, "/")+1:] == string(a.Deployment) {
			return image
		}
	}
	return ""
}

// SplitImage returns the repository of an image and its tag; of an image without a tag, the
// beginning of its digest.
func SplitImage(image string) (repository, tag string) {
	image, digest, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		return image[:i], image[i+1:]
	}
	if _, hex, ok := strings.Cut(digest, ":"); ok {
		return image, hex[:min(len(hex), 12)]
	}
	return image, ""
}

// stages are words in the names of environments, in the order in which a version usually passes
// them. An environment that contains none of them follows.
var stages = [][]string{
	{"local", "sandbox", "dev", "development", "preview"}, {"ci", "test", "testing", "int"},
	{"qa", "uat", "acceptance", "demo"}, {"stage", "staging", "stg"},
	{"pre", "preprod", "preproduction", "canary"},
	{"prod", "production", "prd", "live"},
}

// compareStages orders environments by stage, then by name.
func compareStages(a, b fleet.EnvironmentName) int {
	return cmp.Or(cmp.Compare(stageOf(a), stageOf(b)), cmp.Compare(a, b))
}

func stageOf(name fleet.EnvironmentName) int {
	for word := range strings.SplitSeq(string(name), "-") {
		word = strings.TrimRight(word, "0123456789")
		for stage, words := range stages {
			if slices.Contains(words, word) {
				return stage
			}
		}
	}
	return len(stages)
}
