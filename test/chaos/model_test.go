package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// model checks the invariants of a history under every fault. It knows the config repo's content,
// receives every write to an engine that succeeded, and remembers the emergency stop.
type model struct {
	mu      sync.Mutex
	apps    map[app]int    // in the config repo now: the version
	applied map[string]int // by Application: the highest version that was written
	names   map[string]app // by Application
	// deployments that a stranger changed on the branch: the version before
	intrusions map[app]int
	stopped    time.Time // when the emergency stop was in force for sure; zero: it is not
	writes     int
	last       time.Time // when the latest write was carried out
	violations []string
}

// app is one deployment in one environment.
type app struct{ tenant, name, environment string }

// stopReach is how long after a stop was confirmed a write may still arrive.
const stopReach = 5 * time.Second

func newModel() *model {
	return &model{apps: map[app]int{}, applied: map[string]int{}, names: map[string]app{},
		intrusions: map[app]int{}}
}

func (m *model) violated(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

// body is what the model reads of a write.
type body struct {
	Metadata struct {
		Labels, Annotations map[string]string
	}
	Spec struct {
		Project string
		Source  struct{ TargetRevision string }
	}
	StringData map[string]string
	Data       map[string][]byte
}

// wrote receives each write that an engine carried out. late: the history held it back, so that its
// sender may have been replaced long ago.
func (m *model) wrote(method, path string, content []byte, late bool) {
	kind, name := kindOf(path)
	if kind == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes++
	m.last = time.Now()
	if !m.stopped.IsZero() && time.Since(m.stopped) > stopReach && !late {
		m.broken("%s %s %s after the stop was in force for %s", method, kind, name,
			time.Since(m.stopped).Round(time.Millisecond))
	}
	if strings.Contains(string(content), unreviewed) {
		m.broken("%s %s %s has content without a review", method, kind, name)
	}
	if method == "DELETE" {
		if v, ok := m.intrusions[m.names[name]]; ok && v == m.applied[name] &&
			kind == "applications" {
			m.broken("DELETE of Application %s, whose removal has no review", name)
		}
		return
	}
	var b body
	if json.Unmarshal(content, &b) != nil {
		return
	}
	m.ownBytes(kind, name, b, content)
	labels := b.Metadata.Labels
	if kind == "applications" && labels["argosy.dev/deployment"] != "" {
		m.names[name] = app{labels["argosy.dev/tenant"], labels["argosy.dev/deployment"],
			labels["argosy.dev/environment"]}
	}
	version, ok := versionOf(b.Spec.Source.TargetRevision)
	if kind != "applications" || !ok {
		return
	}
	if before := m.applied[name]; version < before && !late {
		m.broken("Application %s went back from v%d to v%d", name, before, version)
	}
	m.applied[name] = max(m.applied[name], version)
}

// ownBytes: what is written for one tenant holds nothing of another's.
func (m *model) ownBytes(kind, name string, b body, content []byte) {
	tenant := b.Metadata.Labels["argosy.dev/tenant"]
	text := string(content)
	for _, value := range b.Data {
		text += string(value)
	}
	for _, other := range tenants {
		if tenant != "" && other != tenant && strings.Contains(text, canary(other)) {
			m.broken("%s %s of tenant %s holds the canary of tenant %s", kind, name, tenant, other)
		}
	}
}

func (m *model) broken(format string, args ...any) {
	m.violations = append(m.violations, fmt.Sprintf(format, args...))
}

func (m *model) stop(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = at
}

// set is the config repo's content after a commit.
func (m *model) set(tenant, name string, version int, environments ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	own := func(a app, _ int) bool { return a.tenant == tenant && a.name == name }
	maps.DeleteFunc(m.apps, own)
	maps.DeleteFunc(m.intrusions, own)
	for _, e := range environments {
		m.apps[app{tenant, name, e}] = version
	}
}

// intruded records a stranger's change of a deployment that the config repo still has.
func (m *model) intruded(tenant, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for a, version := range m.apps {
		if a.tenant == tenant && a.name == name {
			m.intrusions[a] = version
		}
	}
}

// deployments are those of the config repo, as tenant/name.
func (m *model) deployments() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]bool{}
	for a := range m.apps {
		names[a.tenant+"/"+a.name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (m *model) wanted() map[app]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.apps)
}

func (m *model) result() (violations []string, writes int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.violations), m.writes
}

// kindOf is the kind and name that a path writes; "" for what the rules are not about, such as the
// marker of an emergency stop.
func kindOf(path string) (kind, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		if slices.Contains([]string{"applications", "appprojects", "secrets"}, p) &&
			i+1 < len(parts) {
			return p, parts[i+1]
		}
	}
	return "", ""
}

func versionOf(revision string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(revision, "v"))
	return n, err == nil && strings.HasPrefix(revision, "v")
}
