package reach

import (
	"cmp"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// WorkLimits are when an engine counts as not working. Each state needs evidence that lasts, so
// that a restart of a component is none.
type WorkLimits struct {
	Every   time.Duration // between two requested refreshes
	Stuck   time.Duration // a refresh without an answer for so long
	Late    time.Duration // an answer after so long is late
	LateRow int           // consecutive late answers; 0: any number is fine
	Failing time.Duration // comparisons fail, and none succeeds, for so long
}

// DefaultWorkLimits request one refresh a minute. An application-controller that restarts, and
// reads its clusters again, answers within a minute and a half. Argo CD compares each Application
// every three minutes: after two such periods, an Application that can be compared was.
var DefaultWorkLimits = WorkLimits{Every: time.Minute, Stuck: 90 * time.Second,
	Late: 20 * time.Second, LateRow: 3, Failing: 7 * time.Minute}

// Work decides whether an engine works, from the answers to requested refreshes of its probe
// Application and from the comparisons of all its Applications. It is pure; times are the caller's.
type Work struct {
	limits WorkLimits
	asked  time.Time // of the last refresh
	open   bool      // it has no answer yet
	again  time.Time // of its last request
	left   string    // what has not answered it
	late   []time.Duration
	lateAt time.Time     // first late answer of late
	slow   time.Duration // the last answer later than Stuck, unless one in time came after it
	answer bool          // some refresh was answered
	began  time.Time     // of the state Working
	forgot time.Time     // of Forget; zero: since then, a refresh was answered

	apps    map[fleet.ObjectKey]comparison
	failing int
	since   time.Time // the first failure after the last comparison that succeeded
}

// comparison is the result of an Application's last comparison.
type comparison struct {
	at      time.Time // by the engine's clock
	in      fleet.EnvironmentID
	fault   mirror.WorkState
	message string
}

// NewWork returns the judge of one engine.
func NewWork(limits WorkLimits) *Work {
	return &Work{limits: limits, apps: map[fleet.ObjectKey]comparison{}}
}

// Due reports whether the next refresh is due: never while one has no answer.
func (w *Work) Due(now time.Time) bool {
	return !w.open && now.Sub(w.asked) >= w.limits.Every
}

// Open reports whether a requested refresh has no answer yet.
func (w *Work) Open() bool { return w.open }

// Asked records that a refresh was requested.
func (w *Work) Asked(now time.Time) { w.asked, w.again, w.open = now, now, true }

// Unanswered records what has not answered the refresh yet.
func (w *Work) Unanswered(left string) { w.left = left }

// AskAgain reports whether the caller must repeat the request for a refresh that has no answer:
// Argo CD does not repeat an answer that it failed to write. The answer is due as before.
func (w *Work) AskAgain(now time.Time) bool {
	due := w.open && now.Sub(w.again) >= w.limits.Every
	if due {
		w.again = now
	}
	return due
}

// Abandon drops the requested refresh: while the engine cannot be reached, a missing answer proves
// nothing. The next refresh is due at once.
func (w *Work) Abandon() { w.asked, w.open = time.Time{}, false }

// Failed records that no refresh could be requested. The next one is due as after a request.
func (w *Work) Failed(now time.Time) { w.asked = now }

// Answered records that the engine has handled the requested refresh, and returns how long that
// took. After a long time the next refresh is due at once: it shows whether the engine works again.
func (w *Work) Answered(now time.Time) time.Duration {
	took := now.Sub(w.asked)
	w.open, w.left = false, ""
	switch {
	case took < w.limits.Late:
		w.late, w.slow, w.answer, w.forgot = nil, 0, true, time.Time{}
	default:
		if len(w.late) == 0 {
			w.lateAt = w.asked
		}
		kept := max(1, w.limits.LateRow) // the last one is shown
		w.late = append(w.late[max(0, len(w.late)+1-kept):], took)
	}
	if took >= w.limits.Stuck {
		w.slow, w.asked = took, time.Time{}
	}
	return took
}

// Forget makes the state unknown, since no refresh may be requested: an emergency stop is in force,
// or the engine is not fit to be written to.
func (w *Work) Forget(now time.Time) {
	w.answer, w.late, w.slow, w.began = false, nil, 0, time.Time{}
	if w.forgot.IsZero() {
		w.forgot = now
	}
}

// Observe takes the result of an Application's last comparison.
func (w *Work) Observe(now time.Time, c engine.Contact) {
	before, known := w.apps[c.Key]
	if c.Gone {
		delete(w.apps, c.Key)
		if before.fault != "" {
			w.failing--
		}
		return
	}
	if c.Compared.IsZero() || known && !c.Compared.After(before.at) {
		return
	}
	after := comparison{at: c.Compared, in: c.In()}
	switch {
	case c.RepoServer != "":
		after.fault, after.message = mirror.RepoServerSilent, c.RepoServer
	case c.Reason != "":
		after.fault, after.message = mirror.ClustersUnread, c.Message
	}
	w.apps[c.Key] = after
	if before.fault != "" {
		w.failing--
	}
	if after.fault == "" {
		w.since = time.Time{}
		return
	}
	w.failing++
	if w.since.IsZero() {
		w.since = now
	}
}

// State returns the state of the engine. It is zero before the first evidence: then the state that
// an earlier worker has measured stays. After Forget, it is unknown since then.
func (w *Work) State(now time.Time) mirror.Work {
	if w.open && now.Sub(w.asked) >= w.stuckAfter() {
		w.began = time.Time{}
		return mirror.Work{State: mirror.ControllerStuck, Since: w.asked,
			Message: "the application-controller has not answered a refresh of " +
				cmp.Or(w.left, "Application "+engine.ProbeName)}
	}
	if fault, message := w.fault(now); fault != "" {
		w.began = time.Time{}
		return mirror.Work{State: fault, Since: w.since, Message: message}
	}
	if w.slow > 0 || len(w.late) >= w.limits.LateRow && w.limits.LateRow > 0 {
		w.began = time.Time{}
		last := w.late[len(w.late)-1].Round(time.Second)
		message := fmt.Sprintf("the last refresh took %s", last)
		if n := len(w.late); n > 1 {
			message = fmt.Sprintf("each of the last %d refreshes took over %s, the last %s", n,
				w.limits.Late, last)
		}
		return mirror.Work{State: mirror.QueueLong, Since: w.lateAt, Message: message}
	}
	if !w.answer {
		return mirror.Work{Since: w.forgot}
	}
	if w.began.IsZero() {
		w.began = now
	}
	return mirror.Work{State: mirror.Working, Since: w.began}
}

// stuckAfter returns when a refresh without an answer shows a stuck controller. A controller that
// answers steadily, but later than Stuck, is slow: it is stuck if it takes twice as long as the
// last time.
func (w *Work) stuckAfter() time.Duration {
	return max(w.limits.Stuck, min(2*w.slow, 10*w.limits.Stuck))
}

// fault returns why no comparison succeeds. One Application, or one environment, among others
// proves nothing: its own repository or cluster may be slow.
func (w *Work) fault(now time.Time) (mirror.WorkState, string) {
	if w.since.IsZero() || now.Sub(w.since) < w.limits.Failing ||
		w.failing < min(2, len(w.apps)) {
		return "", ""
	}
	count, texts := map[mirror.WorkState]int{}, map[mirror.WorkState]string{}
	environments, failing := map[fleet.EnvironmentID]bool{}, map[fleet.EnvironmentID]bool{}
	for _, c := range w.apps {
		if environments[c.in] = true; c.fault == "" {
			continue
		}
		failing[c.in] = true
		count[c.fault]++
		if before := texts[c.fault]; before == "" || c.message < before {
			texts[c.fault] = c.message
		}
	}
	fault := mirror.RepoServerSilent
	if cmp.Compare(count[mirror.ClustersUnread], count[fault]) > 0 {
		fault = mirror.ClustersUnread
	}
	if count[fault] == 0 || len(failing) < min(2, len(environments)) {
		return "", ""
	}
	return fault, fmt.Sprintf("%d of %d Applications fail, and none was compared since: %s",
		count[fault], len(w.apps), texts[fault])
}
