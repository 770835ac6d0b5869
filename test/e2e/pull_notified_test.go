package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"argosy.dev/argosy/test/stack"
)

// aTeamIsNotified breaks an Application and repairs it: the team's webhook and mailbox get a
// message of each, the commits of its repository have their statuses, and a collector gets the way
// of the commit that declared it.
func aTeamIsNotified(t *testing.T, w *forged) {
	const app, file = "acme/notified@staging", "tenants/acme/deployments/notified.yaml"
	storefront, err := w.forge.Repo(t.Context(), "acme/storefront")
	check(t, err)
	release := func(version, more string) (commit string) {
		t.Helper()
		commit, err := storefront.Push(t.Context(), w.forge.Admin, stack.Change{Message: version,
			Write: map[string]string{"notified/app.yaml": strings.ReplaceAll(
				rollingPods(version, more), "rolling", "notified")}})
		check(t, err)
		return commit
	}
	first := release("one", "restartPolicy: Always")
	fleetBefore, tenantBefore := w.declares(t, guardsFile), w.declares(t, "fleet/tenants/acme.yaml")
	declared, err := w.config.Push(t.Context(), w.person["petra"], stack.Change{
		Message: "a team is notified", Write: w.notifiesATeam(t, file, fleetBefore, tenantBefore)})
	check(t, err)
	w.allHealthy(t, app)

	w.hasStatus(t, storefront, first, "success", "deployed to staging")
	if out := w.must(t, "notify", "test", "hook", "--tenant", "acme"); !strings.Contains(out,
		"sent to channel hook: 200 OK") {
		t.Errorf("the test of a channel: %s", out)
	}
	w.team.has(t, "test message of Argosy")
	eventually(t, "the collector has the way of the commit", func() string {
		w.team.mu.Lock()
		defer w.team.mu.Unlock()
		names := w.team.commits[declared]
		for _, want := range []string{"commit", "fetched", "planned", "recorded", "application",
			"write", "sync"} {
			if !names[want] {
				return fmt.Sprintf("no span %s of %s in %v", want, declared, names)
			}
		}
		return ""
	})

	faulty := release("two", "priorityClassName: none-of-this-name")
	compared := func() { w.must(t, "refresh", app, "--yes", "--wait") } // Argo CD polls in minutes
	compared()
	w.team.has(t, app+" is Degraded")
	w.hasStatus(t, storefront, faulty, "failure", "failed in staging")
	repaired := release("three", "restartPolicy: Always")
	compared()
	w.team.has(t, app+" is well again")
	w.hasStatus(t, storefront, repaired, "success", "deployed to staging")
	w.hasStatus(t, storefront, first, "success", "replaced")
	w.team.mu.Lock()
	if mails := len(w.team.mails); mails != 2 {
		t.Errorf("%d e-mails", mails)
	}
	w.team.mu.Unlock()
	if out := w.must(t, "get", "notifications", "--tenant", "acme"); strings.Count(out,
		"Sent") < 4 {
		t.Errorf("the messages:\n%s", out)
	}
	if out := w.must(t, "get", "commit-statuses", "--tenant", "acme"); !strings.Contains(out,
		repaired[:8]) || !strings.Contains(out, "Succeeded") {
		t.Errorf("the statuses:\n%s", out)
	}

	_, err = w.config.Push(t.Context(), w.person["petra"], stack.Change{Message: "no longer",
		Write:  map[string]string{guardsFile: fleetBefore, "fleet/tenants/acme.yaml": tenantBefore},
		Remove: []string{file, notificationsFile, hookFile, statusesFile}})
	check(t, err)
	w.allHealthy(t)
}

const (
	notificationsFile = "tenants/acme/notifications.yaml"
	hookFile          = "tenants/acme/credentials/hook.sops.yaml"
	statusesFile      = "tenants/acme/credentials/statuses.sops.yaml"
)

