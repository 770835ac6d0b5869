package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

const (
	gatherTime  = time.Minute // to read every row
	snapshotBit = 32 << 10    // bytes that are written at once, each with a deadline of its own
)

// gathered is every row of an engine at one moment.
type gathered struct {
	rows    *spool
	secret  map[int]fleet.Row // that need a credential, by their place
	digest  *agent.Digester
	count   int
	cursor  int64
	encoded bytes.Buffer
}

// snapshot answers PathSnapshot. It begins a session, as a stream does, so that it has the epoch of
// the stream that the same process opens after it, and ends it: the agent is connected once it has
// the stream.
func (h *Hub) snapshot(w http.ResponseWriter, r *http.Request) error {
	control := lift(w, r)
	who, session, err := h.session(r, agent.PathSnapshot)
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
	if opening.Stale || !h.feed.standing(opening.Lease.Life) {
		return unconfirmed()
	}
	return h.snapshots.within(r.Context(), func() error {
		all, err := h.gather(r.Context(), opening)
		if err != nil {
			return err
		}
		out := &pieces{w: w, control: control}
		if err := h.sendSnapshot(r.Context(), out, opening, all); err != nil {
			h.log.WarnContext(r.Context(), "a snapshot was cut", "engine", opening.Agent.Engine,
				"rows", all.count, "error", err)
			return errCut
		}
		return nil
	})
}

// gather reads the rows and lets go of the store.
func (h *Hub) gather(ctx context.Context, opening fleet.AgentOpening) (*gathered, error) {
	to := opening.Agent
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	all := &gathered{rows: newSpool(agent.MaxSnapshot - 1<<20), secret: map[int]fleet.Row{},
		digest: agent.NewDigester()}
	err := h.reads.within(ctx, func() (err error) {
		all.cursor, err = h.store.AgentRows(ctx, to.Engine, func(r fleet.Row) error {
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

func (g *gathered) add(to fleet.Agent, r fleet.Row) error {
	if err := checkRow(to, r); err != nil {
		return err
	}
	row := rowOf(r)
	g.digest.Add(&row)
	if r.Credential != nil && !r.Unwanted {
		g.secret[g.count] = r
	}
	g.count++
	text, err := g.encode(row)
	if err != nil {
		return err
	}
	return g.rows.add(text)
}

// encode is a row as JSON with the manifest's bytes as they are; valid until the next.
func (g *gathered) encode(row agent.Row) ([]byte, error) {
	g.encoded.Reset()
	enc := json.NewEncoder(&g.encoded)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(row); err != nil {
		return nil, fmt.Errorf("row %s %s: %w", row.Kind, row.Name, err)
	}
	return bytes.TrimSuffix(g.encoded.Bytes(), []byte("\n")), nil
}

// sendSnapshot writes what was gathered: its epoch and cursor first, its digest and that it is
// complete last.
func (h *Hub) sendSnapshot(ctx context.Context, to *pieces, opening fleet.AgentOpening,
	all *gathered) error {
	out := bufio.NewWriterSize(to, snapshotBit)
	fmt.Fprintf(out, `{"epoch":%d,"cursor":%d,"rows":[`, opening.Lease.Epoch, all.cursor)
	n := 0
	err := all.rows.each(func(text []byte) error {
		if n > 0 {
			_ = out.WriteByte(',') // told by the next write
		}
		if r, ok := all.secret[n]; ok {
			row := rowOf(r)
			row.Credential = h.credentialWithin(ctx, opening.Agent, r)
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

// secretTime bounds the reading of one secret of a snapshot.
const secretTime = 3 * time.Second

func (h *Hub) credentialWithin(ctx context.Context, to fleet.Agent, r fleet.Row) *agent.Credential {
	ctx, cancel := context.WithTimeout(ctx, secretTime)
	defer cancel()
	return h.credential(ctx, to, r)
}

// pieces writes a long answer with a deadline for each piece.
type pieces struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

func (p *pieces) Write(b []byte) (int, error) {
	if err := p.control.SetWriteDeadline(time.Now().Add(messageTime)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return 0, errGone
	}
	if !p.begun {
		p.begun = true
		p.w.Header().Set("Content-Type", "application/json")
		p.w.WriteHeader(http.StatusOK)
	}
	n, err := p.w.Write(b)
	if err == nil {
		err = p.rest()
	}
	return n, err
}

// rest gives the next piece its time to be made: over HTTP/2 a deadline that passes ends the
// answer, whether or not anything is being written.
func (p *pieces) rest() error {
	if err := p.control.SetWriteDeadline(time.Now().Add(waitTime)); err != nil &&
		!errors.Is(err, http.ErrNotSupported) {
		return errGone
	}
	return nil
}
