package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/crypto/bcrypt"
)

// Dex is a running Dex, an OpenID provider, with its state in memory.
type Dex struct {
	URL string // of the issuer
	*Process

	folder  folder
	options DexOptions
	port    int
}

// DexOptions of StartDex.
type DexOptions struct {
	Dir     string // of its files; a temporary folder when empty
	Clients []DexClient
	People  []DexPerson
}

// DexClient is a client that Dex knows.
type DexClient struct {
	ID, Secret string
	Redirects  []string
}

// DexPerson is somebody who signs in with an e-mail address and a password.
type DexPerson struct {
	ID, Name, Email, Password string
	Groups                    []string
}

// StartDex starts a Dex and returns when it answers its discovery. A sign-in
// approves its client.
func StartDex(ctx context.Context, o DexOptions) (_ *Dex, err error) {
	d := &Dex{options: o}
	if d.folder, err = openFolder(o.Dir, "dex"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("dex: %w", err), d.Stop())
		}
	}()
	if d.port, err = freePort(); err != nil {
		return nil, err
	}
	d.URL = fmt.Sprintf("http://127.0.0.1:%d/dex", d.port)
	return d, d.Start(ctx)
}

// Start starts the Dex again after End, with new signing keys, and with the people as they are now.
func (d *Dex) Start(ctx context.Context) error {
	path, err := part("dex", "bin/dex")
	if err != nil {
		return err
	}
	config, err := d.config()
	if err != nil {
		return err
	}
	file := filepath.Join(d.folder.path, "dex.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	d.Process, err = StartProcess(Command{Name: "dex", Path: path, Args: []string{"serve", file},
		Log: filepath.Join(d.folder.path, "dex.log")})
	if err != nil {
		return err
	}
	return d.Await(ctx, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			d.URL+"/.well-known/openid-configuration", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return errors.New(answer.Status)
		}
		return nil
	})
}

// End ends the process and keeps the files, so that Start can follow.
func (d *Dex) End() {
	if d.Process != nil {
		d.Process.Stop()
	}
}

// SetPeople changes who may sign in, from the next Start on.
func (d *Dex) SetPeople(people []DexPerson) { d.options.People = people }

// Stop ends the Dex and removes its files, unless their folder was given.
func (d *Dex) Stop() error {
	d.End()
	return d.folder.remove()
}

// config is dex.yaml; JSON is YAML.
func (d *Dex) config() ([]byte, error) {
	type object = map[string]any
	clients, people := []object{}, []object{}
	for _, c := range d.options.Clients {
		clients = append(clients, object{"id": c.ID, "name": c.ID, "secret": c.Secret,
			"redirectURIs": append([]string{"/dex/device/callback"}, c.Redirects...)})
	}
	for _, p := range d.options.People {
		hash, err := bcrypt.GenerateFromPassword([]byte(p.Password), bcrypt.DefaultCost)
		if err != nil {
			return nil, err
		}
		people = append(people, object{"email": p.Email, "hash": string(hash), "userID": p.ID,
			"username": p.Name, "preferredUsername": p.Name, "groups": p.Groups})
	}
	return json.MarshalIndent(object{
		"issuer": d.URL, "storage": object{"type": "memory"},
		"web":              object{"http": fmt.Sprintf("127.0.0.1:%d", d.port)},
		"oauth2":           object{"skipApprovalScreen": true},
		"enablePasswordDB": true, "staticClients": clients, "staticPasswords": people,
		"logger": object{"level": "debug"},
	}, "", "  ")
}

// maxHops is how many pages a sign-in at Dex has at most.
const maxHops = 20

var tags = regexp.MustCompile(`(?s)<style.*?</style>|<[^>]*>`)

var formAction = regexp.MustCompile(`<form[^>]*\baction="([^"]*)"`)

// SignIn goes the way of a person's browser from a URL of Dex, such as the one of the authorization
// or of a device's code, to the first address outside of Dex, or to Dex's last page. It returns
// that address, "" for a last page. The client of the caller's own site is not involved.
func (d *Dex) SignIn(ctx context.Context, from, email, password string) (string, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	at, form := from, url.Values(nil)
	for range maxHops {
		if !strings.HasPrefix(at, d.URL) {
			return at, nil
		}
		next, page, err := step(ctx, client, at, form)
		if err != nil {
			return "", err
		}
		if next != "" {
			at, form = next, nil
			continue
		}
		action := formAction.FindStringSubmatch(page)
		if action == nil {
			return "", nil // the last page, as after a device's code
		}
		to, err := url.Parse(at)
		if err != nil {
			return "", err
		}
		target, err := to.Parse(strings.ReplaceAll(action[1], "&amp;", "&"))
		if err != nil {
			return "", err
		}
		if strings.Contains(page, "Invalid") ||
			form != nil && strings.Contains(page, `name="login"`) {
			return "", errors.New("dex refuses the password")
		}
		form = url.Values{"login": {email}, "password": {password}}
		if strings.Contains(page, `name="user_code"`) {
			form = url.Values{"user_code": {to.Query().Get("user_code")}}
		}
		at = target.String()
	}
	return "", fmt.Errorf("dex: %d pages, and no end, at %s", maxHops, at)
}

// step requests one page, by POST if there is a form. It returns where it redirects to, or the
// page.
func step(ctx context.Context, client *http.Client, at string, form url.Values) (next, page string,
	err error) {
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, at, strings.NewReader(body))
	if err != nil {
		return "", "", err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := client.Do(req)
	if err != nil {
		return "", "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return "", "", err
	}
	if to, err := answer.Location(); err == nil {
		return to.String(), "", nil
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return "", "", fmt.Errorf("dex answers %s to %s %s: %s", answer.Status, method, at,
			strings.Join(strings.Fields(tags.ReplaceAllString(string(text), " ")), " "))
	}
	return "", string(text), nil
}
