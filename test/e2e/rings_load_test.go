package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

var applicationsOfRing = flag.Int("ring.applications", 0,
	"how many Applications two engines have when their ring changes; make load-ring sets it")

// Two real Argo CDs with many Applications are one ring. It goes from the earliest tested version
// to the latest three times: an Application is Degraded under the later one, and the ring returns;
// the shadow finds a chart that renders differently, and the ring does not begin; nothing is wrong.
// The test prints the time, the requests at the API servers and the events of workloads.
func TestARingOfTwoEnginesWithManyApplications(t *testing.T) {
	n := *applicationsOfRing
	if n == 0 {
		t.Skip("make load-ring runs it: 50 Applications take 6 minutes")
	}
	f := platform.use(t)
	f.allHealthy(t)
	l := ringLoad{system: f, runners: map[string]*podRunner{}}
	const grant = "fleet/tenants/acme.yaml"
	engines := []string{"fleet/engines/eu-1.yaml", "fleet/engines/us-1.yaml"}
	before := map[string]string{grant: f.exampleFile(t, grant),
		guardsFile: looserGuards(guardsFile, f.exampleFile(t, guardsFile))}
	for _, file := range engines {
		before[file] = f.exampleFile(t, file)
	}
	files, rings := ringVersions(t)
	minors := fleet.TestedArgoCD
	l.from, l.to = minors[0], minors[len(minors)-1]
	declare := func(minor, gates string) map[string]string {
		return map[string]string{guardsFile: before[guardsFile] + "  rings:\n    - name: stable\n" +
			rings[minor] + "      soak: 20s\n      gates: {within: 3m" + gates + "}\n"}
	}
	for _, p := range []*example.Place{f.Place("eu-1"), f.Place("us-1")} {
		installRights(t, p)
		l.runners[p.Engine] = runPods(t, p)
	}
	files[grant] = strings.Replace(before[grant], "regions: [eu]", "regions: [eu, us]", 1)
	f.commit(t, "the manifests of Argo CD", files)
	workloads, paths, environments, ids := l.workloads(t, n)
	f.commit(t, "workloads on two engines", workloads)
	f.awaitsHealthy(t, ids...)
	taken := declare(l.from, "")
	for _, file := range engines {
		taken[file] = strings.Replace(before[file], "    installationID:",
			"    managed: true\n    installationID:", 1)
	}
	f.commit(t, "Argosy takes over two Argo CDs", taken)
	l.reaches(t, mirror.RingDone, l.from)
	f.awaitsHealthy(t, ids...)

	t.Log("an Application is Degraded under the later version")
	nightly := f.nightly(t, "ring-eu", "acme-ring-eu")
	f.awaitsHealthy(t, append(ids, nightly)...)
	end := l.measure(t)
	f.commit(t, "a version under which an Application is Degraded", declare(l.to, ""))
	l.reaches(t, mirror.RingHalted, l.to)
	halted := f.ringNamed(t, "stable")
	t.Log(halted.Message)
	if !strings.Contains(halted.Message, "engine eu-1 has 1 Degraded Applications") {
		t.Errorf("it halts with %q", halted.Message)
	}
	returned := time.Now()
	f.runsAgain(t, "stable", "eu-1", l.version(t, l.from))
	t.Logf("eu-1 runs %s again %s after the halt", l.from, since(returned))
	f.awaitsHealthy(t, append(ids, nightly)...)
	end(n + 1 + len(exampleApplications))
	l.run(t, l.from, l.from)
	f.commit(t, "the version before", declare(l.from, ""))
	l.reaches(t, mirror.RingDone, l.from)
	f.remove(t, "no CronJob", nightlyFile)
	f.awaitsHealthy(t, ids...)

	t.Log("a chart renders differently under the later version")
	charted := f.charted(t, "ring-eu", "acme-ring-eu")
	f.awaitsHealthy(t, append(ids, charted)...)
	end = l.measure(t)
	f.commit(t, "a version that renders a chart differently", declare(l.to, ""))
	l.reaches(t, mirror.RingDiffers, l.to)
	t.Log(f.ringNamed(t, "stable").Message)
	if found := list[mirror.Difference](t, f, "differences"); len(found) != 1 ||
		found[0].Deployment != "charted" {
		t.Errorf("differences %+v", found)
	}
	end(1) // the others have the same inputs as before
	l.run(t, l.from, l.from)
	f.commit(t, "the version before", declare(l.from, ""))
	l.reaches(t, mirror.RingDone, l.from)
	f.remove(t, "no chart", chartedFile)
	f.awaitsHealthy(t, ids...)

	t.Log("nothing is wrong")
	end = l.measure(t)
	f.commit(t, "the later version", declare(l.to, ""))
	l.reaches(t, mirror.RingDone, l.to)
	f.awaitsHealthy(t, ids...)
	end(0)
	l.run(t, l.to, l.to)
	if found := list[mirror.Difference](t, f, "differences"); len(found) != 0 {
		t.Errorf("differences %+v", found)
	}

	two := declare(l.to, "")
	two[guardsFile] += "    - name: canary\n" + rings["2.14"] +
		"      soak: 5s\n      gates: {within: 3m, skipShadow: true}\n"
	two[engines[0]] = strings.Replace(taken[engines[0]], "  region:",
		"  ring: canary\n  region:", 1)
	f.commit(t, "eu-1 has 2.14 as before", two)
	f.ringIs(t, "canary", mirror.RingDone, l.version(t, "2.14"))
	given := maps.Clone(before)
	delete(given, grant)
	f.commit(t, "Argosy gives them back", given)
	if removed := f.remove(t, "no more workloads", paths...); n >= guarded {
		f.must(t, "release", string(removed))
	}
	f.allHealthy(t)
	f.remove(t, "nor environments", environments...)
	f.commit(t, "as before", before)
	f.allHealthy(t)
}

