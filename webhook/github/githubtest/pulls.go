package githubtest

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// Pull is a pull request.
type Pull struct {
	Number int
	Head   string // commit
	Merged string // the commit that the base has for it; "" as long as it is not merged
	Title  string
	Draft  bool
	Base   string // branch
	Body   string
	Ref    string // the head's branch

	repo     *Repository
	from     *Repository // where the head's branch is
	author   *Account
	open     bool
	mergedAt time.Time
	updated  time.Time
	commits  []string // of the base
	reviews  []*Review
}

// Review is a review of a pull request.
type Review struct {
	ID     int64
	State  string // APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED or PENDING
	commit string
	author *Account
	at     time.Time
}

// Open opens a pull request; from is the fork that has its branch, nil for the repository itself.
func (r *Repository) Open(author *Account, title string, from *Repository) *Pull {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if from == nil {
		from = r
	}
	r.number++
	p := &Pull{Number: r.number, Head: r.s.commit(), Title: title, Base: "main",
		Ref: "change", repo: r,
		from: from, author: author, open: true, updated: r.s.tick()}
	r.pulls = append(r.pulls, p)
	return p
}

// Pull gives the pull request with the number.
func (r *Repository) Pull(number int) *Pull {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.pull(int64(number))
}

func (r *Repository) pull(number int64) *Pull {
	for _, p := range r.pulls {
		if int64(p.Number) == number {
			return p
		}
	}
	return nil
}

// Push gives the pull request another head.
func (p *Pull) Push() string {
	p.repo.s.mu.Lock()
	defer p.repo.s.mu.Unlock()
	p.Head, p.updated = p.repo.s.commit(), p.repo.s.tick()
	return p.Head
}

// Merge merges the pull request as so many commits, of which the last is its merge commit.
func (p *Pull) Merge(commits int) []string {
	s := p.repo.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for range commits {
		p.commits = append(p.commits, s.commit())
	}
	p.open, p.Merged = false, p.commits[len(p.commits)-1]
	p.mergedAt = s.tick()
	p.updated = p.mergedAt
	return p.commits
}

// Close closes the pull request without a merge.
func (p *Pull) Close() {
	p.repo.s.mu.Lock()
	defer p.repo.s.mu.Unlock()
	p.open, p.updated = false, p.repo.s.tick()
}

// Review adds a review of the head as it is.
func (p *Pull) Review(author *Account, state string) *Review {
	s := p.repo.s
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &Review{ID: s.id(), State: state, commit: p.Head, author: author, at: s.tick()}
	p.reviews = append(p.reviews, v)
	return v
}

// Dismiss takes the newest review of the account back.
func (p *Pull) Dismiss(author int64) {
	p.repo.s.mu.Lock()
	defer p.repo.s.mu.Unlock()
	for _, v := range slices.Backward(p.reviews) {
		if v.author.ID == author {
			v.State = "DISMISSED"
			return
		}
	}
}

func (s *Server) pullObject(p *Pull) object {
	owner, _, _ := strings.Cut(p.repo.Name, "/")
	whose, _, _ := strings.Cut(p.from.Name, "/")
	author := s.accountObject(p.author)
	if author == nil {
		// as GitHub shows deleted accounts
		author = object{"id": int64(10137), "login": "ghost", "type": "User"}
	}
	out := object{
		"id": int64(p.Number) + p.repo.ID*1000, "number": p.Number, "title": p.Title,
		"body":  optional(p.Body),
		"draft": p.Draft, "state": "closed", "user": author,
		"html_url":   "https://github.test/" + p.repo.Name + "/pull/" + number(p.Number),
		"created_at": stamp(p.updated), "updated_at": stamp(p.updated),
		"head": object{"label": whose + ":" + p.Ref, "ref": p.Ref, "sha": p.Head,
			"repo": s.repositoryObject(p.from), "user": s.accountObject(p.from.owner)},
		"base": object{"label": owner + ":" + p.Base, "ref": p.Base, "sha": p.Head,
			"repo": s.repositoryObject(p.repo), "user": s.accountObject(p.repo.owner)},
	}
	switch {
	case p.open:
		out["state"], out["merge_commit_sha"] = "open", strings.Repeat("0", 40) // of a try
	case p.Merged != "":
		out["merged_at"], out["merge_commit_sha"], out["closed_at"] = stamp(p.mergedAt), p.Merged,
			stamp(p.mergedAt)
	}
	return out
}

func getPull(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "read", "read"); !ok {
		return a
	}
	p := r.repo.pull(r.number("pull_number"))
	if p == nil {
		return notFound
	}
	out := s.pullObject(p)
	out["merged"] = p.Merged != ""
	return answer{status: http.StatusOK, body: out}
}

func listPulls(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "read", "read"); !ok {
		return a
	}
	q := r.URL.Query()
	list := []object{}
	for _, p := range r.repo.pulls {
		wanted := q.Get("state") == "all" || p.open == (q.Get("state") != "closed")
		whose, _, _ := strings.Cut(p.from.Name, "/")
		if wanted && (q.Get("base") == "" || q.Get("base") == p.Base) &&
			(q.Get("head") == "" || q.Get("head") == whose+":"+p.Ref) {
			list = append(list, s.pullObject(p))
		}
	}
	if q.Get("direction") != "asc" {
		slices.Reverse(list)
	}
	return answer{status: http.StatusOK, list: list}
}

func listPullsOf(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "read", "read"); !ok {
		return a
	}
	list := []object{}
	for _, p := range r.repo.pulls {
		if slices.Contains(p.commits, r.inPath["commit_sha"]) || p.open &&
			p.Head == r.inPath["commit_sha"] {
			list = append(list, s.pullObject(p))
		}
	}
	return answer{status: http.StatusOK, list: list}
}

func listReviews(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "read", "read"); !ok {
		return a
	}
	p := r.repo.pull(r.number("pull_number"))
	if p == nil {
		return notFound
	}
	list := []object{}
	for _, v := range p.reviews {
		if v.State == "PENDING" && (r.user == nil || v.author.ID != r.user.ID) {
			continue
		}
		o := object{"id": v.ID, "user": s.accountObject(v.author), "state": v.State,
			"commit_id": v.commit}
		if v.State != "PENDING" {
			o["submitted_at"] = stamp(v.at)
		}
		list = append(list, o)
	}
	return answer{status: http.StatusOK, list: list}
}
