package hub

import (
	"bufio"
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	snapshotReadTimeout = time.Minute // to read every row
	snapshotChunk       = 32 << 10    // bytes per write, each with its own deadline
)

// snapshotRows holds every row of an engine at one moment.
type snapshotRows struct {
	rows       *spool
	withSecret map[int]mirror.Row // rows with a credential, by index
	digest     *agent.Digester
	count      int
	cursor     int64
	encoded    bytes.Buffer
}

// snapshot serves PathSnapshot. It opens a session, as a stream does, and so gets the epoch of the
// stream that the same process opens next. It closes the session again: an agent counts as
// connected once it has a stream.
func (h *Hub) snapshot(w http.ResponseWriter, r *http.Request) error {
	control := clearDeadlines(w, r)
	who, session, err := h.authenticateGet(r, agent.PathSnapshot)
	if err != nil {
		return err
	}
	h.feed.awaitConfirmed(r.Context())
	if h.feed.confirmedLife() == "" {
		return unconfirmed()
	}
	opening, err := h.open(r.Context(), who, session)
	if err != nil {
		return err
	}
	defer h.close(r.Context(), opening, session)
	if opening.Stale || !h.feed.isConfirmed(opening.Lease.Life) {
		return unconfirmed()
	}
	return h.snapshots.run(r.Context(), func() error {
		all, err := h.readSnapshot(r.Context(), opening)
		if err != nil {
			return err
		}
		out := &deadlineWriter{w: w, control: control}
		if err := h.sendSnapshot(r.Context(), out, opening, all); err != nil {
			h.log.WarnContext(r.Context(), "failed to send a snapshot", "engine",
				opening.Agent.Engine,
				"rows", all.count, "error", err)
			return errCut
		}
		return nil
	})
}