// ringLoad is a ring of two engines whose environments are on the cluster of eu-1.
type ringLoad struct {
	*system
	runners  map[string]*podRunner
	from, to string // minor versions
}

var ringNamespaces = []string{"acme-ring-eu", "acme-ring-us"}

// workloads are n Applications, half of them on each engine. One in five is a chart.
func (l ringLoad) workloads(t *testing.T, n int) (files map[string]string, paths, environments,
	ids []string) {
	t.Helper()
	l.chart(t, "plain", "{{ .Values.greeting }}")
	files = map[string]string{}
	staging := l.exampleFile(t, "tenants/acme/environments/staging.yaml")
	checkout := l.exampleFile(t, "tenants/acme/deployments/checkout-staging.yaml")
	for _, region := range []string{"eu", "us"} {
		name := "ring-" + region
		token, err := l.Place("eu-1").Cluster.TenantToken(t.Context(), "acme", "acme-"+name)
		check(t, err)
		check(t, l.WriteSecret("acme", name, "token", token))
		path := "tenants/acme/environments/" + name + ".yaml"
		files[path] = strings.NewReplacer("name: staging", "name: "+name, "acme-staging",
			"acme-"+name, "{tier: staging}", "{tier: dev}", "region: eu", "region: "+region).
			Replace(staging)
		environments = append(environments, path)
	}
	for i := range n {
		name, in := fmt.Sprintf("ring-%d", i), []string{"ring-eu", "ring-us"}[i%2]
		path := "tenants/acme/deployments/" + name + ".yaml"
		if i%10 < 2 {
			files[path] = strings.NewReplacer("path: deploy", "path: plain",
				"targetRevision: v2.0.1", "targetRevision: main, helm: {releaseName: "+name+"}").
				Replace(l.deployment(name, in, "acme-"+in, ""))
		} else {
			files[path] = strings.NewReplacer("name: checkout-staging", "name: "+name,
				"kustomize:", fmt.Sprintf("kustomize:\n      nameSuffix: \"-%d\"", i),
				"[staging]", "["+in+"]", "namespace: acme-staging", "namespace: acme-"+in).
				Replace(checkout)
		}
		paths, ids = append(paths, path), append(ids, "acme/"+name+"@"+in)
	}
	return files, paths, environments, ids
}

// version is the tested version of a minor version.
func (l ringLoad) version(t *testing.T, minor string) string {
	t.Helper()
	version, _, err := stack.ArgoManifests(minor)
	check(t, err)
	return version
}

