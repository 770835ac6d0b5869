package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/view"
)

func applicationPath(id fleet.ApplicationID, what string) string {
	return path("tenants", string(id.Tenant), "applications", string(id.Deployment),
		string(id.Environment), what)
}

// Tree returns the resources of an Application down to its Pods.
func (l lists) Tree(ctx context.Context, id fleet.ApplicationID) (t view.Tree, err error) {
	return t, l.conn.do(ctx, http.MethodGet, applicationPath(id, "tree"), nil, nil, &t)
}

// ApplicationDiff returns the resources that a sync would change.
func (l lists) ApplicationDiff(ctx context.Context, id fleet.ApplicationID) (
	d view.ApplicationDiff, err error) {
	return d, l.conn.do(ctx, http.MethodGet, applicationPath(id, "diff"), nil, nil, &d)
}

// Resource returns the manifests of one resource.
func (l lists) Resource(ctx context.Context, id fleet.ApplicationID, ref view.ResourceRef) (
	d view.ResourceDetail, err error) {
	return d, l.conn.do(ctx, http.MethodGet, applicationPath(id, "resource"), queryOf(ref), nil, &d)
}

// ResourceEvents returns the Events of one resource, or with nil of all, newest first.
func (l lists) ResourceEvents(ctx context.Context, id fleet.ApplicationID, ref *view.ResourceRef) (
	[]view.ResourceEvent, error) {
	var query url.Values
	if ref != nil {
		query = queryOf(*ref)
	}
	var found wire.List[view.ResourceEvent]
	err := l.conn.do(ctx, http.MethodGet, applicationPath(id, "resource-events"), query, nil,
		&found)
	return found.Items, err
}

// Syncs returns the last syncs of an Application, newest first.
func (l lists) Syncs(ctx context.Context, id fleet.ApplicationID) ([]view.PastSync, error) {
	var found wire.List[view.PastSync]
	err := l.conn.do(ctx, http.MethodGet, applicationPath(id, "syncs"), nil, nil, &found)
	return found.Items, err
}

func queryOf(ref view.ResourceRef) url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"group": ref.Group, "kind": ref.Kind,
		"namespace": ref.Namespace, "name": ref.Name, "uid": ref.UID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

// errLogBroke means that a stream of logs has ended without its last message.
var errLogBroke = errors.New("the stream of logs has broken off")

// Logs calls handle with the lines of a container as they come, and returns why the stream has
// ended.
func (l lists) Logs(ctx context.Context, id fleet.ApplicationID, r view.LogRequest,
	handle func([]view.LogLine) error) (view.LogEnd, error) {
	query := url.Values{"pod": {r.Pod.Name}}
	set := func(name, value string, is bool) {
		if is {
			query.Set(name, value)
		}
	}
	set("namespace", r.Pod.Namespace, r.Pod.Namespace != "")
	set("uid", r.Pod.UID, r.Pod.UID != "")
	set("container", r.Container, r.Container != "")
	set("follow", "true", r.Follow)
	set("previous", "true", r.Previous)
	set("since", strconv.Itoa(int(max(r.Since, time.Second)/time.Second)), r.Since > 0)
	set("tail", strconv.Itoa(r.Tail), r.Tail > 0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := l.conn.request(ctx, http.MethodGet, applicationPath(id, "logs"), query, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/x-ndjson, application/problem+json")
	answer, err := l.conn.http.Do(req)
	if err != nil {
		return "", l.conn.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", l.conn.refused(answer)
	}
	watchdog := time.AfterFunc(silence, cancel) // the server sends an empty line every 5 s
	defer watchdog.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLogMessage)
	for lines.Scan() {
		watchdog.Reset(silence)
		if len(lines.Bytes()) == 0 {
			continue
		}
		var m wire.LogMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return "", fmt.Errorf("%s: the log is not one of this API: %w", l.conn.server, err)
		}
		if m.Refused != nil {
			return "", m.Refused
		}
		if len(m.Lines) > 0 {
			if err := handle(m.Lines); err != nil {
				return "", err
			}
		}
		if m.End != "" {
			return m.End, nil
		}
	}
	return "", errors.Join(errLogBroke, lines.Err())
}

// maxLogMessage is larger than the longest message: 256 lines of 8 KiB, each byte of which JSON may
// escape with six.
const maxLogMessage = 16 << 20
