package edge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/mirror"
)

func TestAnAgentReadsASnapshotAndThenChanges(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		if err := s.f.RowHeads(t.Context(), testEngine, func(mirror.RowHead) error {
			return nil
		}); !errors.Is(err, ErrNotRead) {
			t.Fatalf("before the snapshot: %v", err)
		}
		if _, held, _ := LeasesOf(s.f).Acquire(t.Context(), "l", "h", time.Minute); held {
			t.Fatal("a lease before the snapshot")
		}
		s.follow()
		if rows := s.rows(); len(rows) != 1 || rows["one"].Tenant != "acme" ||
			rows["one"].Unwanted {
			t.Fatalf("rows %v", rows)
		}
		before := s.rows()["one"].Seq
		h.put(object("two"))
		wait(0)
		changed, err := s.f.Changed(t.Context(), testEngine, before, 10)
		if err != nil || len(changed) != 1 || changed[0].Key.Name != "two" {
			t.Fatalf("changed %v, %v", changed, err)
		}
		if n := h.asked(agent.PathSnapshot); n != 1 {
			t.Errorf("%d snapshots", n)
		}
	})
}

func TestAReconnectGetsTheMissedRowsAndKeepsTheEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		for i := range 50 {
			h.put(object(fmt.Sprintf("app-%d", i)))
		}
		s.follow()
		h.listener.cut(true)
		wait(time.Hour)
		if len(s.rows()) != 50 {
			t.Fatal("an outage costs rows")
		}
		if held, err := LeasesOf(s.f).Renew(t.Context(), s.lease, time.Minute); !held ||
			err != nil {
			t.Fatalf("an outage costs the lease: %v", err)
		}
		h.put(object("missed"))
		h.listener.cut(false)
		wait(2 * time.Minute)
		if _, ok := s.rows()["missed"]; !ok {
			t.Fatal("what was missed is not there")
		}
		if n := h.asked(agent.PathSnapshot); n != 1 {
			t.Errorf("%d snapshots", n)
		}
		if last := h.lastBegun(); last != 50 {
			t.Errorf("the stream went on after %d", last)
		}
		if held, _ := LeasesOf(s.f).Renew(t.Context(), s.lease, time.Minute); !held {
			t.Error("the reconnect costs the lease")
		}
	})
}

func TestAHalfOpenConnectionIsDetected(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		opened := h.asked(agent.PathStream)
		h.listener.freeze(true)
		wait(idleTimeout - time.Second)
		h.listener.freeze(false)
		wait(3 * time.Minute)
		if h.asked(agent.PathStream) <= opened {
			t.Fatal("the dead stream is still listened to")
		}
		h.put(object("after"))
		wait(0)
		if _, ok := s.rows()["after"]; !ok {
			t.Fatal("nothing comes any more")
		}
	})
}

func TestAnIncompleteSnapshotChangesNothing(t *testing.T) {
	whole := func(s *agent.Snapshot) { s.Digest = agent.Digest(s) }
	for name, spoil := range map[string]func(s *agent.Snapshot, text *string){
		"cut at 60 %": func(_ *agent.Snapshot, text *string) {
			*text = (*text)[:len(*text)*6/10]
		},
		"not complete": func(s *agent.Snapshot, text *string) {
			s.Complete = false
			whole(s)
			*text = ""
		},
		"a row left out": func(s *agent.Snapshot, text *string) {
			s.Rows = s.Rows[1:]
			*text = ""
		},
		"of another epoch": func(s *agent.Snapshot, text *string) {
			s.Epoch--
			whole(s)
			*text = ""
		},
		"something after it": func(_ *agent.Snapshot, text *string) { *text += "{}" },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hubDouble, s *site) {
				h.put(object("one"))
				h.put(object("two"))
				h.order(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path != agent.PathSnapshot {
						return false
					}
					if _, ok := h.session(w, r); !ok {
						return true
					}
					var snapshot agent.Snapshot
					h.set(func() {
						snapshot = agent.Snapshot{Epoch: h.epoch, Cursor: h.cursor, Complete: true,
							Rows: []agent.Row{h.rows["Application/one"], h.rows["Application/two"]}}
					})
					whole(&snapshot)
					text := encode(t, snapshot)
					if spoil(&snapshot, &text); text == "" {
						text = encode(t, snapshot)
					}
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(text))
					return true
				})
				s.run()
				wait(10 * time.Minute)
				if err := s.f.RowHeads(t.Context(), testEngine, func(mirror.RowHead) error {
					return nil
				}); !errors.Is(err, ErrNotRead) {
					t.Fatalf("something of it was read: %v", err)
				}
				h.set(func() { h.fault = nil })
				wait(3 * time.Minute)
				if len(s.rows()) != 2 {
					t.Fatal("the whole one is not read")
				}
			})
		})
	}
}