// reaches waits until the ring has a state with a minor version, and prints when each state began.
func (l ringLoad) reaches(t *testing.T, want mirror.RingState, minor string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	version, began, states := l.version(t, minor), time.Now(), ""
	var last mirror.RingState
	left := stack.Until(ctx, func() string {
		r := l.ringNamed(t, "stable")
		if r.Version != version {
			return fmt.Sprintf("%+v", r)
		}
		if r.State != last {
			last = r.State
			states += fmt.Sprintf(", %s after %s", r.State, since(began))
		}
		if r.State != want {
			return fmt.Sprintf("%+v", r)
		}
		return ""
	})
	t.Logf("ring with %s: %s", version, strings.TrimPrefix(states, ", "))
	if left != "" {
		t.Fatalf("the ring is not %s: %s", want, left)
	}
}

// run checks which versions the two engines run.
func (l ringLoad) run(t *testing.T, eu, us string) {
	t.Helper()
	is := [2]string{l.runners["eu-1"].runs(), l.runners["us-1"].runs()}
	if is != [2]string{eu, us} {
		t.Errorf("the engines run %v", is)
	}
}

// measure begins to count. The returned function prints the figures until then, and fails if a
// workload has changed or fewer Applications were compared.
func (l ringLoad) measure(t *testing.T) (end func(compared int)) {
	t.Helper()
	eu := append([]string{"acme-staging", "acme-checkout", "acme-storefront", "globex-billing",
		"globex-web"}, ringNamespaces...)
	us := []string{"globex-billing", "globex-web", "initech-portal"}
	checkEU := l.untouched(t, l.Place("eu-1").Cluster, eu...)
	checkUS := l.untouched(t, l.Place("us-1").Cluster, us...)
	events := func() int {
		return len(l.auditedIn(t, "eu-1", eu...)) + len(l.auditedIn(t, "us-1", us...))
	}
	began, lines := time.Now(), len(l.compared(t))
	reads, writes := l.requests(t)
	had := events()
	return func(compared int) {
		t.Helper()
		r, w := l.requests(t)
		t.Logf("%s: %d requests of Argosy at both API servers, %d of them writes; %d events of "+
			"workloads", since(began), r-reads+w-writes, w-writes, events()-had)
		checkEU("during the change")
		checkUS("during the change")
		l.comparisons(t, lines, compared)
	}
}

// requests counts those of Argosy's accounts so far.
func (l ringLoad) requests(t *testing.T) (reads, writes int) {
	t.Helper()
	for _, engine := range []string{"eu-1", "us-1"} {
		log, err := stack.ReadAudit(filepath.Join(l.Dir, engine+".audit"))
		check(t, err)
		for _, e := range log {
			switch {
			case e.Stage != "ResponseComplete" || !strings.Contains(e.User.Username, "argosy"):
			case e.Writes() && !strings.Contains(e.ObjectRef.Resource, "reviews"):
				writes++
			default:
				reads++
			}
		}
	}
	return reads, writes
}

// comparison is a line of the control plane's log about compared Applications.
type comparison struct {
	applications        int
	took, present, next time.Duration
}

var comparisonLine = regexp.MustCompile(`applications=(\d+) .*took=(\S+) present=(\S+) next=(\S+)`)

func (l ringLoad) compared(t *testing.T) (all []comparison) {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(l.plane.Config, ".yaml") + ".log")
	check(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "Applications compared") {
			continue
		}
		m := comparisonLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no figures: %s", line)
		}
		var c comparison
		c.applications, err = strconv.Atoi(m[1])
		check(t, err)
		for i, d := range []*time.Duration{&c.took, &c.present, &c.next} {
			*d, err = time.ParseDuration(m[2+i])
			check(t, err)
		}
		all = append(all, c)
	}
	return all
}

// comparisons prints the figures of the shadows since a line.
func (l ringLoad) comparisons(t *testing.T, from, least int) {
	t.Helper()
	var sum comparison
	for _, c := range l.compared(t)[from:] {
		t.Logf("one round: %d Applications in %s", c.applications, c.took)
		sum.applications += c.applications
		sum.took += c.took
		sum.present += c.present
		sum.next += c.next
	}
	if sum.applications < least {
		t.Errorf("%d Applications were compared, want %d", sum.applications, least)
	}
	if sum.applications == 0 {
		return
	}
	each := func(d time.Duration) time.Duration {
		return (d / time.Duration(sum.applications)).Round(time.Millisecond)
	}
	t.Logf("%d Applications were compared: %s each, two at a time; one call of the present "+
		"repo-server %s, of the next %s", sum.applications, each(sum.took), each(sum.present),
		each(sum.next))
}

func since(t time.Time) time.Duration { return time.Since(t).Round(100 * time.Millisecond) }