// notifiesATeam declares the Application of a repository behind TLS, and who is notified.
func (w *forged) notifiesATeam(t *testing.T, file, fleet, tenant string) map[string]string {
	t.Helper()
	host := w.team.host(t)
	mail := fmt.Sprintf("localhost:%d", w.team.mailPort)
	check(t, w.WriteSecret("_fleet", "smtp", "username", mailUser))
	check(t, w.WriteSecret("_fleet", "smtp", "password", mailPassword))
	hook, err := w.Encrypt("acme", "credentials", "hook", map[string]string{
		"signingKey": signingKey})
	check(t, err)
	statuses, err := w.Encrypt("acme", "credentials", "statuses", map[string]string{
		"token": w.forge.Admin.Token})
	check(t, err)
	fleet = strings.Replace(fleet, "  gitHosts:\n", "  gitHosts:\n    - "+host+"\n", 1)
	return map[string]string{
		guardsFile: fleet + fmt.Sprintf(`  notifications:
    allowedHosts: [%q]
    privateHosts: [%q, %q]
    emailDomains: [example.com]
    smtp: {host: localhost, port: %d, from: argosy@example.com, credentialsRef: {name: smtp}}
`, host, host, mail, w.team.mailPort),
		"fleet/tenants/acme.yaml": strings.Replace(tenant, "  repositories:\n",
			"  repositories:\n    - https://"+host+"/acme/\n", 1),
		hookFile: string(hook), statusesFile: string(statuses),
		notificationsFile: fmt.Sprintf(`apiVersion: argosy.dev/v1alpha1
kind: TenantNotifications
metadata: {name: notifications}
spec:
  channels:
    - {name: hook, webhook: {url: "https://%s/in", credentialsRef: {name: hook}}}
    - {name: mail, email: {to: [team@example.com]}}
  subscriptions:
    - name: all
      channels: [hook, mail]
      triggers: [{when: Degraded, for: 1s}, {when: HealthyAgain}]
  commitStatuses:
    - name: git
      repositories: ["https://%s/acme/"]
      api: Gitea
      credentialsRef: {name: statuses}
`, host, host),
		file: strings.NewReplacer(w.forge.URL, "https://"+host, "v2.0.1", "main", "path: deploy",
			"path: notified").Replace(w.deployment("notified", "staging", "acme-staging", "")),
	}
}

// declares is a file of the config repo.
func (w *forged) declares(t *testing.T, path string) string {
	t.Helper()
	text, err := w.config.Git(t.Context(), w.person["petra"], "show", "main:"+path)
	check(t, err)
	return strings.TrimSuffix(text, "\n") + "\n"
}

// hasStatus waits until the newest status of an Application's commit is this one.
func (w *forged) hasStatus(t *testing.T, repo *stack.ForgeRepo, commit, state, text string) {
	t.Helper()
	eventually(t, "the status of "+commit[:7]+" is "+state, func() string {
		all, err := repo.Statuses(t.Context(), commit)
		if err != nil {
			return err.Error()
		}
		for _, s := range all {
			if s.Context != "argosy/acme/notified@staging" {
				continue
			}
			if s.State != state || !strings.Contains(s.Description, text) {
				return s.State + ": " + s.Description
			}
			return ""
		}
		return fmt.Sprintf("none in %+v", all)
	})
}

// has waits until the webhook has a message with this title. Of one with an Application the mailbox
// has one too.
func (r *receivers) has(t *testing.T, title string) {
	t.Helper()
	eventually(t, title, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		mailed := slices.ContainsFunc(r.mails, func(m string) bool {
			return strings.Contains(m, title)
		})
		if !slices.ContainsFunc(r.titles, func(got string) bool {
			return strings.Contains(got, title)
		}) || strings.HasPrefix(title, "acme/") && !mailed {
			return fmt.Sprintf("the webhook has %q, the mailbox %q", r.titles, r.mails)
		}
		return ""
	})
}
