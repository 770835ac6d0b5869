package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
	"argosy.dev/argosy/reconciler/postgres"
)

func notificationsOf(n int, tenant fleet.TenantName, channel string) (step mirror.NotifyStep) {
	now := time.Now().Add(-time.Second)
	for i := range n {
		step.Send = append(step.Send, mirror.Notification{ID: fmt.Sprintf("%s-%s-%d", tenant,
			channel, i), Tenant: tenant, Channel: channel, Trigger: fleet.TriggerDegraded,
			About: tenant, Deployment: "web", Environment: "prod", Since: now, At: now, Due: now})
	}
	return step
}

func listNotifications(t *testing.T, s *postgres.Store,
	tenant fleet.TenantName) []mirror.Notification {
	t.Helper()
	all, _, err := s.Views.Notifications(t.Context(), view.Scope{Tenant: tenant}, view.Filter{},
		view.Page{Limit: 1000})
	check(t, err)
	return all
}

func TestFactsOfNotificationsAreTheUnwellAndTheirIncidents(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	a, b, c := application("eu-1", "acme", "a", "prod", "v1"),
		application("eu-1", "acme", "b", "prod", "v1"),
		application("eu-1", "acme", "c", "prod", "v1")
	s, loop, worker, _ := recorded(t, url, a, b, c)
	ctx := t.Context()
	check(t, s.Work.Observe(ctx, worker, []mirror.Observation{
		{Key: a.Key, Health: mirror.HealthDegraded, Message: "crash", SyncedRevision: "c0ffee"},
		{Key: b.Key, Health: mirror.HealthHealthy, OperationPhase: "Failed",
			OperationError: "denied"},
		{Key: c.Key, Health: mirror.HealthHealthy, OperationPhase: "Succeeded"}}))
	f := must(s.Notifications.NotifyFacts(ctx, false))(t)
	if len(f.Applications) != 1 || f.Applications[0].ID.Deployment != "a" ||
		f.Applications[0].Message != "crash" || f.Applications[0].Synced != "c0ffee" ||
		f.Applications[0].ObservedAt.IsZero() || f.Now.IsZero() {
		t.Fatalf("%+v", f.Applications)
	}
	if f = must(s.Notifications.NotifyFacts(ctx, true))(t); len(f.Applications) != 2 ||
		f.Applications[1].Phase != "Failed" || f.Applications[1].Message != "denied" {
		t.Fatalf("%+v", f.Applications)
	}
	since := f.Now.Add(-time.Hour)
	i := mirror.Incident{Trigger: fleet.TriggerDegraded, Tenant: "acme", Subject: "c@prod",
		Since: since, Sent: []string{"tenant/chat"}}
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, mirror.NotifyStep{
		Put: []mirror.Incident{i}}))
	f = must(s.Notifications.NotifyFacts(ctx, false))(t)
	if len(f.Applications) != 2 || f.Applications[1].ID.Deployment != "c" || len(f.Open) != 1 ||
		!f.Open[0].Since.Equal(since) || len(f.Open[0].Sent) != 1 {
		t.Fatalf("%+v %+v", f.Applications, f.Open)
	}
	check(t, s.Work.ReportEngine(ctx, worker, mirror.EngineReport{Engine: "eu-1",
		Message: "connection refused"}))
	exec(t, url, `UPDATE engines SET since = now() - interval '5 minutes'`)
	f = must(s.Notifications.NotifyFacts(ctx, false))(t)
	if len(f.Silent) != 1 || f.Silent[0].Applications["acme"] != 3 || !f.Applications[0].Unknown {
		t.Fatalf("%+v %+v", f.Silent, f.Applications)
	}
	late := loop
	late.Epoch--
	if err := s.Notifications.TakeNotifyStep(ctx, late, mirror.NotifyStep{
		Drop: []mirror.Incident{i}}); !errors.Is(err, mirror.ErrFenced) {
		t.Errorf("a former leader decides: %v", err)
	}
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, mirror.NotifyStep{
		Drop: []mirror.Incident{i}}))
	if f = must(s.Notifications.NotifyFacts(ctx, false))(t); len(f.Open) != 0 {
		t.Errorf("%+v", f.Open)
	}
}

