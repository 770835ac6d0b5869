package argocd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"github.com/redis/go-redis/v9"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/inspect"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

var _ engine.Inspector = (*Engine)(nil)

// Limits of the reads of one engine's resources.
const (
	inspectsAtOnce = 4  // reads
	logsAtOnce     = 32 // streams of logs
	inspectWait    = 3 * time.Second
	// the connection to Argo CD's Redis is closed after that time without a read
	redisIdle = 3 * time.Minute
)

// inspection is what the reads of resources share: their limits, and one connection to Redis.
type inspection struct {
	reads, logs chan struct{}
	redis       *sharedRedis
}

func newInspection() inspection {
	return inspection{reads: make(chan struct{}, inspectsAtOnce),
		logs: make(chan struct{}, logsAtOnce), redis: &sharedRedis{}}
}

// sharedRedis is a client that is closed when it has been idle.
type sharedRedis struct {
	mu     sync.Mutex
	client *redis.Client
	users  int
	idle   *time.Timer
}

// enter takes a place. It waits no longer than inspectWait.
func enter(ctx context.Context, places chan struct{}) (leave func(), err error) {
	timer := time.NewTimer(inspectWait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, &mirror.InspectError{Kind: mirror.ErrInspectBusy,
		Text: "ask again in a few seconds"}
}

// subject is an Application on the engine, with what it was read by.
type subject struct {
	*v1alpha1.Application
	of   mirror.InspectedApplication
	name string // in the keys of Argo CD's cache
}

// inspecting calls read within the limits of the engine and of time, with the Application as the
// engine has it now.
func (e *Engine) inspecting(ctx context.Context, app mirror.InspectedApplication,
	read func(context.Context, *subject) error) error {
	ctx, cancel := context.WithTimeout(ctx, mirror.InspectTime)
	defer cancel()
	leave, err := enter(ctx, e.inspection.reads)
	if err != nil {
		return err
	}
	defer leave()
	s, err := e.subject(ctx, app)
	if err != nil {
		return err
	}
	return read(ctx, s)
}

// subject reads the Application. It must be ours, of the identity, and the one that the mirror
// knows.
func (e *Engine) subject(ctx context.Context, of mirror.InspectedApplication) (*subject, error) {
	object := of.Object
	if object == "" {
		object = of.Name
	}
	if err := e.places.check(object, of.ID.Tenant); err != nil {
		return nil, notThere(of, err)
	}
	app := &v1alpha1.Application{}
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.places.path(applications, object)}, app)
	switch {
	case codeOf(err) == http.StatusNotFound:
		return nil, notThere(of, err)
	case err != nil:
		return nil, e.unread("its Application", err)
	}
	labels := app.Labels
	is := fleet.ApplicationID{Tenant: fleet.TenantName(labels[labelTenant]),
		Deployment:  fleet.DeploymentName(labels[labelDeployment]),
		Environment: fleet.EnvironmentName(labels[labelEnvironment])}
	if labels[labelManagedBy] != managedBy || is != of.ID ||
		of.UID != "" && of.UID != string(app.UID) {
		return nil, notThere(of, errors.New("the object has another identity or UID"))
	}
	return &subject{Application: app, of: of,
		name: inspect.InstanceName(app, e.namespace)}, nil
}

func notThere(of mirror.InspectedApplication, cause error) error {
	return &mirror.InspectError{Kind: mirror.ErrNoTree, Text: fmt.Sprintf("engine %s does not "+
		"have Application %s as the mirror knows it; see `argosy get applications`", of.Engine,
		of.ID), Cause: cause}
}

// unread is the error of a failed read from the engine itself. Only the log gets the cause: it
// names parts of the platform.
func (e *Engine) unread(what string, err error) error {
	var known *mirror.InspectError
	if errors.As(err, &known) {
		return err
	}
	missing := codeOf(err) == http.StatusForbidden || errors.Is(err, instance.ErrRefused) ||
		errors.Is(err, engine.ErrRefused)
	if missing {
		return &mirror.InspectError{Kind: mirror.ErrInspectRefused, Text: fmt.Sprintf("engine %s "+
			"does not allow it (%s); the platform grants the rights of docs/resources.md", e.name,
			what), Cause: err}
	}
	return &mirror.InspectError{Kind: mirror.ErrInspectUnreachable, Text: fmt.Sprintf(
		"engine %s has not answered (%s)", e.name, what), Cause: err}
}

// cached calls read with Argo CD's cache. A failed connection is closed, so that the next read
// opens another one.
func (e *Engine) cached(ctx context.Context, s *subject, read func(inspect.Cache) error) error {
	client, done, err := e.sharedRedis(ctx)
	if err != nil {
		return e.unread("Argo CD's cache", err)
	}
	err = read(inspect.Cache{Redis: client})
	done(errors.Is(err, mirror.ErrInspectUnreachable))
	switch {
	case errors.Is(err, mirror.ErrNoTree):
		return &mirror.InspectError{Kind: mirror.ErrNoTree, Text: fmt.Sprintf("Application %s; "+
			"Argo CD has not compared it yet, or an hour has passed since without a change",
			s.of.ID)}
	case errors.Is(err, mirror.ErrInspectRefused):
		return err
	case err != nil:
		return e.unread("Argo CD's cache", err)
	}
	return nil
}

