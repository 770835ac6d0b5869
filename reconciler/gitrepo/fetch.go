package gitrepo

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
)

// Fetch reads the branch's tip from the source, fetches the new objects, proves that they are
// complete, and moves the head. On any error the head does not move. Fetch first discards a damaged
// mirror and clones it again, once.
//
// Errors: ErrUnavailable, ErrUnauthorized, ErrBranchGone, ErrOverBudget, ErrMalformed, ErrTimedOut,
// ErrStorage, ErrRefused, and ErrCorrupt if the mirror is damaged again right after the clone; or
// ctx's own.
func (m *Mirror) Fetch(ctx context.Context) (Head, error) {
	if m.store == nil {
		return Head{}, &Error{Kind: ErrRefused, Subject: m.source.display,
			Detail: "a local repository is read as it is; it has no source to fetch from"}
	}
	m.fetching.Lock()
	defer m.fetching.Unlock()
	if err := m.store.usable(); err != nil {
		return Head{}, err
	}
	discarded, err := m.discardIfDamaged()
	if err != nil {
		return Head{}, err
	}
	head, err := m.fetch(ctx)
	if errors.Is(err, ErrCorrupt) && !discarded {
		m.damaged(m.store.resets.Load(), err.Error())
		if _, err = m.discardIfDamaged(); err == nil {
			head, err = m.fetch(ctx)
		}
	}
	if err != nil {
		return Head{}, err
	}
	head.Recloned, m.discarded = m.discarded, ""
	return head, nil
}

// discardIfDamaged empties a mirror that a reader found damaged, and reports whether it did. The
// next successful fetch reports the reason.
func (m *Mirror) discardIfDamaged() (bool, error) {
	why := m.damage.Load()
	if why == nil {
		return false, nil
	}
	if err := m.store.reset(m.record); err != nil {
		return false, err
	}
	m.damage.Store(nil)
	m.discarded = *why
	m.mu.Lock()
	m.head, m.memo = Head{}, nil
	m.mu.Unlock()
	return true, nil
}

func (m *Mirror) fetch(parent context.Context) (Head, error) {
	t, stop, err := m.transfer(parent, m.budget)
	defer stop()
	if err != nil {
		return Head{}, t.explain(err)
	}
	tip, err := t.branch()
	if err != nil {
		return Head{}, t.explain(err)
	}
	last, _ := m.Head()
	if publicHash(tip) == last.Commit {
		last.Moved = false
		return last, nil
	}
	head, err := m.accept(t.ctx, last, tip)
	if err != nil {
		return Head{}, t.explain(err)
	}
	return head, nil
}

// transfer is one fetch from the source, of the branch or of another ref.
type transfer struct {
	m      *Mirror
	ctx    context.Context // ends with the budget's time
	budget Budget
	meter  *meter
	auth   Auth
}

func (m *Mirror) transfer(parent context.Context, budget Budget) (*transfer, context.CancelFunc,
	error) {
	t := &transfer{m: m, budget: budget}
	var stop context.CancelFunc
	t.ctx, t.meter, stop = budget.start(parent)
	if m.auth == nil {
		return t, stop, nil
	}
	auth, err := m.auth(t.ctx)
	if err != nil {
		return t, stop, unauthorized("failed to obtain the credential: %v", err)
	}
	t.auth = auth
	return t, stop, nil
}

// branch finds the branch's tip and ensures that its commit is in the mirror.
func (t *transfer) branch() (plumbing.Hash, error) {
	m := t.m
	talk, tip, err := m.remote.find(t.ctx, t.auth, t.meter, m.branch)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer talk.Close()
	if tip.IsZero() {
		return plumbing.ZeroHash,
			&Error{Kind: ErrBranchGone,
				Detail: fmt.Sprintf("the source has no %s; was the branch deleted or renamed?",
					m.branch)}
	}
	if m.store.contains(tip) {
		t.meter.endIdleCheck()
		return tip, nil
	}
	return tip, t.into(m.store, talk, tip)
}

// into receives the objects that tip needs and the mirror lacks, and installs them in a store.
func (t *transfer) into(s *store, talk *conversation, tip plumbing.Hash) error {
	return t.receive(s, talk, packRequest{wants: []plumbing.Hash{tip}, haves: t.haves()})
}

// receive receives a pack and installs it in a store.
func (t *transfer) receive(s *store, talk *conversation, r packRequest) error {
	stream, err := talk.pack(t.ctx, r)
	if err != nil {
		return err
	}
	in, err := receive(t.ctx, stream, t.budget, func() (scratch, error) {
		return s.create(s.incomingDir())
	})
	if err != nil {
		return err
	}
	t.meter.endIdleCheck() // the remaining work is local, or small
	if err := in.resolve(); err != nil {
		return err
	}
	return s.install(in)
}

// haves names commits that the server need not send again: the head, and some ancestors in case the
// branch was rewritten.
func (t *transfer) haves() []plumbing.Hash {
	head, ok := t.m.Head()
	if !ok {
		return nil
	}
	id, err := parseHash(head.Commit)
	var haves []plumbing.Hash
	for distance := 0; err == nil && distance <= 16; distance++ {
		if distance&(distance-1) == 0 { // 0, 1, 2, 4, 8, 16
			haves = append(haves, id)
		}
		var c Commit
		if c, err = t.m.commitAt(id); err != nil || len(c.Parents) == 0 {
			break
		}
		id, err = parseHash(c.Parents[0])
	}
	return haves
}

// accept moves the head to tip once every difference from the last head is proven to be in the
// mirror and well formed. Objects of pull requests do not count.
func (m *Mirror) accept(ctx context.Context, last Head, tip plumbing.Hash) (Head, error) {
	if !m.store.contains(tip) {
		return Head{}, m.incomplete("commit " + tip.String())
	}
	head, err := m.headAt(tip)
	if err != nil {
		return Head{}, err
	}
	memo := &diffMemo{base: last.Commit, head: head.Commit}
	gaps := m.store.hasGaps()
	err = m.compareIn(ctx, m.store, last.Commit, head.Commit, nil, func(c Change) error {
		if c.New.Kind == File && !gaps && !m.store.contains(plumbing.NewHash(string(c.New.Blob))) {
			return m.incomplete("file " + c.Path + " of commit " + string(head.Commit))
		}
		memo.add(c)
		return nil
	})
	if err != nil {
		return Head{}, err
	}
	if err := m.store.setRef(m.branch, tip); err != nil {
		return Head{}, err
	}
	head.Moved = true
	m.mu.Lock()
	defer m.mu.Unlock()
	m.head, m.memo = head, memo
	return head, nil
}

// incomplete reports an object that the server should have sent. The server would not send it
// again, so the mirror must be discarded.
func (m *Mirror) incomplete(what string) error {
	m.damaged(m.store.resets.Load(), what+" was not sent by the server")
	return unavailable("the server sent a pack without %s", what)
}

// explain adds the subject to an error, removes credentials from the server's text, and replaces
// the errors that an expired time budget caused by ErrTimedOut.
func (t *transfer) explain(err error) error {
	if over := ended(t.ctx, t.budget); over != nil {
		err = over
	}
	var known *Error
	if !errors.As(err, &known) {
		if t.ctx.Err() != nil {
			return err
		}
		known = unavailable("%v", err)
	}
	out := *known
	if out.Subject == "" {
		out.Subject = t.m.source.display
	}
	out.Detail = printable(t.auth.scrub(out.Detail))
	return &out
}
