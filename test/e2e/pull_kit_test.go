package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/test/example"
	"argosy.dev/argosy/test/stack"
)

// forged is the example's fleet with its repositories on a real forge, where people have accounts
// and are in the teams of the organization example that the example's owners are. The config repo
// example/config is private there, and so is acme/checkout.
//
//	petra        example/platform: admin of the config repo
//	alice, amir  example/acme-leads: may write to it, as the next two
//	gus          example/globex-leads
//	ines         example/initech-leads
//	eve          a stranger who may read it
type forged struct {
	*system
	forge  *stack.Forge
	config *stack.ForgeRepo
	secret string // of the hook
	// whom Argosy speaks as: an owner of the organization, who alone may see its teams and ask for
	// permissions
	bot    stack.Account
	person map[string]stack.Account
	team   *receivers // of what Argosy sends to others
	issuer *stack.Dex // ana signs in there, of the group engineering
}

// startForged starts the fleet and the Git host without a control plane, for this test alone.
func startForged(t *testing.T) *forged {
	t.Helper()
	t.Parallel()
	semaphore <- struct{}{}
	t.Cleanup(func() { <-semaphore })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := &forged{system: &system{}, secret: "the secret of the hook, thirty-two and more",
		person: map[string]stack.Account{}, team: newReceivers(t)}
	w.startFleet(ctx, t, example.Options{Audit: true,
		TrustedCAs: map[string][]byte{"localhost": w.team.authority}})
	t.Cleanup(func() {
		check(t, w.Fleet.Stop())
		check(t, os.RemoveAll(w.Dir))
	})
	w.startForge(ctx, t)
	w.team.start(t, w.forge.URL)
	w.moveIn(ctx, t)
	return w
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startForge starts it on a database of its own and makes its people.
func (w *forged) startForge(ctx context.Context, t *testing.T) {
	t.Helper()
	postgres, err := stack.StartPostgres(ctx, filepath.Join(w.Dir, "forge-pg"))
	check(t, err)
	t.Cleanup(func() { check(t, postgres.Stop()) })
	database, err := postgres.NewDatabase(ctx, "gitea")
	check(t, err)
	w.forge, err = stack.StartForge(ctx, stack.ForgeOptions{
		Database: database, Dir: filepath.Join(w.Dir, "forge")})
	check(t, err)
	t.Cleanup(func() { check(t, w.forge.Stop()) })
	for _, login := range []string{"petra", "alice", "amir", "gus", "ines", "eve"} {
		w.person[login], err = w.forge.CreateUser(ctx, login)
		check(t, err)
	}
	w.bot, err = w.forge.CreateUser(ctx, "argosy-bot")
	check(t, err)
}

// moveIn puts the repositories of the example's Git server onto the forge, whose addresses the
// config repo has from then on.
func (w *forged) moveIn(ctx context.Context, t *testing.T) {
	t.Helper()
	for _, org := range []string{"example", "acme", "globex", "initech"} {
		check(t, w.forge.CreateOrg(ctx, org))
	}
	check(t, w.forge.JoinOwners(ctx, "example", w.bot))
	for team, logins := range map[string][]string{"platform": {"petra"}, "acme-leads": {
		"alice", "amir"}, "globex-leads": {"gus"}, "initech-leads": {"ines"}} {
		var members []stack.Account
		for _, login := range logins {
			members = append(members, w.person[login])
		}
		permission := "write"
		if team == "platform" {
			permission = "admin"
		}
		_, err := w.forge.CreateTeam(ctx, "example", team, permission, members...)
		check(t, err)
	}
	for name, from := range w.Apps {
		owner, short, _ := strings.Cut(name, "/")
		to, err := w.forge.CreateRepo(ctx, owner, short, name == "acme/checkout")
		check(t, err)
		_, err = from.Git(ctx, "push", "--quiet", to.CloneURL(w.forge.Admin),
			"refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
		check(t, err)
	}
	w.Git.URL = w.forge.URL
	var err error
	w.config, err = w.forge.CreateRepo(ctx, "example", "config", true)
	check(t, err)
	check(t, w.config.Allow(ctx, w.person["eve"], "read"))
	_, err = w.config.Push(ctx, w.person["petra"], stack.Change{Message: "the fleet",
		Write: w.files(t)})
	check(t, err)
}

// files are the config repo's, with a credential for acme's private repository on the forge.
func (w *forged) files(t *testing.T) map[string]string {
	t.Helper()
	files, err := stack.Files(os.DirFS("../../examples/config-repo"))
	check(t, err)
	for path, content := range files {
		files[path] = w.Rewrite(looserGuards(path, content))
	}
	git, err := w.Encrypt("acme", "credentials", "checkout-git", map[string]string{
		"username": w.forge.Admin.Login, "password": w.forge.Admin.Token})
	check(t, err)
	files["tenants/acme/credentials/checkout-git.sops.yaml"] = string(git)
	return files
}

// startControlPlane runs `argosy serve` with the forge, which reports changes by deliveries: the
// control plane itself polls once an hour only.
func (w *forged) startControlPlane(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	token, secret := filepath.Join(w.Dir, "forge-token"), filepath.Join(w.Dir, "hook-secret")
	authority := filepath.Join(w.Dir, "authority.pem")
	check(t, os.WriteFile(authority, w.team.authority, 0o600))
	check(t, os.WriteFile(token, []byte(w.bot.Token), 0o600))
	check(t, os.WriteFile(secret, []byte(w.secret), 0o600))
	listen, err := stack.FreeAddress()
	check(t, err)
	p, err := w.StartPlane(ctx, example.PlaneOptions{
		Binary: binary, Progress: t.Logf, Listen: listen,
		Source: fmt.Sprintf("{url: %q, allowHTTP: true, tokenFile: %q, poll: 1h}", w.config.URL,
			token),
		More: fmt.Sprintf(
			"forge: {api: %q, repository: %q, allowHTTP: true, tokenFile: %q, "+
				"webhookSecretFiles: [%q], sweep: 1h, proposals: true, directPush: [\"github:example/platform\"]}\n"+
				"tracing: {endpoint: %q, allowHTTP: true}\n",
			w.forge.API(), w.config.Name, token, secret, w.team.spans.URL) +
			w.startIssuer(ctx, t, "http://"+listen),
		Env: []string{"SSL_CERT_FILE=" + authority},
	})
	check(t, err)
	w.plane = p
	t.Cleanup(func() {
		if t.Failed() {
			problems, _ := p.Command(context.Background(), "get", "problems").Output()
			t.Logf("problems:\n%s", problems)
		}
		p.Stop()
		w.showLog(t)
	})
	// No deliveries of statuses: Argosy's own would trigger a recheck and hide that another event
	// does not.
	check(t, w.config.CreateHook(ctx, p.URL+"/webhook/github", w.secret, "push", "pull_request",
		"pull_request_review"))
}

// startIssuer runs a Dex for the control plane at this address, whose `signIn:` it returns.
func (w *forged) startIssuer(ctx context.Context, t *testing.T, public string) string {
	t.Helper()
	const password = "the-secret-of-the-client"
	var err error
	w.issuer, err = stack.StartDex(ctx, stack.DexOptions{
		Clients: []stack.DexClient{{ID: "argosy", Secret: password,
			Redirects: []string{public + "/signin/corp/callback"}}},
		People: []stack.DexPerson{{ID: "1", Name: "ana", Email: "ana@example.com", Password: "a",
			Groups: []string{"engineering"}}}})
	check(t, err)
	t.Cleanup(func() { check(t, w.issuer.Stop()) })
	secret := filepath.Join(w.Dir, "client-secret")
	check(t, os.WriteFile(secret, []byte(password), 0o600))
	return fmt.Sprintf("signIn: {issuers: [{name: corp, title: Corp, url: %q, allowHTTP: true, "+
		"clientID: argosy, clientSecretFile: %q, scopes: [openid, profile, email, groups]}]}\n",
		w.issuer.URL, secret)
}

// propose pushes a branch as a person and asks to merge it into main.
func (w *forged) propose(t *testing.T, login, branch string, files map[string]string,
	remove ...string) (number int, head string) {
	t.Helper()
	as := w.person[login]
	head = w.revise(t, login, branch, files, remove...)
	number, err := w.config.OpenPull(t.Context(), as, branch, branch, "main")
	check(t, err)
	return number, head
}

// revise pushes one more commit to a branch as a person.
func (w *forged) revise(t *testing.T, login, branch string, files map[string]string,
	remove ...string) (head string) {
	t.Helper()
	head, err := w.config.Push(t.Context(), w.person[login], stack.Change{
		Branch: branch, Message: branch, Write: files, Remove: remove})
	check(t, err)
	return head
}

// craft makes a commit with the files of another one and with these parents. It is on no branch
// yet.
func (w *forged) craft(t *testing.T, login, files string, parents ...string) (head string) {
	t.Helper()
	args := []string{"-c", "user.name=" + login, "-c", "user.email=" + login + "@example.com",
		"commit-tree", files + "^{tree}", "-m", "crafted"}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	head, err := w.config.Git(t.Context(), w.person[login], args...)
	check(t, err)
	return head
}

// point makes a branch point to a commit, as a person.
func (w *forged) point(t *testing.T, login, branch, commit string) {
	t.Helper()
	check(t, w.config.SetBranch(t.Context(), w.person[login], branch, commit))
}

// comment returns Argosy's comment on the pull request: empty when there is none, and a failure
// when there are two.
func (w *forged) comment(t *testing.T, number int) (text string) {
	t.Helper()
	comments, err := w.config.Comments(t.Context(), number)
	check(t, err)
	for _, c := range comments {
		if c.User.ID != w.bot.ID {
			continue
		}
		if text != "" {
			t.Fatalf("two comments on %d:\n%s\n\n%s", number, text, c.Body)
		}
		text = c.Body
	}
	return text
}

// checks are the current states of a commit's checks by name: "argosy/plan" to "success", with
// their descriptions.
func (w *forged) checks(t *testing.T, head string) map[string]stack.ForgeStatus {
	t.Helper()
	all, err := w.config.Statuses(t.Context(), head)
	check(t, err)
	newest := map[string]stack.ForgeStatus{}
	for _, s := range all {
		if _, known := newest[s.Context]; !known {
			newest[s.Context] = s
		}
	}
	return newest
}

// await waits for a check of the commit to have the state, and gives it.
func (w *forged) await(t *testing.T, head, name, state string) (s stack.ForgeStatus) {
	t.Helper()
	eventually(t, name+" is "+state, func() string {
		if s = w.checks(t, head)[name]; s.State != state {
			return "it is " + s.State + ": " + s.Description
		}
		return ""
	})
	return s
}

// expect fails unless the check has the state now.
func (w *forged) expect(t *testing.T, head, name, state string) {
	t.Helper()
	if s := w.checks(t, head)[name]; s.State != state {
		t.Fatalf("%s is %q and not %s: %s", name, s.State, state, s.Description)
	}
}

// awaitComment waits until the comment has each of the words. The checks are reported before the
// comment is written, so they are done by then.
func (w *forged) awaitComment(t *testing.T, number int, words ...string) {
	t.Helper()
	eventually(t, "the comment has it", func() string {
		text := w.comment(t, number)
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Sprintf("%q is not in\n%s", word, text)
			}
		}
		return ""
	})
}

// ask writes a comment as a person.
func (w *forged) ask(t *testing.T, login string, number int, text string) (id int64) {
	t.Helper()
	id, err := w.config.Comment(t.Context(), w.person[login], number, text)
	check(t, err)
	return id
}

func (w *forged) review(t *testing.T, login string, number int, verdict, head string) {
	t.Helper()
	_, err := w.config.Review(t.Context(), w.person[login], number, verdict, head,
		"as the test asks")
	check(t, err)
}

// merge squashes it into main, as the platform may, and gives the commit.
func (w *forged) merge(t *testing.T, number int) fleet.Revision {
	t.Helper()
	commit, err := w.config.Merge(t.Context(), w.person["petra"], number, "squash")
	check(t, err)
	return fleet.Revision(commit)
}

// close ends it without a merge.
func (w *forged) close(t *testing.T, number int) {
	t.Helper()
	check(t, w.config.ClosePull(t.Context(), w.person["petra"], number))
	w.awaitComment(t, number, "Closed without a merge")
}
