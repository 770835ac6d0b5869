package github

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// installation holds the tokens of the App's installation for the repository. A token reaches that
// one repository, with no more permissions than needed.
type installation struct {
	conn *connection
	id   int64 // 0: looked up
	lock chan struct{}

	current string // under turn
	until   time.Time
}

// needed is what the calls of this package need.
var needed = map[string]string{
	"checks": "write", "contents": "read", "issues": "write", "members": "read", "metadata": "read",
	"pull_requests": "write", "statuses": "write",
}

// useful is asked for only where the App was granted it: it shows the doctor a branch's protection.
var useful = map[string]string{"administration": "read"}

type installed struct {
	ID          int64             `json:"id"`
	AppID       int64             `json:"app_id"`
	SuspendedAt *time.Time        `json:"suspended_at"`
	Permissions map[string]string `json:"permissions"`
}

func (i installed) check() error {
	if i.ID <= 0 {
		return errors.New("an installation has no id")
	}
	return nil
}

type granted struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

func (g granted) check() error {
	if !isToken(g.Token) {
		return errors.New("the token is none")
	}
	return nil
}

// token is one that is good for two minutes more. Of those who ask at once one gets it, and the
// others wait for that.
func (i *installation) token(ctx context.Context) (string, error) {
	select {
	case i.lock <- struct{}{}:
		defer func() { <-i.lock }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if i.current != "" && time.Now().Before(i.until) {
		return i.current, nil
	}
	g, err := i.ask(ctx)
	if err != nil {
		return "", fmt.Errorf("a token of the App's installation: %w", err)
	}
	// A clock that is wrong must neither keep a dead token nor get a new one for each request.
	now := time.Now()
	i.current, i.until = g.Token, g.ExpiresAt.Add(-2*time.Minute)
	if i.until.Before(now.Add(time.Minute)) {
		i.until = now.Add(time.Minute)
	}
	if i.until.After(now.Add(58 * time.Minute)) {
		i.until = now.Add(58 * time.Minute)
	}
	return i.current, nil
}

// forget drops a token that the Git host refused.
func (i *installation) forget() {
	i.lock <- struct{}{}
	i.current = ""
	<-i.lock
}

func (i *installation) ask(ctx context.Context) (granted, error) {
	f := i.conn
	in, err := i.find(ctx)
	if err != nil {
		return granted{}, err
	}
	a, err := f.send(ctx, call{client: f.app, method: http.MethodPost,
		path: path("app", "installations", number(in.ID), "access_tokens"), body: i.scope(in)})
	if err != nil {
		return granted{}, err
	}
	return read[granted](a)
}

func (i *installation) find(ctx context.Context) (installed, error) {
	f := i.conn
	c := call{client: f.app, method: http.MethodGet, path: path("app", "installations",
		number(i.id))}
	if i.id == 0 {
		c.path = in(f.name, "installation")
	}
	a, err := f.send(ctx, c)
	if isGone(err) {
		return installed{},
			fmt.Errorf("the App is not installed for %s, or this is another App's key: %w", f.name,
				err)
	}
	if err != nil {
		return installed{}, err
	}
	found, err := read[installed](a)
	switch {
	case err != nil:
		return installed{}, err
	case found.AppID != f.appID:
		return installed{}, fmt.Errorf("the installation %d is another App's", found.ID)
	case found.SuspendedAt != nil:
		return installed{},
			fmt.Errorf("the App's installation %d is suspended since %s; lift that on the Git host",
				found.ID, found.SuspendedAt.UTC().Format(time.RFC3339))
	}
	return found, nil
}

// scope requests the needed part of the installation's permissions: the Git host would refuse a
// request for more as a whole.
func (i *installation) scope(in installed) any {
	body := map[string]any{}
	if id := i.conn.pin.Load(); id != 0 {
		body["repository_ids"] = []int64{id}
	} else {
		_, name, _ := cutName(i.conn.name)
		body["repositories"] = []string{name}
	}
	permissions := map[string]string{}
	for _, wanted := range []map[string]string{needed, useful} {
		for name, level := range wanted {
			if name == "contents" && i.conn.writes {
				level = "write"
			}
			switch has := in.Permissions[name]; {
			case has == "":
			case has == "read":
				permissions[name] = has
			default:
				permissions[name] = level
			}
		}
	}
	if len(permissions) > 0 {
		body["permissions"] = permissions
	}
	return body
}

// self is the account that we speak with. It is kept for as long as the credential is the same.
func (f *connection) self(ctx context.Context) (account, error) {
	var key [32]byte
	if f.app == nil {
		token, err := f.client.Client().Transport.(*authorized).token(ctx)
		if err != nil {
			return account{}, &credentialError{err}
		}
		key = sha256.Sum256([]byte(token))
	}
	f.mu.Lock()
	us, ok := f.us[key]
	f.mu.Unlock()
	if ok {
		return us, nil
	}
	us, err := f.whoAmI(ctx)
	if err != nil {
		return account{}, fmt.Errorf("who we are at the Git host: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.us) // a credential that was replaced does not come back
	f.us[key] = us
	return us, nil
}

// whoAmI asks for the account: a token's user, or the bot that an App acts as.
func (f *connection) whoAmI(ctx context.Context) (account, error) {
	if f.app == nil {
		a, err := f.get(ctx, "user", nil)
		if err != nil {
			return account{}, err
		}
		return read[account](a)
	}
	a, err := f.send(ctx, call{client: f.app, method: http.MethodGet, path: "app"})
	if err != nil {
		return account{}, err
	}
	us, err := read[app](a)
	if err != nil {
		return account{}, err
	}
	if us.ID != f.appID {
		return account{}, fmt.Errorf("the Git host takes us for the App %d, not %d", us.ID, f.appID)
	}
	if a, err = f.get(ctx, path("users", us.Slug+"[bot]"), nil); err != nil {
		return account{}, err
	}
	return read[account](a)
}