// readSnapshot reads the rows and releases the store.
func (h *Hub) readSnapshot(ctx context.Context, opening registry.Opening) (*snapshotRows, error) {
	to := opening.Agent
	ctx, cancel := context.WithTimeout(ctx, snapshotReadTimeout)
	defer cancel()
	all := &snapshotRows{
		rows: newSpool(agent.MaxSnapshot - 1<<20), withSecret: map[int]mirror.Row{},
		digest: agent.NewDigester()}
	err := h.reads.run(ctx, func() (err error) {
		all.cursor, err = h.store.AgentRows(ctx, to.Engine, func(r mirror.Row) error {
			if r.Life != opening.Lease.Life {
				return unconfirmed()
			}
			return all.add(to, r)
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot of engine %s: %w", to.Engine, err)
	}
	return all, nil
}

func (g *snapshotRows) add(to registry.Agent, r mirror.Row) error {
	if err := checkRow(to, r); err != nil {
		return err
	}
	row := wireRow(r)
	g.digest.Add(&row)
	if r.Credential != nil && !r.Unwanted {
		g.withSecret[g.count] = r
	}
	g.count++
	text, err := g.encode(row)
	if err != nil {
		return err
	}
	return g.rows.add(text)
}

// encode returns a row as JSON with the manifest's bytes unchanged. The bytes are valid until the
// next call.
func (g *snapshotRows) encode(row agent.Row) ([]byte, error) {
	g.encoded.Reset()
	enc := json.NewEncoder(&g.encoded)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(row); err != nil {
		return nil, fmt.Errorf("row %s %s: %w", row.Kind, row.Name, err)
	}
	return bytes.TrimSuffix(g.encoded.Bytes(), []byte("\n")), nil
}

// sendSnapshot writes the rows: epoch and cursor first, digest and completeness last.
func (h *Hub) sendSnapshot(ctx context.Context, to *deadlineWriter, opening registry.Opening,
	all *snapshotRows) error {
	out := bufio.NewWriterSize(to, snapshotChunk)
	fmt.Fprintf(out, `{"epoch":%d,"cursor":%d,"rows":[`, opening.Lease.Epoch, all.cursor)
	n := 0
	err := all.rows.each(func(text []byte) error {
		if n > 0 {
			_ = out.WriteByte(',') // the next write returns the error
		}
		if r, ok := all.withSecret[n]; ok {
			row := wireRow(r)
			row.Credential = h.credentialWithTimeout(ctx, opening.Agent, r)
			var err error
			if text, err = all.encode(row); err != nil {
				return err
			}
		}
		n++
		_, err := out.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	if n != all.count {
		return errors.New("rows are missing")
	}
	h.metrics.rows.Add(float64(n))
	fmt.Fprintf(out, `],"digest":%q,"complete":true}`+"\n", all.digest.Sum(opening.Lease.Epoch,
		all.cursor))
	return out.Flush()
}

// secretTimeout bounds the resolution of one secret of a snapshot.
const secretTimeout = 3 * time.Second

func (h *Hub) credentialWithTimeout(ctx context.Context, to registry.Agent,
	r mirror.Row) *agent.Credential {
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	return h.sealedCredential(ctx, to, r)
}

// deadlineWriter writes a long response with a deadline per write.
type deadlineWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (p *deadlineWriter) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(messageTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return 0, errDisconnected
	}
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/json")
		p.w.WriteHeader(http.StatusOK)
	}
	n, err := p.w.Write(b)
	if err == nil {
		err = p.extendDeadline()
	}
	return n, err
}

// extendDeadline gives the next write its time: over HTTP/2 an expired deadline ends the response
// even while nothing is being written.
func (p *deadlineWriter) extendDeadline() error {
	if err := p.control.SetWriteDeadline(time.Now().Add(firstByteTimeout)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return errDisconnected
	}
	return nil
}

// secretsTimeout bounds the resolution of the secrets of one batch of rows: an unresponsive source
// delays a stream no longer.
const secretsTimeout = 10 * time.Second

// wireRow converts a row to its wire form, without its credential.
func wireRow(r mirror.Row) agent.Row {
	operation := agent.OperationApply
	switch {
	case r.UID != "":
		operation = agent.OperationRemoveUID
	case r.Moving && r.Unwanted:
		operation = agent.OperationLeave
	case r.Moving:
		operation = agent.OperationArrive
	case r.Unwanted:
		operation = agent.OperationRemove
	case needsFurther(r):
		operation = agent.OperationApplyFurther
	}
	return agent.Row{
		Kind: r.Key.Kind, Name: r.Key.Name, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Operation: operation,
		Deletion: r.Deletion, Revision: r.Revision, Seq: r.Seq, Apply: r.Apply,
		Hash: r.Manifest.Hash, Manifest: r.Manifest.Body,
		UID: r.UID,
	}
}

// needsFurther reports whether a row is an Application in another namespace than Argo CD's own, or
// an AppProject that permits such a namespace. Only adopted Applications are elsewhere, so others
// are not decoded.
func needsFurther(r mirror.Row) bool {
	switch r.Key.Kind {
	case fleet.ObjectProject:
		return bytes.Contains(r.Manifest.Body, []byte(`"sourceNamespaces"`))
	case fleet.ObjectApplication:
		var o struct{ Metadata struct{ Namespace string } }
		return bytes.Contains(r.Manifest.Body, []byte(`"argosy.dev/adopted"`)) &&
			json.Unmarshal(r.Manifest.Body, &o) == nil && o.Metadata.Namespace != ""
	}
	return false
}

// checkRow is the last check before a row is sent. A row of another engine or tenant sends nothing
// at all, even if the store's isolation has failed.
func checkRow(to registry.Agent, r mirror.Row) error {
	if r.Key.Engine != to.Engine || (to.Tenant != "" && r.Tenant != to.Tenant) {
		return fmt.Errorf("row %s %s belongs to engine %s and not to agent %s: nothing is sent",
			r.Key.Kind, r.Key.Name, r.Key.Engine, to.ID)
	}
	return nil
}

// sealedCredential returns the secret of a row, sealed with the agent's key, or the reason why it
// is unavailable.
func (h *Hub) sealedCredential(ctx context.Context, to registry.Agent,
	r mirror.Row) *agent.Credential {
	if r.Credential == nil || r.Unwanted {
		return nil
	}
	c := &agent.Credential{Tenant: r.Credential.Tenant, Name: r.Credential.Name}
	if c.Tenant == r.Tenant && c.Name == "" {
		return c // the agent requests a token on its own cluster
	}
	if r.Credential.Tenant != r.Tenant {
		c.Problem = "the credential belongs to another tenant and is not sent"
		return c
	}
	var secret fleet.Secret
	err := h.resolving.run(ctx, func() (err error) {
		secret, err = h.secrets.Get(ctx, *r.Credential)
		return err
	})
	if err == nil {
		c.Sealed, err = agent.Seal(to.Keys, r.Key, secret)
	}
	if err != nil {
		c.Problem = message(err.Error())
	}
	return c
}

// wireRows converts a batch of rows and their credentials. It also returns the unavailable secrets.
func (h *Hub) wireRows(ctx context.Context, to registry.Agent, batch []mirror.Row) (out []agent.Row,
	missing []secretName, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	for _, r := range batch {
		if err := checkRow(to, r); err != nil {
			return nil, nil, err
		}
		row := wireRow(r)
		if row.Credential = h.sealedCredential(ctx, to, r); row.Credential != nil &&
			row.Credential.Problem != "" {
			missing = append(missing, secretName{r.Credential.Tenant, r.Credential.Name})
		}
		out = append(out, row)
	}
	return out, missing, nil
}

// spool holds a snapshot's rows, compressed, from the read until a slow agent has received them. So
// no database connection waits for an agent, and a replica does not hold the rows twice. Manifests
// are similar and shrink to a tenth.
type spool struct {
	packed bytes.Buffer
	in     *flate.Writer
	size   int64
	most   int64
}

func newSpool(most int64) *spool {
	s := &spool{most: most}
	s.in, _ = flate.NewWriter(&s.packed, flate.BestSpeed) // the level is valid
	return s
}

var errSnapshotTooLarge = errors.New("the snapshot is larger than an agent takes")

// add appends one row.
func (s *spool) add(row []byte) error {
	if s.size += int64(len(row)) + 1; s.size > s.most {
		return errSnapshotTooLarge
	}
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(row)))
	if _, err := s.in.Write(length[:]); err != nil {
		return err
	}
	_, err := s.in.Write(row)
	return err
}

// each calls f for the rows in order. The bytes are valid until the next call.
func (s *spool) each(f func(row []byte) error) error {
	if err := s.in.Close(); err != nil {
		return err
	}
	out := bufio.NewReader(flate.NewReader(&s.packed))
	var row []byte
	for {
		var length [4]byte
		if _, err := io.ReadFull(out, length[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint32(length[:]))
		if cap(row) < n {
			row = make([]byte, n)
		}
		row = row[:n]
		if _, err := io.ReadFull(out, row); err != nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
}
