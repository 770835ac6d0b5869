//go:build unix

package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// serverUser returns the user of the server: nil for our own user, another if we are root.
func serverUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil,
		errors.New(
			"PostgreSQL does not run as root, and there is no user postgres or nobody: run as " +
				"another user, or give database.url")
}

// give makes paths the server's.
func give(who *syscall.Credential, paths ...string) error {
	if who == nil {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// passable reports which folder above dir keeps the server's user out.
func passable(who *syscall.Credential, dir string) error {
	if who == nil {
		return nil
	}
	for up := filepath.Dir(dir); ; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			return err
		}
		if info.Mode()&0o001 == 0 {
			return fmt.Errorf(
				"%s keeps the user %d out, whom PostgreSQL runs as: allow passing through it "+
					"(chmod o+x), or choose another folder", up, who.Uid)
		}
		if up == filepath.Dir(up) {
			return nil
		}
	}
}

// initialise makes the cluster's files unless they are there, and returns the password. They are
// made beside their place and moved, so that an interrupted start leaves nothing half made.
func (s *Server) initialise(ctx context.Context, bin string, who *syscall.Credential) (string,
	error) {
	data, file := filepath.Join(s.dir, "data"), filepath.Join(s.dir, "password")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		password, err := os.ReadFile(file)
		return string(password), err
	}
	unfinished := data + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return "", err
	}
	if err := os.Mkdir(unfinished, 0o700); err != nil {
		return "", err
	}
	password := rand.Text()
	if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
		return "", err
	}
	if err := give(who, unfinished, file); err != nil {
		return "", err
	}
	init := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", unfinished, "-U", role,
		"--pwfile="+file,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C")
	init.Dir = "/"
	init.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if out, err := init.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return password, os.Rename(unfinished, data)
}