func TestASnapshotHasALimit(t *testing.T) {
	_, err := decodeSnapshot(strings.NewReader(`{"rows":[`+strings.Repeat(`{},`, 1000)+`{}]}`), 500)
	if err == nil || !strings.Contains(err.Error(), "larger than 500 bytes") {
		t.Fatal(err)
	}
}

func TestAHubThatHasLostItsStateIsReadAgain(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		for i := range 9 {
			h.put(object(fmt.Sprintf("app-%d", i)))
		}
		s.follow()
		h.listener.cut(true)
		h.set(func() { h.cursor, h.rows, h.holder, h.epoch = 0, map[string]agent.Row{}, "", 0 })
		h.put(object("app-0"))
		h.listener.cut(false)
		wait(3 * time.Minute)
		if rows := s.rows(); len(rows) != 1 || rows["app-0"].Seq != 1 {
			t.Fatalf("%d rows", len(rows))
		}
		if held, _ := LeasesOf(s.f).Renew(t.Context(), s.lease, time.Minute); held {
			t.Error("a worker continues with invalid numbers")
		}
		if _, err := s.f.Changed(t.Context(), testEngine, 9, 10); !errors.Is(
			err, mirror.ErrFenced) {
			t.Errorf("what changed since another mirror's number: %v", err)
		}
		s.acquire()
		if s.lease.Epoch < 4 {
			t.Errorf("epoch %d is below what the objects show", s.lease.Epoch)
		}
	})
}

func TestRaiseEpochOpensASessionWithAHigherEpoch(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		raised, err := LeasesOf(s.f).RaiseEpoch(t.Context(), s.lease, 41)
		if err != nil || raised.Epoch != 42 {
			t.Fatalf("epoch %d, %v", raised.Epoch, err)
		}
		if err := s.f.Acknowledge(t.Context(), s.lease, nil); !errors.Is(err, mirror.ErrFenced) {
			t.Errorf("the old lease: %v", err)
		}
		if held, _ := LeasesOf(s.f).Renew(t.Context(), raised, time.Minute); !held {
			t.Error("the new lease does not hold")
		}
		h.listener.cut(false)
		wait(time.Minute)
		if held, _ := LeasesOf(s.f).Renew(t.Context(), raised, time.Minute); !held ||
			h.asked(agent.PathSnapshot) != 1 {
			t.Error("a reconnect raises it again, or reads everything")
		}
	})
}

func TestUnknownInputIsLeftAloneAndReported(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		strange := object("one")
		strange.Operation = "explode"
		h.put(strange)
		kind := object("two")
		kind.Kind = "Rocket"
		h.put(kind)
		policy := object("policy")
		policy.Deletion = "Shred"
		h.put(policy)
		damaged := object("three")
		damaged.Hash = strings.Repeat("0", 64)
		h.put(damaged)
		h.put(manifest(object("four"), `{"metadata":{"name":"four","namespace":"kube-system"}}`))
		h.put(manifest(object("five"), `{"metadata":{"name":"five","namespace":"argocd"}}`))
		wait(time.Second)
		if rows := s.rows(); len(rows) != 1 || rows["five"].Unwanted {
			t.Fatalf("rows %v", rows)
		}
		for name, want := range map[string]string{"one": "unknown operation", "two": "unknown kind",
			"policy": "unknown deletion policy", "three": "hash", "four": "kube-system"} {
			if ack, ok := h.ack(name); !ok || ack.State != mirror.ApplyFailed || ack.Removed ||
				!strings.Contains(ack.Message, want) {
				t.Errorf("%s: %+v", name, ack)
			}
		}
	})
}

// ack returns the last acknowledgement of a row that the hub has accepted.
func (h *hubDouble) ack(name string) (last agent.Ack, ok bool) {
	for _, report := range h.taken() {
		for _, a := range report.Acks {
			if a.Name == name {
				last, ok = a, true
			}
		}
	}
	return last, ok
}

func TestARemovedRowIsForgottenOnceTheHubKnows(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		row := object("one")
		row.Operation = agent.OperationRemove
		row = h.put(row)
		s.follow()
		key := fleet.ObjectKey{Engine: testEngine, Kind: fleet.ObjectApplication, Name: "one"}
		h.set(func() { h.fault = unavailable(agent.PathStatus) })
		if err := s.f.Acknowledge(t.Context(), s.lease, []mirror.Ack{
			{Key: key, Seq: row.Seq, State: mirror.ApplyDeleting, Removed: true}}); err != nil {
			t.Fatal(err)
		}
		wait(5 * time.Minute)
		if len(s.rows()) != 1 {
			t.Fatal("forgotten before the hub knows")
		}
		h.set(func() { h.fault = nil })
		wait(2 * time.Minute)
		if len(s.rows()) != 0 || h.left() != 0 {
			t.Fatal("still there")
		}
	})
}

