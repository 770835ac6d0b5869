package metering

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

// served is what an application-controller serves: apps Applications, and two clusters with n
// comparisons each, three of four within half a second and the others within two.
func served(apps, n int, cpu, waited float64) string {
	var b strings.Builder
	b.WriteString(
		"# HELP argocd_app_info Information about application.\n# TYPE argocd_app_info gauge\n")
	for i := range apps {
		fmt.Fprintf(
			&b,
			"argocd_app_info{name=\"app-%d\",namespace=\"argocd\",repo=\"https://git.example.com/process_cpu_seconds_total\"} 1\n", i)
	}
	b.WriteString(
		"# HELP argocd_app_reconcile Application reconciliation performance.\n# TYPE " +
			"argocd_app_reconcile histogram\n")
	for _, server := range []string{"https://a", "https://b"} {
		for _, bucket := range []struct {
			le string
			n  int
		}{{"0.25", n / 4}, {"0.5", 3 * n / 4}, {"1", 3 * n / 4}, {"2", n}, {"+Inf", n}} {
			fmt.Fprintf(
				&b, "argocd_app_reconcile_bucket{dest_server=%q,namespace=\"argocd\",le=%q} %d\n",
				server, bucket.le, bucket.n)
		}
		fmt.Fprintf(&b, "argocd_app_reconcile_sum{dest_server=%q,namespace=\"argocd\"} %d\n",
			server, n)
		fmt.Fprintf(&b, "argocd_app_reconcile_count{dest_server=%q,namespace=\"argocd\"} %d\n",
			server, n)
	}
	fmt.Fprintf(&b, `# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total %g
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 3.5e+08
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.7e+09
# TYPE workqueue_depth gauge
workqueue_depth{controller="app_reconciliation_queue",name="app_reconciliation_queue",priority=""} 7
workqueue_depth{controller="project_reconciliation_queue",name="project_reconciliation_queue"} 900
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="app_reconciliation_queue",le="1"} %d
workqueue_queue_duration_seconds_bucket{name="app_reconciliation_queue",le="+Inf"} %d
workqueue_queue_duration_seconds_sum{name="app_reconciliation_queue"} %g
workqueue_queue_duration_seconds_count{name="app_reconciliation_queue"} %d
workqueue_queue_duration_seconds_sum{name="project_reconciliation_queue"} 1e6
workqueue_queue_duration_seconds_count{name="project_reconciliation_queue"} 1
`, cpu, n, n, waited, n)
	return b.String()
}