// sharedRedis returns the engine's client of Redis. done ends the use, and closes a broken one.
func (e *Engine) sharedRedis(ctx context.Context) (c *redis.Client, done func(broken bool),
	err error) {
	r := e.inspection.redis
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.client == nil {
		t, err := e.target()
		if err != nil {
			return nil, nil, err
		}
		params, err := t.ConfigMap(ctx, paramsName)
		if err != nil {
			return nil, nil, err
		}
		if r.client, err = e.openRedis(ctx, t, params); err != nil {
			return nil, nil, err
		}
	}
	if r.idle != nil {
		r.idle.Stop()
	}
	mine := r.client
	r.users++
	return mine, func(broken bool) { r.done(mine, broken) }, nil
}

func (r *sharedRedis) done(c *redis.Client, broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	switch {
	case broken && r.client == c:
		r.client = nil
		_ = c.Close() // others that use it fail, and open another one
	case r.users == 0 && r.client != nil:
		r.idle = time.AfterFunc(redisIdle, r.close)
	}
}

// close closes the client unless it is in use.
func (r *sharedRedis) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == 0 && r.client != nil {
		_ = r.client.Close() // it has no users
		r.client = nil
	}
}

// CloseInspection closes what the reads of resources keep open. The Engine may be used further.
func (e *Engine) CloseInspection() { e.inspection.redis.close() }

// treeOf reads the tree of an Application.
func (e *Engine) treeOf(ctx context.Context, s *subject) (t mirror.Tree, err error) {
	return t, e.cached(ctx, s, func(c inspect.Cache) error {
		from, err := c.Tree(ctx, s.name)
		if err == nil {
			t = inspect.Tree(s.Application, from)
		}
		return err
	})
}

// find returns a node of the tree. Nothing is read of an object that is not in it.
func (e *Engine) find(ctx context.Context, s *subject, ref mirror.ResourceRef) (
	n mirror.TreeNode, err error) {
	t, err := e.treeOf(ctx, s)
	if err != nil {
		return n, err
	}
	n, ok := inspect.Find(t, ref)
	if !ok {
		return n, &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: ref.String()}
	}
	return n, nil
}

// Tree returns the tree that Argo CD keeps for its UI.
func (e *Engine) Tree(ctx context.Context, app mirror.InspectedApplication) (t mirror.Tree,
	err error) {
	return t, e.inspecting(ctx, app, func(ctx context.Context, s *subject) (err error) {
		t, err = e.treeOf(ctx, s)
		return err
	})
}

// Diff returns the differences that Argo CD has found when it compared the Application last.
func (e *Engine) Diff(ctx context.Context, app mirror.InspectedApplication) (
	d mirror.ApplicationDiff, err error) {
	return d, e.inspecting(ctx, app, func(ctx context.Context, s *subject) error {
		return e.cached(ctx, s, func(c inspect.Cache) error {
			all, err := c.Managed(ctx, s.name)
			if err == nil {
				d, err = inspect.Diff(s.Application, all)
			}
			return err
		})
	})
}

// Syncs returns the syncs that the Application itself has a record of.
func (e *Engine) Syncs(ctx context.Context, app mirror.InspectedApplication) (
	all []mirror.PastSync, err error) {
	return all, e.inspecting(ctx, app, func(_ context.Context, s *subject) error {
		all = inspect.Syncs(s.Application)
		return nil
	})
}

// Resource returns a managed resource as Argo CD has compared it, and any other one of the tree as
// the cluster has it.
func (e *Engine) Resource(ctx context.Context, app mirror.InspectedApplication,
	ref mirror.ResourceRef) (d mirror.ResourceDetail, err error) {
	return d, e.inspecting(ctx, app, func(ctx context.Context, s *subject) error {
		n, err := e.find(ctx, s, ref)
		if err != nil {
			return err
		}
		if n.Managed {
			managed := false
			err := e.cached(ctx, s, func(c inspect.Cache) error {
				all, err := c.Managed(ctx, s.name)
				if err == nil {
					d, managed, err = inspect.Detail(all, n)
				}
				return err
			})
			if managed || err != nil {
				return err
			}
		}
		d, err = e.liveResource(ctx, s, n)
		return err
	})
}

// ResourceEvents returns the events that the cluster has of resources of the tree.
func (e *Engine) ResourceEvents(ctx context.Context, app mirror.InspectedApplication,
	ref *mirror.ResourceRef) (all []mirror.ResourceEvent, err error) {
	return all, e.inspecting(ctx, app, func(ctx context.Context, s *subject) error {
		t, err := e.treeOf(ctx, s)
		if err != nil {
			return err
		}
		of := t.Nodes
		if ref != nil {
			n, ok := inspect.Find(t, *ref)
			if !ok {
				return &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: ref.String()}
			}
			of = []mirror.TreeNode{n}
		}
		all, err = e.eventsOf(ctx, s, of)
		return err
	})
}

// Logs streams the log of a container of a Pod in the tree.
func (e *Engine) Logs(ctx context.Context, app mirror.InspectedApplication,
	r mirror.LogRequest, sink func([]mirror.LogLine) error) (mirror.LogEnd, error) {
	ctx, cancel := context.WithTimeout(ctx, mirror.MaxLogTime)
	defer cancel()
	leave, err := enter(ctx, e.inspection.logs)
	if err != nil {
		return "", err
	}
	defer leave()
	var stream *podLog
	err = e.inspecting(ctx, app, func(brief context.Context, s *subject) error {
		ref := r.Pod
		ref.Group, ref.Kind = "", "Pod"
		n, err := e.find(brief, s, ref)
		if err != nil {
			return err
		}
		if n.Group != "" {
			return &mirror.InspectError{Kind: mirror.ErrNotInTree, Text: ref.String()}
		}
		stream, err = e.openLog(brief, s, n, r)
		return err
	})
	if err != nil {
		return "", err
	}
	return stream.copy(ctx, sink)
}
