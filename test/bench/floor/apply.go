// Package floor does the minimum for a result by the plainest means: the product is compared with
// it.
package floor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"argosy.dev/argosy/test/bench/observe"
)

// Object is one object as it is applied.
type Object struct {
	Plural string
	Name   string
	Body   []byte
}

// Capture reads Argosy's objects back as they were applied: without what the API server added.
func Capture(ctx context.Context, p observe.Place) ([]Object, error) {
	var all []Object
	for _, plural := range []string{"appprojects", "secrets", "applications"} {
		err := p.List(ctx, plural, func(raw json.RawMessage) error {
			o, err := applied(plural, raw)
			all = append(all, o)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// kinds are what a LIST leaves out of its items.
var kinds = map[string][2]string{"appprojects": {"argoproj.io/v1alpha1", "AppProject"}, "secrets": {
	"v1", "Secret"}, "applications": {"argoproj.io/v1alpha1", "Application"}}

func applied(plural string, raw json.RawMessage) (Object, error) {
	var o map[string]any
	if err := json.Unmarshal(raw, &o); err != nil {
		return Object{}, err
	}
	o["apiVersion"], o["kind"] = kinds[plural][0], kinds[plural][1]
	delete(o, "status")
	metadata, ok := o["metadata"].(map[string]any)
	if !ok {
		return Object{}, fmt.Errorf("an object of %s has no metadata", plural)
	}
	for _, field := range []string{"namespace", "uid", "resourceVersion", "generation",
		"creationTimestamp", "managedFields"} {
		delete(metadata, field)
	}
	body, err := json.Marshal(o)
	return Object{Plural: plural, Name: fmt.Sprint(metadata["name"]), Body: body}, err
}

// Apply is the raw loop (F1): server-side applies of the objects, so many in flight, what
// Applications need before them.
func Apply(ctx context.Context, p observe.Place, objects []Object, inFlight int) error {
	for _, last := range []bool{false, true} {
		var next atomic.Int64
		var all sync.WaitGroup
		errs := make(chan error, inFlight)
		for range inFlight {
			all.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= len(objects) {
						return
					}
					if (objects[i].Plural == "applications") != last {
						continue
					}
					if err := One(ctx, p, objects[i]); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		all.Wait()
		close(errs)
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// One applies one object.
func One(ctx context.Context, p observe.Place, o Object) error {
	url := p.Server.Base + observe.Collection(p.Namespace, o.Plural) + "/" + o.Name +
		"?fieldManager=argosy&force=true&fieldValidation=Ignore"
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, url, bytes.NewReader(o.Body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/apply-patch+yaml")
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	resp, err := p.Server.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("apply %s %s: %s: %.300s", o.Plural, o.Name, resp.Status, answer)
	}
	return nil
}