func TestAnEventIsSentOnceAlthoughItIsDecidedTwice(t *testing.T) {
	t.Parallel()
	s, loop, _, _ := recorded(t, newDatabase(t))
	ctx := t.Context()
	step := notificationsOf(3, "acme", "chat")
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, step))
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, step))
	m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok || len(m.Events) != 3 || m.Attempts != 1 || m.ID == "" {
		t.Fatalf("%+v, %v, %v", m, ok, err)
	}
	if other, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60); ok || err != nil {
		t.Fatalf("two claims have a message: %+v, %v", other, err)
	}
	check(t, s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
		State: mirror.NotificationSent, Answer: "200 OK"}))
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, step))
	if _, ok, _ := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60); ok {
		t.Error("an event is sent again")
	}
	all := listNotifications(t, s, "acme")
	if len(all) != 3 || all[0].State != mirror.NotificationSent || all[0].Answer != "200 OK" ||
		all[0].MessageID != m.ID || all[0].EndedAt == nil {
		t.Errorf("%+v", all)
	}
	if other := listNotifications(t, s, "globex"); len(other) != 0 {
		t.Errorf("another tenant reads %+v", other)
	}
}

// A replica that dies between the delivery and its record leaves a claim, and the next one sends
// the same message with the same ID.
func TestAMessageOfADeadReplicaIsSentAgainWithItsID(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, notificationsOf(2, "acme", "chat")))
	first, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	late := notificationsOf(3, "acme", "chat") // a third event, which is not part of the message
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, late))
	exec(t, url, `UPDATE notifications SET claimed_until = now() - interval '1 second' WHERE message <> ''`)
	next := open(t, url)
	again, ok, err := next.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok || again.ID != first.ID || len(again.Events) != 2 || again.Attempts != 2 {
		t.Fatalf("%+v, %v, %v; want message %s", again, ok, err, first.ID)
	}
	check(t, next.Notifications.SettleMessage(ctx, again, mirror.NotifyOutcome{
		State: mirror.NotificationSent}))
	check(t, s.Notifications.SettleMessage(ctx, first, mirror.NotifyOutcome{
		State: mirror.NotificationFailed})) // of the first replica, which was not dead after all
	third, ok, err := next.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok || len(third.Events) != 1 || third.ID == first.ID {
		t.Fatalf("%+v, %v, %v", third, ok, err)
	}
}

func TestAFailedMessageKeepsItsChannelWaitingAndIsGivenUp(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, notificationsOf(1, "acme", "chat")))
	m, _, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	check(t, err)
	check(t, s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
		State: mirror.NotificationPending, Answer: "refused", Again: time.Hour}))
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, notificationsOf(2, "acme", "chat")))
	if _, ok, _ := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60); ok {
		t.Fatal("a message passes one that waits for its next attempt")
	}
	if n := one[int](t, url, `SELECT count(*) FROM river_job WHERE kind = 'notify'`); n != 1 {
		t.Errorf("%d jobs of the channel", n)
	}
	exec(t, url, `UPDATE notifications SET due = now() WHERE message <> ''`)
	m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok || m.Attempts != 2 || len(m.Events) != 1 {
		t.Fatalf("%+v, %v, %v", m, ok, err)
	}
	check(t, s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
		State: mirror.NotificationFailed, Answer: "410 Gone"}))
	if m, ok, err = s.Notifications.ClaimMessage(ctx, "acme", "chat", 60); err != nil || !ok {
		t.Fatalf("%+v, %v, %v", m, ok, err)
	}
	check(t, s.Notifications.DropChannel(ctx, "acme", "chat"))
	states := map[mirror.NotificationState]int{}
	for _, n := range listNotifications(t, s, "acme") {
		states[n.State]++
	}
	if states[mirror.NotificationFailed] != 1 || states[mirror.NotificationDropped] != 1 {
		t.Errorf("%v", states)
	}
}

func TestATenantBeyondItsLimitGetsOneMessageForAllThatWaits(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	ctx := t.Context()
	send := func(from, to int) {
		t.Helper()
		step := notificationsOf(to, "acme", "chat")
		step.Send = step.Send[from:]
		check(t, s.Notifications.TakeNotifyStep(ctx, loop, step))
	}
	for i := range 3 {
		send(i, i+1)
		m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 3)
		if err != nil || !ok {
			t.Fatalf("message %d: %v, %v", i, ok, err)
		}
		check(t, s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
			State: mirror.NotificationSent}))
	}
	send(3, 50)
	if m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 3); ok || err != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, notificationsOf(1, "globex", "chat")))
	if _, ok, err := s.Notifications.ClaimMessage(ctx, "globex", "chat", 3); !ok || err != nil {
		t.Fatalf("another tenant waits: %v", err)
	}
	if due := one[time.Time](t, url, `SELECT min(due) FROM notifications WHERE tenant = 'acme' AND ended_at IS NULL`); time.Until(due) < 50*time.Minute || time.Until(due) > time.Hour {
		t.Errorf("due in %s", time.Until(due))
	}
	exec(t, url, `UPDATE notifications SET ended_at = ended_at - interval '1 hour', due = due - interval '1 hour'`)
	m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 3)
	if err != nil || !ok || len(m.Events) != 47 {
		t.Errorf("%d events, %v, %v", len(m.Events), ok, err)
	}
}

