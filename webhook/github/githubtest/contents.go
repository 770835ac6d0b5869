package githubtest

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// branch is a branch with its files.
type branch struct {
	head  string
	files map[string]string
}

// Write gives the branch main a file, and returns its commit.
func (r *Repository) Write(path, text string) string {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	main := r.branches["main"]
	main.files[path], main.head = text, r.s.commit()
	return main.head
}

// File is the text of a file of a branch; false if there is none.
func (r *Repository) File(branch, path string) (string, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	b := r.branches[branch]
	if b == nil {
		return "", false
	}
	text, ok := b.files[path]
	return text, ok
}

// Blob is the ID that Git gives a file with the text.
func Blob(text string) string {
	sum := sha1.Sum([]byte("blob " + strconv.Itoa(len(text)) + "\x00" + text))
	return hex.EncodeToString(sum[:])
}

func getContent(_ *Server, r *request) answer {
	if a, ok := r.may("contents", "read", "read"); !ok {
		return a
	}
	name := r.URL.Query().Get("ref")
	if name == "" {
		name = "main"
	}
	b, path := r.repo.branches[name], r.inPath["path"]
	if b == nil {
		return problem(http.StatusNotFound, "No commit found for the ref "+name)
	}
	text, ok := b.files[path]
	if !ok {
		return notFound
	}
	_, file, _ := strings.Cut(path, "/")
	return answer{status: http.StatusOK, body: object{"type": "file", "encoding": "base64",
		"size": len(text), "name": file, "path": path, "sha": Blob(text),
		"content": wrapped(base64.StdEncoding.EncodeToString([]byte(text))),
		"url":     "https://github.test/",
		"git_url": "https://github.test/", "html_url": "https://github.test/",
		"download_url": "https://github.test/", "_links": object{
			"git": "https://github.test/", "self": "https://github.test/",
			"html": "https://github.test/"}}}
}

// wrapped breaks a text into lines of 60 characters, as GitHub sends content.
func wrapped(text string) string {
	var lines strings.Builder
	for part := range slices.Chunk([]byte(text), 60) {
		lines.Write(part)
		lines.WriteByte('\n')
	}
	return lines.String()
}

func putContent(s *Server, r *request) answer {
	if a, ok := r.may("contents", "write", "write"); !ok {
		return a
	}
	name := r.text("branch")
	if name == "" {
		name = "main"
	}
	b, path := r.repo.branches[name], r.inPath["path"]
	if b == nil {
		return problem(http.StatusNotFound, "Branch "+name+" not found")
	}
	if was, ok := b.files[path]; ok && r.text("sha") != Blob(was) {
		return problem(http.StatusConflict, path+" does not match "+r.text("sha"))
	}
	text, err := base64.StdEncoding.DecodeString(r.text("content"))
	if err != nil {
		return problem(http.StatusUnprocessableEntity, "content is not valid Base64")
	}
	b.files[path], b.head = string(text), s.commit()
	for _, p := range r.repo.pulls {
		if p.open && p.from == r.repo && p.Ref == name {
			p.Head, p.updated = b.head, s.tick()
		}
	}
	return answer{status: http.StatusOK, body: object{"commit": object{"sha": b.head},
		"content": object{"path": path, "sha": Blob(string(text))}}}
}

func postRef(_ *Server, r *request) answer {
	if a, ok := r.may("contents", "write", "write"); !ok {
		return a
	}
	name, ok := strings.CutPrefix(r.text("ref"), "refs/heads/")
	if !ok || r.repo.branches[name] != nil {
		return problem(http.StatusUnprocessableEntity, "Reference already exists")
	}
	for _, b := range r.repo.branches {
		if b.head == r.text("sha") {
			r.repo.branches[name] = &branch{head: b.head, files: maps.Clone(b.files)}
			return answer{status: http.StatusCreated, body: object{"ref": r.text("ref"),
				"object": object{"type": "commit", "sha": b.head, "url": "https://github.test/"}}}
		}
	}
	return problem(http.StatusUnprocessableEntity, "Object does not exist")
}

func deleteRef(_ *Server, r *request) answer {
	if a, ok := r.may("contents", "write", "write"); !ok {
		return a
	}
	name, ok := strings.CutPrefix(r.inPath["ref"], "heads/")
	if !ok || r.repo.branches[name] == nil {
		return problem(http.StatusUnprocessableEntity, "Reference does not exist")
	}
	delete(r.repo.branches, name)
	return answer{status: http.StatusNoContent}
}

func postPull(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "write", "read"); !ok {
		return a
	}
	b := r.repo.branches[r.text("head")]
	if b == nil || r.repo.branches[r.text("base")] == nil {
		return problem(http.StatusUnprocessableEntity, "Validation Failed")
	}
	for _, p := range r.repo.pulls {
		if p.open && p.from == r.repo && p.Ref == r.text("head") {
			return problem(http.StatusUnprocessableEntity, "A pull request already exists for it")
		}
	}
	r.repo.number++
	p := &Pull{Number: r.repo.number, Head: b.head, Title: r.text("title"), Base: r.text("base"),
		Body: r.text("body"), Ref: r.text("head"), repo: r.repo, from: r.repo, author: r.as(),
		open: true, updated: s.tick()}
	r.repo.pulls = append(r.repo.pulls, p)
	return answer{status: http.StatusCreated, body: s.pullObject(p)}
}

func patchPull(s *Server, r *request) answer {
	if a, ok := r.may("pull_requests", "write", "write"); !ok {
		return a
	}
	p := r.repo.pull(r.number("pull_number"))
	if p == nil {
		return notFound
	}
	if text, given := r.body["title"].(string); given {
		p.Title = text
	}
	if text, given := r.body["body"].(string); given {
		p.Body = text
	}
	if r.text("state") == "closed" {
		p.open = false
	}
	p.updated = s.tick()
	return answer{status: http.StatusOK, body: s.pullObject(p)}
}