func unavailable(path string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == path {
			http.Error(w, "down", http.StatusServiceUnavailable)
		}
		return r.URL.Path == path
	}
}

func TestACredentialOpensOnlyForItsRow(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		secret := fleet.NewSecret(map[string][]byte{"password": []byte("canary-1")})
		sealed := func(row agent.Row, about string, secret fleet.Secret) agent.Row {
			text, err := agent.Seal(h.known(), fleet.ObjectKey{Engine: testEngine, Kind: row.Kind,
				Name: about}, secret)
			if err != nil {
				t.Fatal(err)
			}
			row.Credential = &agent.Credential{Tenant: "acme", Name: "git", Sealed: text}
			return row
		}
		own, moved, missing := object("own"), object("moved"), object("missing")
		own.Kind, moved.Kind, missing.Kind = fleet.ObjectRepository, fleet.ObjectRepository,
			fleet.ObjectRepository
		own = h.put(sealed(own, "own", secret))
		h.put(sealed(moved, "own", secret))
		missing.Credential = &agent.Credential{Tenant: "acme", Name: "git",
			Problem: "no such secret"}
		h.put(missing)
		s.follow()
		rows := s.rows()
		if got, err := CredentialsOf(s.f).Get(t.Context(), *rows["own"].Credential); err != nil ||
			string(got.Value("password")) != "canary-1" {
			t.Fatal(err)
		}
		if _, err := CredentialsOf(s.f).Get(t.Context(), *rows["moved"].Credential); !errors.Is(err,
			agent.ErrSealed) {
			t.Errorf("moved to another row: %v", err)
		}
		if _, err := CredentialsOf(s.f).Get(t.Context(), *rows["missing"].Credential); err == nil ||
			!strings.Contains(err.Error(), "no such secret") {
			t.Errorf("one that the hub has not: %v", err)
		}
		if all, err := s.f.CredentialRows(t.Context(), testEngine, "acme", "git"); err != nil ||
			len(all) != 3 {
			t.Errorf("%d rows need it, %v", len(all), err)
		}
		var rotated string
		s.f.Rotated = func(tenant fleet.TenantName, name string) {
			rotated = string(tenant) + "/" + name
		}
		h.send(message(agent.EventCredentials, agent.Rows{
			Rows: []agent.Row{
				sealed(own, "own",
					fleet.NewSecret(map[string][]byte{"password": []byte("canary-2")}))}}))
		wait(0)
		if got, err := CredentialsOf(s.f).Get(
			t.Context(), *s.rows()["own"].Credential); rotated != "acme/git" ||
			err != nil || string(got.Value("password")) != "canary-2" {
			t.Errorf("the rotated one: %q, %v", rotated, err)
		}
	})
}

func TestAnAgentStopsAfterItsIdentityHasEnded(t *testing.T) {
	for _, code := range []string{agent.CodeRevoked, agent.CodeExpired, agent.CodeCloned,
		agent.CodeSuperseded} {
		t.Run(code, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hubDouble, s *site) {
				s.follow()
				h.send(message(agent.EventGoAway, agent.GoAway{Code: code}))
				err := <-s.ended
				var end *TerminalError
				if !errors.As(err, &end) || end.Code != code || !strings.Contains(err.Error(),
					"argosy agent") {
					t.Fatalf("ends with %v", err)
				}
				if held, _ := LeasesOf(s.f).Renew(t.Context(), s.lease, time.Minute); held {
					t.Error("the lease is kept")
				}
				if _, held, _ := LeasesOf(s.f).Acquire(t.Context(), "l", "h", time.Minute); held {
					t.Error("the lease is granted again")
				}
			})
		})
	}
}

func TestAnAgentReconnectsAfterAGoAway(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		for _, code := range []string{agent.CodeShutdown, agent.CodeRenew, agent.CodeBusy,
			"something-new"} {
			before := h.asked(agent.PathStream)
			h.send(message(agent.EventGoAway, agent.GoAway{Code: code, After: 5 * time.Second}))
			wait(4 * time.Second)
			if h.asked(agent.PathStream) != before {
				t.Errorf("%s: came back before it was time", code)
			}
			wait(time.Minute)
			if h.asked(agent.PathStream) != before+1 {
				t.Errorf("%s: %d streams since", code, h.asked(agent.PathStream)-before)
			}
		}
	})
}