// 5,000 Applications change at once: one statement each for facts and messages, and one message.
func TestAStormOf5000EventsIsOneMessage(t *testing.T) {
	t.Parallel()
	s, loop, _, _ := recorded(t, newDatabase(t))
	ctx := t.Context()
	step := notificationsOf(5000, "acme", "chat")
	for i := range 5000 {
		step.Put = append(step.Put, mirror.Incident{Trigger: fleet.TriggerDegraded, Tenant: "acme",
			Subject: fmt.Sprintf("web-%d@prod", i), Since: time.Now(),
			Sent: []string{"tenant/chat"}})
	}
	began := time.Now()
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, step))
	m, ok, err := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60)
	if err != nil || !ok || len(m.Events)+m.More != 5000 || len(m.Events) != 100 {
		t.Fatalf("%d events and %d more, %v, %v", len(m.Events), m.More, ok, err)
	}
	check(t, s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
		State: mirror.NotificationSent}))
	if _, ok, _ := s.Notifications.ClaimMessage(ctx, "acme", "chat", 60); ok {
		t.Error("a second message follows")
	}
	t.Logf("recorded, claimed and settled in %s", time.Since(began).Round(time.Millisecond))
}

// A channel whose receiver never answers delays no other tenant, and no other channel of its own
// beyond the tenant's share.
func TestOneSlowReceiverDelaysNoOtherTenant(t *testing.T) {
	t.Parallel()
	s, loop, _, _ := recorded(t, newDatabase(t))
	ctx, stop := context.WithCancel(t.Context())
	for i := range 20 {
		check(t, s.Notifications.TakeNotifyStep(ctx, loop,
			notificationsOf(1, "acme", fmt.Sprintf("slow-%d", i))))
	}
	check(t, s.Notifications.TakeNotifyStep(ctx, loop, notificationsOf(1, "globex", "chat")))
	var mu sync.Mutex
	slow := 0
	sent := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		check(t, s.Notifications.Work(ctx, func(ctx context.Context, tenant fleet.TenantName,
			channel string) error {
			if tenant == "acme" {
				mu.Lock()
				slow++
				mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			}
			m, ok, err := s.Notifications.ClaimMessage(ctx, tenant, channel, 60)
			if err != nil || !ok {
				return err
			}
			err = s.Notifications.SettleMessage(ctx, m, mirror.NotifyOutcome{
				State: mirror.NotificationSent})
			close(sent)
			return err
		}))
	})
	select {
	case <-sent:
	case <-time.After(30 * time.Second):
		t.Error("a message of another tenant waits for 20 slow receivers")
	}
	stop()
	work.Wait()
	if slow > 2 {
		t.Errorf("%d receivers of one tenant at once", slow)
	}
}

func TestATestMessageIsRecordedWithItsJob(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, _, _, _ := recorded(t, url)
	id := must(s.Notifications.RequestTest(t.Context(), "acme", "chat", "ann"))(t)
	m, ok, err := s.Notifications.ClaimMessage(t.Context(), "acme", "chat", 60)
	if err != nil || !ok || m.Events[0].ID != id || m.Events[0].Trigger != fleet.TriggerTest {
		t.Fatalf("%+v, %v, %v", m, ok, err)
	}
	if n := one[int](t, url, `SELECT count(*) FROM river_job WHERE kind = 'notify'`); n != 1 {
		t.Errorf("%d jobs", n)
	}
}

func TestOldMessagesAreDeletedAndStuckOnesGivenUp(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	s, loop, _, _ := recorded(t, url)
	check(t, s.Notifications.TakeNotifyStep(t.Context(), loop, notificationsOf(4, "acme", "chat")))
	for id, at := range map[string]string{"acme-chat-0": "15 days", "acme-chat-1": "13 days"} {
		exec(t, url, `UPDATE notifications SET state = 'Sent', ended_at = now() - $2::interval WHERE id = $1`,
			id, at)
	}
	exec(t, url, `UPDATE notifications SET at = now() - interval '4 days' WHERE id = 'acme-chat-2'`)
	if n := must(s.Notifications.Tidy(t.Context()))(t); n != 2 {
		t.Errorf("%d rows are changed", n)
	}
	states := map[string]mirror.NotificationState{}
	for _, n := range listNotifications(t, s, "acme") {
		states[n.ID] = n.State
	}
	if len(states) != 3 || states["acme-chat-1"] != mirror.NotificationSent ||
		states["acme-chat-2"] != mirror.NotificationFailed ||
		states["acme-chat-3"] != mirror.NotificationPending {
		t.Errorf("%v", states)
	}
}
