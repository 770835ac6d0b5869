package stack

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Forge is a running Gitea: repositories over HTTP, pull requests, reviews, comments, commit
// statuses and signed webhooks, with an API that has GitHub's paths below /api/v1/. Its pages lack
// their scripts and styles; nothing else is missing.
//
// Differences from GitHub's answers, as observed; TestForgeAndGitHub checks each:
//
//   - There are no check runs, no list of a hook's deliveries, no /user/{id}, no
//     /rate_limit and nothing of Apps: 404.
//   - /commits/{sha}/pulls is 404. /commits/{sha}/pull knows only the commit that
//     a merged pull request ended in, not those it brought along.
//   - Teams have numbers: /teams/{id}/members. /orgs/{org}/teams/{name} is 404;
//     /orgs/{org}/teams/search?q= finds the number. Only the team's members and the
//     organization's owners may list them; other members of the organization get
//     403. /users/{org} answers as if the organization were a person.
//   - A commit status has its state in "status", not in "state", takes any word for
//     it, and its description any length. The combined one has "state"; a warning
//     in it comes to failure. The list of a commit's statuses is sorted by whole
//     seconds unless asked otherwise, and "leastindex" gives the newest first.
//   - A review's state is APPROVED, REQUEST_CHANGES or COMMENT; GitHub's is
//     APPROVED, CHANGES_REQUESTED or COMMENTED. A dismissed one keeps its state and
//     has "dismissed"; a later approval or rejection of the same person sets that
//     too, also one of an older commit. "stale" comes a moment after the head has
//     moved. "official" is not for deciding: it stays on a review that an admin
//     dismissed.
//   - A permission may also be "owner". Only an admin of the repository may ask for
//     another's.
//   - Lists have 30 entries a page, 50 at most, asked for by "limit": "per_page" is
//     ignored. The Link header shows whether there are more. The comments of a pull
//     request have no pages: each page is all of them.
//   - A comment that was edited shows it by "updated_at" alone, in whole seconds:
//     an edit in the second of its posting cannot be seen. Accounts with write
//     permission may edit the comments of others.
//   - refs/pull/N/head can be fetched, refs/pull/N/merge does not exist.
//   - The merge is POST with "do" for its style, and answers nothing. A pull request
//     that was just opened or pushed to may not be merged for a moment: 405.
//   - A draft is a pull request whose title begins with "WIP:".
//   - Deliveries of reviews have X-GitHub-Event: pull_request_approved,
//     pull_request_rejected or pull_request_comment; GitHub sends
//     pull_request_review. The action is "reviewed". A dismissal is not delivered.
//     The action of a push to a pull request is "synchronized"; GitHub sends
//     "synchronize".
type Forge struct {
	URL   string  // e.g. "http://127.0.0.1:20123", without a slash at its end
	Admin Account // administrator of the whole forge
	// with ForgeOptions.SSH: its SSH server, host:port, whose user is git; and that server's line
	// in known_hosts
	SSH, KnownHosts string
	*Process

	folder   folder
	home     string // what Gitea writes; its own user's
	binary   string
	database string
	port     int
	user     *syscall.Credential
	git      *GitServer // runs git for pushes; serves nothing

	mu    sync.Mutex
	repos map[string]*ForgeRepo
}

// ForgeOptions describe a forge. Database is required.
type ForgeOptions struct {
	Database string // URL of an empty PostgreSQL database
	Dir      string // a temporary folder when empty
	SSH      bool   // with Gitea's own SSH server
}

// StartForge makes a forge and returns when it answers and has an
// administrator: 3 to 5 s and 160 MB. Gitea never runs as root; a root caller's
// runs as PostgreSQL's user, under the same rules for the folders above it.
// Webhooks are delivered at once, and to loopback only.
func StartForge(ctx context.Context, o ForgeOptions) (*Forge, error) {
	f := &Forge{database: o.Database, repos: map[string]*ForgeRepo{}}
	if err := f.prepare(o); err != nil {
		return nil, errors.Join(fmt.Errorf("gitea: %w", err), f.folder.remove())
	}
	if err := f.Start(ctx); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	if err := f.appoint(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("gitea: administrator: %w", err), f.Stop())
	}
	return f, nil
}

// prepare makes the folders, the settings and the address.
func (f *Forge) prepare(o ForgeOptions) (err error) {
	if f.binary, err = part("gitea", filepath.Join("bin", "gitea")); err != nil {
		return err
	}
	static, err := part("gitea", "gitea")
	if err != nil {
		return err
	}
	git, err := exec.LookPath("git")
	if err != nil {
		return fmt.Errorf("%w: install git", err)
	}
	f.git = &GitServer{git: git}
	if f.user, err = postgresUser(); err != nil {
		return err
	}
	if f.folder, err = openFolder(o.Dir, "gitea"); err != nil {
		return err
	}
	f.home = filepath.Join(f.folder.path, "gitea")
	if err := os.MkdirAll(f.home, 0o700); err != nil {
		return err
	}
	if f.port, err = freePort(); err != nil {
		return err
	}
	f.URL = "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(f.port))
	if o.SSH {
		if err := f.prepareSSH(); err != nil {
			return err
		}
	}
	settings, err := f.settings(static)
	if err != nil {
		return err
	}
	if err := os.WriteFile(f.settingsFile(), []byte(settings), 0o600); err != nil {
		return err
	}
	if err := give(f.user, f.home, f.settingsFile()); err != nil {
		return err
	}
	return errors.Join(passable(f.user, f.home), passable(f.user, f.binary),
		passable(f.user, filepath.Join(static, "VERSION")))
}

// Start runs it again after Kill, with what it had.
func (f *Forge) Start(ctx context.Context) (err error) {
	f.Process, err = StartProcess(Command{
		Name: "gitea", Path: f.binary, Args: f.arguments("web"), Env: f.environment(),
		Dir: f.home, Log: filepath.Join(f.folder.path, "gitea.log"), User: f.user,
	})
	if err != nil {
		return err
	}
	return f.Await(ctx, func(ctx context.Context) error {
		return answers(ctx, nil, f.API()+"version")
	})
}

// Stop ends it and removes the folder that StartForge made.
func (f *Forge) Stop() error {
	f.Process.Stop()
	return f.folder.remove()
}

// API is the base URL of the API, e.g. "http://127.0.0.1:20123/api/v1/".
func (f *Forge) API() string { return f.URL + "/api/v1/" }

// appoint makes the administrator, which only Gitea's own command can do.
func (f *Forge) appoint(ctx context.Context) error {
	f.Admin = Account{Login: administrator, Password: rand.Text()}
	cmd := exec.CommandContext(ctx, f.binary, f.arguments("admin", "user", "create", "--admin",
		"--username", administrator,
		"--password", f.Admin.Password, "--email", administrator+"@example.com",
		"--must-change-password=false")...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = f.home, f.environment(), &syscall.SysProcAttr{
		Credential: f.user}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	return f.identify(ctx, &f.Admin)
}

const administrator = "forge-admin"

func (f *Forge) arguments(command ...string) []string {
	return append([]string{"--config", f.settingsFile(), "--work-path", f.home}, command...)
}

func (f *Forge) settingsFile() string { return filepath.Join(f.home, "app.ini") }

// environment is all that it sees: nothing of the machine's own. It writes git's
// settings below its home.
func (f *Forge) environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.home, "TMPDIR=" + f.home,
		"GIT_CONFIG_NOSYSTEM=1"}
}