func parse(t *testing.T, text string) Sample {
	t.Helper()
	s, _, err := Parse(fleet.ApplicationController, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseSumsTheSeriesOfTheQueueOfApplications(t *testing.T) {
	s := parse(t, served(3, 40, 12.5, 80))
	if s.Started != 1.7e9 || s.CPU != 12.5 || s.Memory != 3.5e8 || s.Queue != 7 ||
		s.WaitSum != 80 ||
		s.WaitCount != 40 {
		t.Errorf("%+v", s)
	}
	want := []Bucket{{0.25, 20}, {0.5, 60}, {1, 60}, {2, 80}, {math.Inf(1), 80}}
	if fmt.Sprint(s.Compared) != fmt.Sprint(want) {
		t.Errorf("comparisons %v, want %v", s.Compared, want)
	}
	// a repo-server has other families
	r, _, err := Parse(fleet.RepoServer, strings.NewReader("process_cpu_seconds_total 3\n"+
		"process_start_time_seconds 1\nargocd_repo_pending_request_total{repo=\"a\"} 2\n"+
		"argocd_repo_pending_request_total{repo=\"b\"} 3"))
	if err != nil || r.Pending != 5 || r.CPU != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A response with many Applications leaves no more behind than one with few.
func TestParseKeepsNothingOfAnApplication(t *testing.T) {
	few, many := served(1, 40, 1, 1), served(20000, 40, 1, 1)
	keeps := func(text string) int {
		kept, size, err := filter(families[fleet.ApplicationController], strings.NewReader(text))
		if err != nil || size != len(text) {
			t.Fatalf("%d of %d bytes: %v", size, len(text), err)
		}
		return kept.Len()
	}
	if keeps(few) != keeps(many) {
		t.Errorf("%d bytes are kept of 20,000 Applications, and %d of one", keeps(many), keeps(few))
	}
}

func TestParseRefuses(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("process_cpu_seconds_total 1\n"),
		forever('x'))
	broken := io.MultiReader(strings.NewReader(served(1, 1, 1, 1)), failing{})
	for name, c := range map[string]struct {
		body io.Reader
		want string
	}{
		"an endless response": {endless, "more than 32 MiB"},
		"many parsed series": {repeated("workqueue_depth{name=\"app_reconciliation_queue\"} 1\n"),
			"more than 4 MiB of the families"},
		"a page": {
			strings.NewReader("<html>sign in</html>"), "has no workqueue_depth"},
		"another process": {
			strings.NewReader("process_start_time_seconds 1\nprocess_cpu_seconds_total 1\n"),
			"has no workqueue_depth"},
		"no number": {strings.NewReader("process_start_time_seconds x\n"),
			"text format"},
		"a truncated response": {broken, "truncated"},
		"an empty response":    {strings.NewReader(""), "has no workqueue_depth"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse(fleet.ApplicationController, c.body)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

type forever byte

func (f forever) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(f)
	}
	return len(b), nil
}

type repeated string

func (r repeated) Read(b []byte) (int, error) {
	if len(b) < len(r) {
		return 0, io.ErrShortBuffer
	}
	return copy(b, r), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("reset") }

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-6*max(1, math.Abs(want)) }

func TestAMeterShowsRatesOfOneProcess(t *testing.T) {
	now := time.Unix(1.8e9, 0)
	m := NewMeter()
	add := func(after time.Duration, text string) mirror.Load {
		now = now.Add(after)
		return m.Add(now, []Reading{{Component: fleet.ApplicationController, Endpoint: "a",
			Sample: parse(t, text)}})
	}
	if l := add(0, served(0, 100, 10, 100)); l.Controller != nil || l.Fresh(now) ||
		!strings.Contains(l.Message, "two readings") {
		t.Errorf("after one reading: %+v", l)
	}
	// 30 s of CPU in a minute; 2 * 40 comparisons; 40 waits of 3 s
	l := add(time.Minute, served(0, 140, 40, 220))
	c := l.Controller
	if c == nil || !near(c.CPU, 0.5) || c.Memory != 3.5e8 || c.Queue != 7 || c.Processes != 1 ||
		!near(c.Wait, 3) || !l.At.Equal(now) || l.Message != "" {
		t.Fatalf("%+v of %+v", c, l)
	}
	// 60 of 80 took at most 0.5 s, 80 at most 2 s: the 76th lies at 4/5 between 1 s and 2 s
	if !near(c.Compare, 1.8) || !near(c.Lag(), 4.8) {
		t.Errorf("comparisons take %g, lag %g", c.Compare, c.Lag())
	}
	// the average moves by 1 - 1/e in five minutes
	l = add(5*time.Minute, served(0, 180, 40, 220))
	if want := 0.5 / math.E; !near(l.Controller.CPU, want) {
		t.Errorf("CPU %g, want %g", l.Controller.CPU, want)
	}
	// without a comparison, the last duration stays, and the wait grows while Applications queue
	before := *l.Controller
	l = add(5*time.Minute, served(0, 180, 40, 220))
	if !near(l.Controller.Compare, before.Compare) || l.Controller.Wait <= before.Wait+100 {
		t.Errorf("%+v after %+v", l.Controller, before)
	}
	// another process: its counters begin again
	before = *l.Controller
	restarted := strings.Replace(served(0, 10, 1, 1), "1.7e+09", "1.7001e+09", 1)
	if l = add(time.Minute, restarted); *l.Controller != before {
		t.Errorf("a restart gave %+v", l.Controller)
	}
	if l = add(time.Minute, restarted); l.Controller.CPU < 0 || l.Controller.CPU >= before.CPU {
		t.Errorf("after a restart %+v, before %+v", l.Controller, before)
	}
	if l.Fresh(now.Add(mirror.LoadMaxAge)) || !l.Fresh(now.Add(time.Minute)) {
		t.Error("the age of a load does not count")
	}
}

// Argo CD's application-controller reports its process only if its binary links other components.
func TestAMeterWithoutProcessesShowsTheQueue(t *testing.T) {
	m, now := NewMeter(), time.Unix(1.8e9, 0)
	var l mirror.Load
	for i, n := range []int{100, 140, 20, 40} {
		var kept []string
		for line := range strings.Lines(served(0, n, 0, float64(n))) {
			if !strings.Contains(line, "process_") {
				kept = append(kept, line)
			}
		}
		l = m.Add(now.Add(time.Duration(i)*time.Minute), []Reading{{Endpoint: "url",
			Component: fleet.ApplicationController, Sample: parse(t, strings.Join(kept, ""))}})
		if c := l.Controller; i > 0 && (c.Queue != 7 || !near(c.Wait, 1) || c.CPU != 0) {
			t.Errorf("reading %d: %+v", i, c)
		}
	}
	if !strings.Contains(l.Message, "does not report its CPU and memory") {
		t.Errorf("message %q", l.Message)
	}
}

func TestAMeterAddsUpProcessesAndNamesThoseThatFail(t *testing.T) {
	now := time.Unix(1.8e9, 0)
	m := NewMeter()
	read := func(cpu float64, third error) mirror.Load {
		now = now.Add(time.Minute)
		s := parse(t, served(0, 100, cpu, 100))
		return m.Add(now, []Reading{
			{Component: fleet.ApplicationController, Endpoint: "pod a:8082", Sample: s},
			{Component: fleet.ApplicationController, Endpoint: "pod b:8082", Sample: s},
			{Component: fleet.ApplicationController, Endpoint: "pod c:8082", Sample: s, Err: third},
			{Component: fleet.RepoServer, Endpoint: "service r:8084",
				Sample: Sample{Started: 1, CPU: cpu / 2, Memory: 10, Pending: 4}}})
	}
	refused := errors.New("403 Forbidden")
	read(0, refused)
	l := read(60, refused)
	if l.Controller == nil || !near(l.Controller.CPU, 2) || l.Controller.Processes != 2 ||
		l.RepoServer == nil || !near(l.RepoServer.CPU, 0.5) || l.RepoServer.Pending != 4 {
		t.Errorf("%+v, %+v", l.Controller, l.RepoServer)
	}
	if want := "applicationController at pod c:8082: 403 Forbidden"; l.Message != want {
		t.Errorf("message %q, want %q", l.Message, want)
	}
	if l = read(120, nil); l.Message != "" || l.Controller.Processes != 2 {
		t.Errorf("the third process counts before its second reading: %+v", l)
	}
	if l = read(180, nil); l.Controller.Processes != 3 {
		t.Errorf("%+v", l.Controller)
	}
}

func TestAReportedLoadIsBounded(t *testing.T) {
	l := mirror.Load{Controller: &mirror.ControllerLoad{ProcessLoad: mirror.ProcessLoad{
		Processes: 1 << 40, CPU: math.Inf(1), Memory: math.NaN()}, Queue: -3, Wait: 1e300}}.Sane()
	want := mirror.ControllerLoad{ProcessLoad: mirror.ProcessLoad{
		Processes: fleet.MaxMetricsEndpoints, CPU: 1e4}, Wait: 1e6}
	if *l.Controller != want {
		t.Errorf("%+v, want %+v", *l.Controller, want)
	}
}

func TestGetFollowsNoRedirectAndSendsNoCredential(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		if asked > 1 {
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, served(1, 1, 1, 1))
	}))
	defer server.Close()
	body, err := Get(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = body.Close() }()
	if _, _, err := Parse(fleet.ApplicationController, body); err != nil {
		t.Error(err)
	}
	if _, err := Get(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), "302") {
		t.Errorf("a redirect: %v", err)
	}
	if _, err := Get(t.Context(), "http://169.254.169.254"); err == nil || !strings.Contains(
		err.Error(), "serves no metrics") {
		t.Errorf("a link-local address: %v", err)
	}
}
