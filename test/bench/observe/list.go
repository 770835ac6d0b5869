package observe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"argosy.dev/argosy/test/bench/corpus"
)

// page is how many objects a LIST asks for at a time.
const page = 2000

// Get reads one path and returns the body.
func (s *Server) Get(ctx context.Context, path string) ([]byte, error) {
	return s.send(ctx, http.MethodGet, path, "", nil)
}

// send makes one request and refuses every answer but a good one.
func (s *Server) send(ctx context.Context, method, path, contentType string,
	body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.Base+path, body)
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %.300s", method, path, resp.Status, answer)
	}
	return answer, nil
}

// List visits the objects of Argosy in a collection, as raw JSON.
func (p Place) List(ctx context.Context, plural string, visit func(json.RawMessage) error) error {
	query := url.Values{"limit": {fmt.Sprint(page)}, "labelSelector": {
		"app.kubernetes.io/managed-by=argosy"}}
	for {
		body, err := p.Server.Get(ctx, Collection(p.Namespace, plural)+"?"+query.Encode())
		if err != nil {
			return err
		}
		var list struct {
			Metadata struct{ Continue string }
			Items    []json.RawMessage
		}
		if err := json.Unmarshal(body, &list); err != nil {
			return fmt.Errorf("LIST %s of %s: %w", plural, p.Namespace, err)
		}
		for _, item := range list.Items {
			if err := visit(item); err != nil {
				return err
			}
		}
		if list.Metadata.Continue == "" {
			return nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
}

// Clear removes Argosy's objects from a namespace.
func (p Place) Clear(ctx context.Context) error {
	for _, plural := range []string{"applications", "secrets", "appprojects"} {
		path := Collection(p.Namespace, plural) + "?labelSelector=" +
			url.QueryEscape("app.kubernetes.io/managed-by=argosy")
		if _, err := p.Server.send(ctx, http.MethodDelete, path, "", nil); err != nil {
			return err
		}
		left := 0
		if err := p.List(ctx, plural, func(json.RawMessage) error {
			left++
			return nil
		}); err != nil {
			return err
		}
		if left > 0 {
			return fmt.Errorf("%d %s are left in %s", left, plural, p.Namespace)
		}
	}
	return nil
}

// Check lists the Applications of all places and compares them with what was asked for. The result
// of a run is void if they differ.
func Check(ctx context.Context, wanted []corpus.Wanted, places ...Place) error {
	have, want := map[string]string{}, map[string]string{}
	for _, w := range wanted {
		want[w.Namespace+"/"+w.Key()] = line(w)
	}
	for _, p := range places {
		err := p.List(ctx, "applications", func(raw json.RawMessage) error {
			var a application
			if err := json.Unmarshal(raw, &a); err != nil {
				return err
			}
			w := a.wanted(p.Namespace)
			if have[w.Namespace+"/"+w.Key()] != "" {
				return fmt.Errorf("void: two Applications of %s in %s", w.Key(), p.Namespace)
			}
			have[w.Namespace+"/"+w.Key()] = line(w)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if a, b := digest(want), digest(have); a != b {
		return fmt.Errorf("void: asked for %d Applications (sha256 %.12s), %d exist (%.12s)%s",
			len(want), a, len(have), b, firstDifference(want, have))
	}
	return nil
}

func (a *application) wanted(namespace string) corpus.Wanted {
	labels, s := a.Metadata.Labels, a.Spec.Source
	return corpus.Wanted{
		Namespace: namespace, Tenant: labels["argosy.dev/tenant"],
		Environment: labels["argosy.dev/environment"], Deployment: labels["argosy.dev/deployment"],
		RepoURL: s.RepoURL, Path: s.Path, Revision: s.TargetRevision, Images: s.Kustomize.Images,
		Target: a.Spec.Destination.Namespace,
		Automated: a.Spec.SyncPolicy.Automated != nil && a.Spec.SyncPolicy.Automated.Prune &&
			a.Spec.SyncPolicy.Automated.SelfHeal,
	}
}

func line(w corpus.Wanted) string {
	b, err := json.Marshal(w)
	if err != nil {
		panic(err) // strings only
	}
	return string(b)
}

func digest(lines map[string]string) string {
	all := make([]string, 0, len(lines))
	for _, l := range lines {
		all = append(all, l)
	}
	slices.Sort(all)
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:])
}

func firstDifference(want, have map[string]string) string {
	for key, w := range want {
		if have[key] != w {
			return fmt.Sprintf("; asked for %s\n      found %s", w, have[key])
		}
	}
	for key, h := range have {
		if want[key] == "" {
			return "; not asked for: " + h
		}
	}
	return ""
}
