package settings

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"time"
)

// Forge is where pull requests against the config repo are opened.
type Forge struct {
	API            string   `yaml:"api,omitempty" doc:"URL of the API: https://HOST/api/v3/ for GitHub Enterprise, https://HOST/api/v1/ for Gitea." default:"https://api.github.com/"`
	Repository     string   `yaml:"repository" doc:"owner/name of the config repo on the forge."`
	RepositoryID   int64    `yaml:"repositoryID,omitempty" doc:"The repository's number on the forge. With it a repository that takes over the name is never believed."`
	App            *App     `yaml:"app,omitempty" doc:"GitHub App that Argosy speaks as; argosy bootstrap github makes one. Exactly one of app and tokenFile."`
	TokenFile      string   `yaml:"tokenFile,omitempty" doc:"File with a token, read anew at each use. With it checks are commit statuses."`
	WebhookSecrets []string `yaml:"webhookSecretFiles,omitempty" doc:"Files with the secrets that deliveries to /webhook/github may be signed with, read anew at each delivery; two while one is rotated. Without any, nothing is delivered and the forge is asked at each sweep."`
	DirectPush     []string `yaml:"directPush,omitempty" doc:"Accounts and teams whose pushes to the branch without a pull request count as reviewed by the platform: github:LOGIN, github:LOGIN#NUMBER (the account's number decides, whoever bears the login) or github:ORG/TEAM. Files that anybody else pushes are held until they are approved. Deliveries tell who pushed: it needs webhookSecretFiles."`
	Sweep          Duration `yaml:"sweep,omitempty" doc:"How often open pull requests and lost deliveries are looked for, 10s to 1h." default:"5m"`
	AllowHTTP      bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// API. For a forge on this machine only: nothing is protected on the way."`
	CAFile         string   `yaml:"caFile,omitempty" doc:"File with the certificates that sign the forge's, for a private CA."`
}

// App is a GitHub App.
type App struct {
	ID             int64  `yaml:"id" doc:"The App's number."`
	InstallationID int64  `yaml:"installationID,omitempty" doc:"Its installation on the repository; left out: asked for."`
	KeyFile        string `yaml:"keyFile" doc:"File with the App's private key (PEM), read anew when a token is made."`
}

var repositoryName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}$`)

var directPusher = regexp.MustCompile(
	`^github:[A-Za-z0-9_.-]{1,100}(#[1-9][0-9]{0,17}|/[A-Za-z0-9_.-]{1,100})?$`)

func (f *Forge) check() error {
	if f == nil {
		return nil
	}
	var errs []error
	u, err := url.Parse(f.API)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "":
		errs = append(errs,
			errors.New(
				"forge.api is to be a URL such as https://api.github.com/, without a credential "+
					"or query"))
	case u.Scheme == "http" && !f.AllowHTTP:
		errs = append(errs,
			errors.New(
				"forge.api is http; use https, or set forge.allowHTTP for a forge on this machine"))
	case u.Scheme != "https" && u.Scheme != "http":
		errs = append(errs, fmt.Errorf("forge.api has the scheme %q; https is supported", u.Scheme))
	}
	if !repositoryName.MatchString(f.Repository) {
		errs = append(errs, errors.New("forge.repository is to be owner/name"))
	}
	if (f.App == nil) == (f.TokenFile == "") {
		errs = append(errs, errors.New("forge needs exactly one of app and tokenFile"))
	}
	if f.App != nil && (f.App.ID <= 0 || f.App.KeyFile == "") {
		errs = append(errs, errors.New("forge.app needs id and keyFile"))
	}
	for _, entry := range f.DirectPush {
		if !directPusher.MatchString(entry) {
			errs = append(errs,
				fmt.Errorf(
					"forge.directPush: %q is to be github:LOGIN, github:LOGIN#NUMBER or "+
						"github:ORG/TEAM", entry))
		}
	}
	if len(f.DirectPush) > 0 && len(f.WebhookSecrets) == 0 {
		errs = append(errs,
			errors.New(
				"forge.directPush needs forge.webhookSecretFiles: signed deliveries alone tell "+
					"who pushed"))
	}
	if d := time.Duration(f.Sweep); d < 10*time.Second || d > time.Hour {
		errs = append(errs, errors.New("forge.sweep is to be 10s to 1h"))
	}
	return errors.Join(errs...)
}

// paths are the files that the section names.
func (f *Forge) paths() []*string {
	if f == nil {
		return nil
	}
	paths := []*string{&f.TokenFile, &f.CAFile}
	for i := range f.WebhookSecrets {
		paths = append(paths, &f.WebhookSecrets[i])
	}
	if f.App != nil {
		paths = append(paths, &f.App.KeyFile)
	}
	return paths
}

// withDefaults fills what is left out.
func (f *Forge) withDefaults() {
	if f == nil {
		return
	}
	if f.API == "" {
		f.API = "https://api.github.com/"
	}
	if f.Sweep == 0 {
		f.Sweep = Duration(5 * time.Minute)
	}
}

// absolute makes the path relative to the settings' folder.
func absolute(dir string, p *string) {
	if *p != "" && !filepath.IsAbs(*p) {
		*p = filepath.Join(dir, *p)
	}
}
