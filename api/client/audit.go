package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

// Audit lists entries of the audit log, newest first.
func (l lists) Audit(ctx context.Context, f view.Filter, limit int) ([]audit.Entry, error) {
	return all[audit.Entry](ctx, l.conn, "audit", f, limit)
}

// AuditState is where the chain of the audit log begins and ends.
func (l lists) AuditState(ctx context.Context) (audit.State, error) {
	return one[audit.State](ctx, l.conn, "audit", "state")
}

// exportTries bounds the answers in a row that break without an entry.
const exportTries = 5

// ExportAudit calls handle with each sealed entry after the position, in the order of the chain,
// until the log ends or handle fails. raw is the entry's line. It continues answers that end or
// break after their last entry.
func (l lists) ExportAudit(ctx context.Context, f view.Filter, after int64,
	handle func(e audit.Entry, raw []byte) error) error {
	wait := firstTry
	for failed := 0; ; {
		last, err := l.conn.exportAudit(ctx, f, after, handle)
		var refusal *wire.Refusal
		var stopped *handleError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stopped):
			return stopped.err
		case errors.As(err, &refusal) && refusal.Status < 500 &&
			refusal.Status != http.StatusTooManyRequests:
			return refusal
		case err == nil && last == after:
			return nil
		case last > after:
			failed, wait = 0, firstTry
		default:
			if failed++; failed == exportTries {
				return err
			}
			if !pacing.Sleep(ctx, wait) {
				return ctx.Err()
			}
			wait = min(2*wait, lastTry)
		}
		after = last
	}
}

func (c *connection) exportAudit(ctx context.Context, f view.Filter, after int64,
	handle func(audit.Entry, []byte) error) (last int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	q := values(f)
	q.Set("after", strconv.FormatInt(after, 10))
	req, err := c.request(ctx, http.MethodGet, path("audit", "export"), q, nil)
	if err != nil {
		return after, err
	}
	req.Header.Set("Accept", "application/x-ndjson, application/problem+json")
	answer, err := c.http.Do(req)
	if err != nil {
		return after, c.unreachable(ctx, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return after, c.refused(answer)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var e audit.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Position <= after {
			return after, fmt.Errorf("%s: the export of the audit log has a line that is no entry "+
				"after %d: is it cut off?", c.server, after)
		}
		if err := handle(e, lines.Bytes()); err != nil {
			return after, &handleError{err}
		}
		after = e.Position
	}
	return after, lines.Err()
}

// entryValues are the parameters of a filter of the audit log.
func entryValues(f view.Filter) map[string]string {
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	pull := ""
	if f.Pull != 0 {
		pull = strconv.Itoa(f.Pull)
	}
	e := f.Entry
	return map[string]string{"actor": e.Actor, "action": e.Action, "subject": e.Subject,
		"operation": e.Operation, "since": moment(e.Since), "until": moment(e.Until),
		"text": e.Text, "pull": pull}
}