func TestStopsAreUnknownUntilReceived(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		if _, err := StopsOf(s.f).StopRecords(t.Context()); !errors.Is(err, ErrNotRead) {
			t.Fatalf("before: %v", err)
		}
		s.follow()
		h.send(message(agent.EventStops, []mirror.Stop{{Scope: mirror.StopFleet, By: "ada"}}))
		wait(0)
		h.listener.cut(true)
		wait(time.Hour)
		if stops, err := StopsOf(s.f).StopRecords(t.Context()); err != nil ||
			len(stops.Stops) != 1 {
			t.Fatalf("in an outage: %v, %v", stops, err)
		}
	})
}

// A hub whose database went back in time does not list a stop any more. The agent lifts an unlisted
// stop only for a hub that never sends ends.
func TestAnUnlistedStopStaysInForceIfTheHubSendsEnds(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		s.follow()
		h.send(message(agent.EventStops, []mirror.Stop{}))
		wait(0)
		if got, err := StopsOf(s.f).StopRecords(t.Context()); err != nil || !got.Unended {
			t.Fatalf("of a hub without ends: %+v, %v", got, err)
		}
		end := mirror.StopEnd{Scope: mirror.StopFleet, At: time.Now()}
		h.send(message(agent.EventStopEnds, []mirror.StopEnd{end}))
		wait(0)
		if got, err := StopsOf(s.f).StopRecords(t.Context()); err != nil || got.Unended ||
			len(got.Ends) != 1 || !got.Ends[0].At.Equal(end.At) {
			t.Fatalf("of a hub with ends: %+v, %v", got, err)
		}
	})
}

func TestSyncsReachTheWorkerAndTheirStateTheHub(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.put(object("one"))
		s.follow()
		h.send(message(agent.EventSyncs, []agent.Sync{
			{ID: "s1", Name: "one", Revision: "abc", Prune: true},
			{ID: "s2", Namespace: "team", Name: "own"}}))
		wait(0)
		pending, err := s.f.PendingSyncs(t.Context(), testEngine)
		if err != nil || len(pending) != 1 || pending[0].Tenant != "acme" ||
			pending[0].State != mirror.OperationPending || !pending[0].Prune {
			t.Fatalf("%+v, %v", pending, err)
		}
		if own, err := s.f.OwnSyncs(); err != nil || len(own) != 1 || own[0].ID != "s2" {
			t.Errorf("%+v, %v", own, err)
		}
		if err := s.f.UpdateSync(t.Context(), s.lease, "s1", mirror.OperationRunning,
			""); err != nil {
			t.Fatal(err)
		}
		wait(time.Second)
		if again, _ := s.f.PendingSyncs(t.Context(),
			testEngine); again[0].State != mirror.OperationRunning {
			t.Error("the worker would ask again")
		}
		if last := h.taken()[len(h.taken())-1]; len(last.Syncs) != 1 ||
			last.Syncs[0].State != mirror.OperationRunning {
			t.Errorf("%+v", last)
		}
	})
}

func TestAnAgentWorksOnlyForTheInstanceThatItWasInstalledFor(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		h.namespace = "other"
		s.run()
		wait(time.Second)
		_, held, err := LeasesOf(s.f).Acquire(t.Context(), "l", "h", time.Minute)
		if held || err == nil || !strings.Contains(err.Error(), "other") {
			t.Fatalf("%v, %v", held, err)
		}
		if last := h.taken()[len(h.taken())-1]; last.Status == nil || last.Status.Reachable ||
			!strings.Contains(last.Status.Message, "other") {
			t.Errorf("%+v", last)
		}
	})
}

func TestASilentStreamIsReopened(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		silent := true
		// the connection lives and answers pings, but the hub behind it does not
		h.order(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != agent.PathStream || !silent {
				return false
			}
			silent = false
			session, ok := h.session(w, r)
			if !ok {
				return true
			}
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(
				[]byte(message(agent.EventHello, agent.Hello{Protocol: 1, Engine: testEngine,
					Epoch: session.Epoch + 4, Holder: "x", Cursor: session.Cursor})))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		})
		h.put(object("one"))
		s.run()
		wait(idleTimeout - time.Second)
		if n := h.asked(agent.PathStream); n != 1 {
			t.Fatalf("%d streams before it is time", n)
		}
		wait(5 * time.Second)
		if n := h.asked(agent.PathStream); n != 2 {
			t.Fatalf("%d streams", n)
		}
	})
}

