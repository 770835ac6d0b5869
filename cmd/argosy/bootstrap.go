package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/webhook/github"
)

func bootstrapCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bootstrap HOST", Short: "Register Argosy with a Git host", Args: cobra.ArbitraryArgs,
		Example: "  argosy bootstrap github --org acme --url https://argosy.example.com --out " +
			"/etc/argosy",
		RunE: func(*cobra.Command, []string) error {
			return errors.New(
				"name the Git host: github. For Gitea, create an account and a token, and name " +
					"the token's file in forge.tokenFile")
		},
	}
	cmd.AddCommand(bootstrapGitHub(a))
	return cmd
}

// registrationTime is how long GitHub keeps a code, and so how long we wait for one.
const registrationTime = time.Hour

// registration holds the flags of the App to register.
type registration struct {
	name, org, url, api, out, listen string
	proposals                        bool
}

func bootstrapGitHub(a *app) *cobra.Command {
	var r registration
	cmd := &cobra.Command{
		Use: "github", Short: "Register a GitHub App from a manifest and save its key and secret",
		Args: exactly(),
		Long: "Serves a page on this machine that sends your browser to GitHub with the App's\n" +
			"manifest: permissions, events, webhook URL. GitHub sends the browser back with a\n" +
			"code, and the command writes the App's private key and webhook secret to files\n" +
			"that only you may read. It never overwrites a file.",
		Example: "  argosy bootstrap github --org acme --url https://argosy.example.com --out " +
			"/etc/argosy\n" +
			"  argosy bootstrap github --url https://argosy.example.com --api " +
			"https://github.example.com/api/v3/",
	}
	cmd.Flags().StringVar(&r.url, "url", "",
		"URL by which GitHub reaches the control plane (required)")
	cmd.Flags().StringVar(&r.org, "org", "",
		"organization that will own the App (default: yourself)")
	cmd.Flags().StringVar(&r.name, "name", "Argosy", "name of the App, unique on GitHub")
	cmd.Flags().StringVar(&r.api, "api", "https://api.github.com/",
		"URL of the API; GitHub Enterprise: https://HOST/api/v3/")
	cmd.Flags().BoolVar(&r.proposals, "proposals", false,
		"let it write to branches, for forge.proposals: pull requests of Argosy's own")
	cmd.Flags().StringVar(&r.out, "out", ".", "folder for the key and the secret")
	cmd.Flags().StringVar(&r.listen, "listen", "127.0.0.1:0", "address of the page on this machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), registrationTime)
		defer cancel()
		return a.register(ctx, r)
	}
	return cmd
}

// Files that a registration leaves.
const (
	keyFile    = "github-app.pem"
	secretFile = "github-webhook-secret"
)

func (a *app) register(ctx context.Context, r registration) error {
	public, err := url.Parse(r.url)
	if err != nil || public.Host == "" || public.Scheme != "https" && public.Scheme != "http" {
		return errors.New(
			"--url is required: the control plane's URL for GitHub, such as " +
				"https://argosy.example.com")
	}
	for _, name := range []string{keyFile, secretFile} {
		if _, err := os.Lstat(filepath.Join(r.out, name)); err == nil {
			return fmt.Errorf(
				"%s already exists from an earlier registration: move it away, or choose "+
					"another --out", filepath.Join(r.out, name))
		}
	}
	made, err := a.converse(ctx, r)
	if err != nil {
		return err
	}
	if err := keep(r.out, made); err != nil {
		return err
	}
	a.hint("The App %s is registered. Install it on the config repo: %s/installations/new",
		made.Slug, made.HTMLURL)
	a.hint("Then add this to argosy.yaml:")
	proposals := ""
	if r.proposals {
		proposals = "  proposals: true\n"
	}
	_, err = fmt.Fprintf(
		a.out,
		"forge:\n%s  repository: OWNER/NAME\n  app: {id: %d, keyFile: %q}\n  "+
			"webhookSecretFiles: [%q]\n%slisten:\n  publicURL: %s\n",
		apiLine(r.api), made.ID, keyFile, secretFile, proposals,
		strings.TrimSuffix(r.url, "/"))
	return err
}

// converse serves the page that begins the registration, and waits for the browser to come back
// with a code.
func (a *app) converse(ctx context.Context, r registration) (github.Registration, error) {
	var l net.ListenConfig
	listener, err := l.Listen(ctx, "tcp", r.listen)
	if err != nil {
		return github.Registration{}, fmt.Errorf("--listen: %w", err)
	}
	state := rand.Text()
	here := "http://" + listener.Addr().String()
	form, manifest, err := github.Manifest(
		github.Proposal{BaseURL: r.api, AllowHTTP: r.onThisMachine(), Name: r.name, URL: r.url,
			Org: r.org, State: state, Proposals: r.proposals,
			HookURL:     strings.TrimSuffix(r.url, "/") + "/webhook/github",
			RedirectURL: here + "/registered"})
	if err != nil {
		_ = listener.Close() // nothing was served
		return github.Registration{}, err
	}
	codes := make(chan string, 1)
	server := &http.Server{Handler: registrar(form, string(manifest), state, codes),
		ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }() // ends with Close
	defer func() { _ = server.Close() }()
	a.hint("Open this page in a browser on this machine: %s/", here)
	select {
	case <-ctx.Done():
		return github.Registration{}, fmt.Errorf("no answer from GitHub: %w", ctx.Err())
	case code := <-codes:
		return github.Convert(ctx, github.Config{BaseURL: r.api, AllowHTTP: r.onThisMachine()},
			code)
	}
}

// onThisMachine reports whether the forge is one on this machine, which needs no TLS.
func (r registration) onThisMachine() bool { return strings.HasPrefix(r.api, "http://127.0.0.1:") }

var begin = template.Must(
	template.New("begin").Parse(
		`<!doctype html><html lang="en"><meta charset="utf-8"><title>Register Argosy</title>
<h1>Register Argosy</h1><p>GitHub shows what the App may do before anything is made.</p>
<form method="post" action="{{.Form}}"><input type="hidden" name="manifest" value="{{.Manifest}}"><button>Go to GitHub</button></form></html>`))

// registrar serves the page on this machine. Only a browser that it sent to GitHub comes back with
// its state.
func registrar(form, manifest, state string, codes chan<- string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		// the browser closed the connection: it can ask again
		_ = begin.Execute(w, map[string]string{"Form": form, "Manifest": manifest})
	})
	mux.HandleFunc("GET /registered", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(state)) != 1 ||
			q.Get("code") == "" {
			http.Error(
				w,
				"this request does not come from the page that began the registration: start again",
				http.StatusBadRequest)
			return
		}
		select {
		case codes <- q.Get("code"):
		default: // it came before
		}
		// the browser may be gone: the terminal shows the result too
		_, _ = fmt.Fprintln(w, "Registered. Go back to the terminal.")
	})
	return mux
}

// keep writes the key and the secret, each to a file that was not there and that only its owner may
// read.
func keep(dir string, made github.Registration) error {
	for name, key := range map[string]string{
		keyFile: github.PrivateKey, secretFile: github.WebhookSecret} {
		if err := keepOne(filepath.Join(dir, name), made.Secret, key); err != nil {
			return fmt.Errorf("%w; the App is registered: create a new key or secret on its page",
				err)
		}
	}
	return nil
}

func keepOne(path string, secret fleet.Secret, key string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(secret.Value(key))
	return errors.Join(err, f.Close())
}

func apiLine(api string) string {
	if api == "https://api.github.com/" {
		return ""
	}
	return fmt.Sprintf("  api: %s\n", api)
}
