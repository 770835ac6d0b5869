package githubtest

import (
	"cmp"
	"net/http"
	"slices"
)

// Deployment is a deployment of a commit, with its statuses in their order.
type Deployment struct {
	ID                        int64
	Commit, Task, Environment string
	Description               string
	Statuses                  []DeploymentStatus
	creator                   *Account
}

// DeploymentStatus is a status of a deployment.
type DeploymentStatus struct {
	ID                         int64
	State, Description, LogURL string
	AutoInactive               bool
	creator                    *Account
}

// State is the last state of the deployment, or "".
func (d Deployment) State() string {
	if len(d.Statuses) == 0 {
		return ""
	}
	return d.Statuses[len(d.Statuses)-1].State
}

// Deployments are the repository's deployments, in the order of their creation.
func (r *Repository) Deployments() (all []Deployment) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for _, d := range r.deployed {
		one := *d
		one.Statuses = slices.Clone(d.Statuses)
		all = append(all, one)
	}
	return all
}

func (s *Server) deploymentObject(d *Deployment) object {
	return object{"id": d.ID, "sha": d.Commit, "ref": d.Commit, "task": d.Task,
		"environment": d.Environment, "description": optional(d.Description),
		"creator": s.accountObject(d.creator), "payload": object{}}
}

func (s *Server) deploymentStatusObject(v DeploymentStatus) object {
	return object{"id": v.ID, "state": v.State, "description": v.Description,
		"log_url": v.LogURL, "creator": s.accountObject(v.creator)}
}

func listDeployments(s *Server, r *request) answer {
	if a, ok := r.may("deployments", "read", "read"); !ok {
		return a
	}
	q, list := r.URL.Query(), []object{}
	is := func(name, value string) bool {
		return q.Get(name) == "" || q.Get(name) == "none" || q.Get(name) == value
	}
	for _, d := range slices.Backward(r.repo.deployed) {
		if is("sha", d.Commit) && is("task", d.Task) && is("environment", d.Environment) {
			list = append(list, s.deploymentObject(d))
		}
	}
	return answer{status: http.StatusOK, list: list}
}

// postDeployment creates a deployment. GitHub merges the default branch into the ref, or waits for
// every status of the commit, unless the request turns that off.
func postDeployment(s *Server, r *request) answer {
	if a, ok := r.may("deployments", "write", "write"); !ok {
		return a
	}
	merge, off := r.body["auto_merge"].(bool)
	contexts, named := r.body["required_contexts"].([]any)
	if !off || merge {
		return problem(http.StatusConflict, "Conflict merging main into "+r.text("ref")+".")
	}
	if !named || len(contexts) > 0 {
		return problem(http.StatusConflict, "Conflict: Commit status checks failed for "+
			r.text("ref")+".")
	}
	d := &Deployment{ID: s.id(), Commit: r.text("ref"), Task: cmp.Or(r.text("task"), "deploy"),
		Environment: cmp.Or(r.text("environment"), "production"),
		Description: r.text("description"), creator: r.as()}
	r.repo.deployed = append(r.repo.deployed, d)
	return answer{status: http.StatusCreated, body: s.deploymentObject(d)}
}

// deployment is the one that the path names.
func (r *request) deployment() *Deployment {
	for _, d := range r.repo.deployed {
		if d.ID == r.number("deployment_id") {
			return d
		}
	}
	return nil
}

func listDeploymentStatuses(s *Server, r *request) answer {
	if a, ok := r.may("deployments", "read", "read"); !ok {
		return a
	}
	d := r.deployment()
	if d == nil {
		return notFound
	}
	list := []object{}
	for _, v := range slices.Backward(d.Statuses) {
		list = append(list, s.deploymentStatusObject(v))
	}
	return answer{status: http.StatusOK, list: list}
}

func postDeploymentStatus(s *Server, r *request) answer {
	if a, ok := r.may("deployments", "write", "write"); !ok {
		return a
	}
	d := r.deployment()
	if d == nil {
		return notFound
	}
	v := DeploymentStatus{ID: s.id(), State: r.text("state"), Description: r.text("description"),
		LogURL: r.text("log_url"), AutoInactive: true, creator: r.as()}
	if auto, ok := r.body["auto_inactive"].(bool); ok {
		v.AutoInactive = auto
	}
	if len([]rune(v.Description)) > 140 {
		return problem(http.StatusUnprocessableEntity,
			"description is too long (maximum is 140 characters)")
	}
	d.Statuses = append(d.Statuses, v)
	if v.State == "success" && v.AutoInactive {
		for _, other := range r.repo.deployed {
			if other != d && other.Environment == d.Environment && other.State() == "success" {
				other.Statuses = append(other.Statuses, DeploymentStatus{ID: s.id(),
					State: "inactive", creator: r.as()})
			}
		}
	}
	return answer{status: http.StatusCreated, body: s.deploymentStatusObject(v)}
}