// project is a row of an AppProject that permits namespaces with Applications.
func project(namespaces ...string) agent.Row {
	row := agent.Row{Kind: fleet.ObjectProject, Name: "argosy-acme", Tenant: "acme",
		Operation: agent.OperationApplyFurther, Revision: "r1"}
	body := `{"metadata":{"name":"argosy-acme"},"spec":{"sourceNamespaces":["` +
		strings.Join(namespaces, `","`) + `"],"sourceRepos":["https://git.example.com/a?b&c"]}}`
	return manifest(row, body)
}

// applicationIn is a row of an adopted Application in another namespace than Argo CD's.
func applicationIn(namespace, name string) agent.Row {
	row := object(name)
	row.Operation = agent.OperationApplyFurther
	return manifest(row, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, name, namespace))
}

func TestAnAgentWorksInTheNamespacesThatItsClustersAdminAllows(t *testing.T) {
	key := func(r agent.Row) fleet.ObjectKey {
		return fleet.ObjectKey{Engine: testEngine, Kind: r.Kind, Name: r.Name}
	}
	const repos = `"sourceRepos":["https://git.example.com/a?b&c"]}}`
	const head = `{"metadata":{"name":"argosy-acme"},"spec":{`
	for name, c := range map[string]struct {
		allowed []string
		row     agent.Row
		refused string // words of the reason
		body    string // of a row that is changed
	}{
		"an Application there": {allowed: []string{"apps"}, row: applicationIn("apps", "web")},
		"an Application elsewhere": {allowed: []string{"apps"}, row: applicationIn("more", "web"),
			refused: `namespace "more", which this agent's settings do not allow`},
		"an Application with nothing allowed": {row: applicationIn("apps", "web"),
			refused: "--application-namespaces"},
		"the removal of one elsewhere": {allowed: []string{"apps"}, row: func() agent.Row {
			row := applicationIn("more", "web")
			row.Operation = agent.OperationRemove
			return row
		}(), refused: `namespace "more"`},
		"an AppProject in an allowed namespace": {allowed: []string{"apps"}, row: func() agent.Row {
			return manifest(project(), `{"metadata":{"name":"argosy-acme","namespace":"apps"}}`)
		}(), refused: "works only in"},
		"an AppProject that permits it": {allowed: []string{"apps", "more"},
			row: project("apps", "more")},
		"an AppProject that permits more": {allowed: []string{"apps"}, row: project("apps", "more"),
			body: head + `"sourceNamespaces":["apps"],` + repos},
		"an AppProject with nothing allowed": {row: project("apps", "more"), body: head + repos},
	} {
		t.Run(name, func(t *testing.T) {
			m := newRowCache(testEngine, "argocd", c.allowed)
			ack, refused := m.put(&c.row)
			if refused != (c.refused != "") || !strings.Contains(ack.Message, c.refused) {
				t.Fatalf("refused %v: %+v", refused, ack)
			}
			have, there := m.rows[key(c.row)]
			if there == refused {
				t.Fatalf("in the cache: %v", there)
			}
			want := string(c.row.Manifest)
			if c.body != "" {
				want = c.body
			}
			if sum := sha256.Sum256([]byte(want)); !refused &&
				(string(have.row.Manifest.Body) != want || have.sent != c.row.Hash ||
					have.row.Manifest.Hash != hex.EncodeToString(sum[:])) {
				t.Errorf("it holds %s with hash %s, sent as %s", have.row.Manifest.Body,
					have.row.Manifest.Hash, have.sent)
			}
		})
	}
}

func TestTheHubLearnsTheHashThatItHasSent(t *testing.T) {
	bubble(t, func(t *testing.T, h *hubDouble, s *site) {
		row := project("apps")
		h.put(row)
		s.follow()
		s.acquire()
		seq := s.rows()[row.Name].Seq
		key := fleet.ObjectKey{Engine: testEngine, Kind: row.Kind, Name: row.Name}
		written := s.rows()[row.Name].Manifest.Hash
		if written == row.Hash {
			t.Fatal("nothing is left out of the AppProject")
		}
		if err := s.f.Acknowledge(t.Context(), s.lease, []mirror.Ack{{Key: key, Seq: seq,
			Hash: written, State: mirror.ApplyApplied}}); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		var acks []agent.Ack
		h.set(func() {
			for _, r := range h.reports {
				acks = append(acks, r.Acks...)
			}
		})
		if len(acks) != 1 || acks[0].Hash != row.Hash || acks[0].State != mirror.ApplyApplied {
			t.Errorf("the hub got %+v, want hash %s", acks, row.Hash)
		}
	})
}
