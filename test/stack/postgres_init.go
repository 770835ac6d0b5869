package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// initCluster makes the cluster's files unless they are there, and returns the superuser's
// password. The socket needs none: only its owner may enter its folder.
func initCluster(ctx context.Context, bin, home string, cred *syscall.Credential) (string, error) {
	passwordFile := filepath.Join(home, "password")
	if _, err := os.Stat(filepath.Join(home, "data", "PG_VERSION")); err == nil {
		password, err := os.ReadFile(passwordFile)
		return string(password), err
	}
	password := rand.Text()
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return "", err
	}
	if err := give(cred, passwordFile); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", filepath.Join(home, "data"),
		"--username="+superuser, "--pwfile="+passwordFile, "--auth-host=scram-sha-256",
		"--auth-local=trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	cmd.Dir, cmd.Env = home, postgresEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb in %s: %w: %s", home, err, out)
	}
	return password, nil
}

// postgresEnv keeps PGDATA, PGPORT and their like from the server.
func postgresEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "PG")
	})
}

// postgresBin is the folder with initdb and postgres that scripts/parts.sh
// found or fetched.
func postgresBin() (string, error) {
	path, err := part("postgres", filepath.Join("bin", "postgres-bin"))
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

// postgresUser is whom the server runs as: nil for this process's own user.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	var problems []error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, fmt.Errorf("it refuses to run as root, and there is no other user: %w",
		errors.Join(problems...))
}

// give makes the paths the user's alone.
func give(cred *syscall.Credential, paths ...string) error {
	if cred == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, int(cred.Uid), int(cred.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// passable lets the user walk down to path. Folders above it that keep others
// out are opened for passing through, not for reading, but only below the
// temporary folder, where tests keep theirs.
func passable(cred *syscall.Credential, path string) error {
	if cred == nil {
		return nil
	}
	for up := filepath.Dir(path); up != filepath.Dir(up); up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 != 0 {
			continue
		}
		if !strings.HasPrefix(up, filepath.Clean(os.TempDir())+"/") {
			return fmt.Errorf(
				"%s keeps the user %d of PostgreSQL out: allow passing through it (chmod o+x), "+
					"or put %s elsewhere", up, cred.Uid, path)
		}
		if err := os.Chmod(up, info.Mode().Perm()|0o001); err != nil {
			return err
		}
	}
	return nil
}
