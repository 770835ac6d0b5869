package githubtest

import (
	"net/http"
	"slices"
)

// Ruleset is a ruleset that is in force on the branch main, of the repository itself.
type Ruleset struct {
	ID     int64
	rules  []object
	exempt []object
}

// Ruleset adds a ruleset, each rule in GitHub's words, such as {"type": "deletion"}, and its exempt
// actors.
func (r *Repository) Ruleset(exempt []map[string]any, rules ...map[string]any) *Ruleset {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	set := &Ruleset{ID: r.s.id(), rules: rules, exempt: exempt}
	r.rulesets = append(r.rulesets, set)
	return set
}

// Protect gives the branch main a branch protection in GitHub's words; nil takes it away.
func (r *Repository) Protect(protection map[string]any) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.classic = protection
}

// Merges changes a setting for merges, such as allow_rebase_merge.
func (r *Repository) Merges(setting string, on bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.merges[setting] = on
}

func listRules(_ *Server, r *request) answer {
	if a, ok := r.may("metadata", "read", "read"); !ok {
		return a
	}
	list := []object{}
	if r.inPath["branch"] != "main" {
		return answer{status: http.StatusOK, list: list}
	}
	for _, set := range r.repo.rulesets {
		for _, rule := range set.rules {
			shown := object{"ruleset_source_type": "Repository", "ruleset_source": r.repo.Name,
				"ruleset_id": set.ID}
			for name, v := range rule {
				shown[name] = v
			}
			list = append(list, shown)
		}
	}
	return answer{status: http.StatusOK, list: list}
}

func getRuleset(_ *Server, r *request) answer {
	if a, ok := r.may("metadata", "read", "read"); !ok {
		return a
	}
	at := slices.IndexFunc(r.repo.rulesets, func(set *Ruleset) bool {
		return set.ID == r.number("ruleset_id")
	})
	if at < 0 {
		return notFound
	}
	set := r.repo.rulesets[at]
	body := object{"id": set.ID, "name": "main", "target": "branch", "source_type": "Repository",
		"source": r.repo.Name, "enforcement": "active", "rules": set.rules}
	if _, ok := r.may("administration", "write", "admin"); ok {
		body["bypass_actors"] = append([]object{}, set.exempt...)
	}
	return answer{status: http.StatusOK, body: body}
}

// getBranch shows every reader whether the branch is protected, and the checks that the branch
// protection requires.
func getBranch(_ *Server, r *request) answer {
	if a, ok := r.may("contents", "read", "read"); !ok {
		return a
	}
	b := r.repo.branches[r.inPath["branch"]]
	if b == nil {
		return problem(http.StatusNotFound, "Branch not found")
	}
	if r.inPath["branch"] != "main" {
		return answer{status: http.StatusOK, body: object{"name": r.inPath["branch"],
			"commit": object{"sha": b.head}, "protected": false}}
	}
	required := object{"enforcement_level": "off", "contexts": []any{}, "checks": []any{}}
	if checks, ok := r.repo.classic["required_status_checks"].(object); ok {
		required = checks
	}
	return answer{status: http.StatusOK, body: object{
		"name": "main", "protected": r.repo.classic != nil || len(r.repo.rulesets) > 0,
		"protection": object{"enabled": r.repo.classic != nil, "required_status_checks": required},
	}}
}

func getProtection(_ *Server, r *request) answer {
	if a, ok := r.may("administration", "read", "admin"); !ok {
		if r.user != nil {
			return notFound
		}
		return a
	}
	if r.repo.classic == nil || r.inPath["branch"] != "main" {
		return problem(http.StatusNotFound, "Branch not protected")
	}
	return answer{status: http.StatusOK, body: r.repo.classic}
}
