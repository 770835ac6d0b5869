// Package settings is argosy.yaml: how one control plane is run. It is strict: an unknown key, a
// wrong type or a value out of range is an error with its line, and nothing has two spellings.
package settings

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet/printable"
)

// Settings is the whole file.
type Settings struct {
	Source    Source    `yaml:"source" doc:"The config repo."`
	Database  Database  `yaml:"database" doc:"The database of the mirror. Exactly one of url, urlFile and embedded."`
	DataDir   string    `yaml:"dataDir" doc:"A folder of this replica's own for the bare mirror of the config repo. Losing it costs one clone."`
	Secrets   Secrets   `yaml:"secrets,omitempty" doc:"Sources of the content of a credentialsRef."`
	Listen    Listen    `yaml:"listen,omitempty" doc:"Addresses of the API, the page and the probes."`
	Forge     *Forge    `yaml:"forge,omitempty" doc:"The Git host of the config repo's pull requests. Left out: Argosy reviews none."`
	SignIn    *SignIn   `yaml:"signIn,omitempty" doc:"Identity providers that people sign in with, and their sessions. Left out: only bearer tokens are accepted."`
	Engines   Engines   `yaml:"engines,omitempty" doc:"Writes to engines."`
	Agents    Agents    `yaml:"agents,omitempty" doc:"Clusters that dial out (pull mode)."`
	Retention Retention `yaml:"retention,omitempty" doc:"Days that the database keeps history."`
	Tracing   *Tracing  `yaml:"tracing,omitempty" doc:"A collector of OpenTelemetry that gets the steps of each commit as spans. Left out: none are exported; argosy trace needs none."`
	Log       Log       `yaml:"log,omitempty" doc:"The log on standard error."`
	Bootstrap string    `yaml:"bootstrapTokenFile,omitempty" doc:"File with a platform token (at least 32 characters) that is valid while the file exists; use it to create the first other tokens."`
}

// Source is the config repo.
type Source struct {
	URL            string   `yaml:"url" doc:"https or ssh URL of the config repo, or an absolute path of a bare repository on this machine. No credential in it."`
	Branch         string   `yaml:"branch,omitempty" doc:"The branch to apply." default:"main"`
	Poll           Duration `yaml:"poll,omitempty" doc:"Interval of polling the branch without a notification, 1s to 1h." default:"30s"`
	AllowHTTP      bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// URL. For a Git server on this machine only: the connection is not encrypted."`
	TokenFile      string   `yaml:"tokenFile,omitempty" doc:"File with a token for https, read at each fetch."`
	Username       string   `yaml:"username,omitempty" doc:"User name for https with passwordFile."`
	PasswordFile   string   `yaml:"passwordFile,omitempty" doc:"File with the password, read at each fetch."`
	SSHKeyFile     string   `yaml:"sshKeyFile,omitempty" doc:"File with a private key for ssh, read at each fetch."`
	KnownHostsFile string   `yaml:"knownHostsFile,omitempty" doc:"File with the accepted host keys; required for ssh."`
	CAFile         string   `yaml:"caFile,omitempty" doc:"File with the CA certificates of the server, for https with a private CA."`
	MaxBytes       int64    `yaml:"maxBytes,omitempty" doc:"Maximum bytes of one fetch on the wire; 0 is 512 MiB."`
	MaxObjects     int      `yaml:"maxObjects,omitempty" doc:"Maximum objects of one fetch; 0 is 2,000,000. Each takes about 150 bytes of memory while the fetch runs."`
	MaxObjectBytes int64    `yaml:"maxObjectBytes,omitempty" doc:"Maximum bytes of one object of the config repo in memory, such as a folder's list of entries; 0 is 64 MiB. A larger one blocks only its own folder."`
	MaxFiles       int      `yaml:"maxFiles,omitempty" doc:"Maximum files and folders in fleet/, and in each tenant's folder; 0 is 250,000. A larger folder is not read, and its applied declarations stay in effect."`
	FetchTimeout   Duration `yaml:"fetchTimeout,omitempty" doc:"Timeout of a fetch, 10s to 24h, plus one second for every 64 KiB received: a slow clone continues while it makes progress." default:"5m"`
}

// Duration is written as text, e.g. "30s".
type Duration time.Duration

// Database is the connection to the mirror.
type Database struct {
	URL      string `yaml:"url,omitempty" doc:"PostgreSQL URL. With a password in it, prefer urlFile."`
	URLFile  string `yaml:"urlFile,omitempty" doc:"File with the PostgreSQL URL, such as a mounted Secret."`
	Embedded string `yaml:"embedded,omitempty" doc:"Folder for a PostgreSQL of this machine, run as a child process. For a laptop or a trial."`
	Migrate  bool   `yaml:"migrate,omitempty" doc:"Migrate the schema at the start. Off: the start only checks that it is new enough, and you run argosy migrate." default:"true"`

	Connections Connections `yaml:"connections,omitempty" doc:"Maximum connections of this replica, by purpose. In addition it opens one that listens, and four with a Git host. A size that is left out is its default, or its share of the URL's pool_max_conns."`
}

// Connections are the sizes of the pools.
type Connections struct {
	Control int `yaml:"control,omitempty" doc:"For leases, emergency stops, approvals and readiness, 2 to 100. Nothing else uses them." default:"4"`
	Workers int `yaml:"workers,omitempty" doc:"For the loop, the engines' workers, the reports of agents, and webhook deliveries, 2 to 1000. Add one for about every five engines above twenty." default:"8"`
	Readers int `yaml:"readers,omitempty" doc:"For the API, the page, event streams and the reads of agents, 2 to 1000." default:"8"`
}

// Secrets lists the sources of credentials, in this order: beside the declaration (*.sops.yaml),
// the directory, the Kubernetes Secrets.
type Secrets struct {
	Directory  string      `yaml:"directory,omitempty" doc:"Folder with <tenant>/<name>/<key> files; _fleet/<name>/<key> for the platform's own."`
	Kubernetes *Kubernetes `yaml:"kubernetes,omitempty" doc:"Secrets in namespaces argosy-tenant-<tenant> of the control plane's cluster."`
	Age        *Age        `yaml:"age,omitempty" doc:"Identities that open *.sops.yaml files."`
}

// Kubernetes is the control plane's cluster.
type Kubernetes struct {
	Kubeconfig string `yaml:"kubeconfig,omitempty" doc:"Kubeconfig file; left out: the cluster that this process runs in."`
	Namespace  string `yaml:"namespace" doc:"Namespace of the platform's own Secrets, such as engines' kubeconfigs."`
}

// Age holds the operator's identities.
type Age struct {
	IdentityFile     string `yaml:"identityFile,omitempty" doc:"File of age-keygen. It opens the files of every tenant that has no identity of its own."`
	TenantIdentities string `yaml:"tenantIdentities,omitempty" doc:"Folder with one file of age-keygen per tenant, named as the tenant. Only that identity opens the tenant's files; it is read at each use."`
}

// Listen is the HTTP server.
type Listen struct {
	Address        string   `yaml:"address,omitempty" doc:"host:port of the API and the page." default:"127.0.0.1:8080"`
	Ops            string   `yaml:"ops,omitempty" doc:"host:port of /healthz, /readyz and /metrics, which require no token." default:"127.0.0.1:8081"`
	CertFile       string   `yaml:"certFile,omitempty" doc:"Certificate; with keyFile the API is served by TLS. Both are reloaded when they change."`
	KeyFile        string   `yaml:"keyFile,omitempty" doc:"Private key of certFile."`
	Public         string   `yaml:"publicURL,omitempty" doc:"URL of the page for people and of the API for agents: used in links of pull requests, and the audience of agents' proofs."`
	TrustedProxies []string `yaml:"trustedProxies,omitempty" doc:"Networks, such as 10.0.0.0/8, of proxies whose X-Forwarded-For names the client's address. Without it, limits by address use the peer, so that all clients of an unlisted proxy share one."`
}

// Engines is how engines are written to.
type Engines struct {
	InFlight int      `yaml:"inFlight,omitempty" doc:"Concurrent writes to one engine, 1 to 64. Argosy sends fewer while its API server throttles." default:"32"`
	Poll     Duration `yaml:"poll,omitempty" doc:"Interval of polling rows without a notification, 1s to 10m." default:"5s"`
}

// Retention is how many days history is kept.
type Retention struct {
	Events     int `yaml:"events,omitempty" doc:"Days for events of streams and the page, 1 to 365." default:"7"`
	Operations int `yaml:"operations,omitempty" doc:"Days for ended operations, used releases and invalid tokens, 7 to 3650." default:"90"`
	Revisions  int `yaml:"revisions,omitempty" doc:"Days for revisions without a remaining object, and for the results of syncs whose SyncRun is gone, 30 to 3650. A SyncRun of the same name runs again after that." default:"365"`
	Pulls      int `yaml:"pulls,omitempty" doc:"Days for closed pull requests and their plans, 30 to 3650." default:"365"`
	Audit      int `yaml:"audit,omitempty" doc:"Days for the audit log, 90 to 36500. Export it before if you must keep it longer." default:"730"`
}

// Log is the level and format of the log.
type Log struct {
	Level  string `yaml:"level,omitempty" doc:"debug, info, warn or error." default:"info"`
	Format string `yaml:"format,omitempty" doc:"text or json." default:"text"`
}

// Agents is pull mode: clusters that dial out.
type Agents struct {
	Enabled         bool `yaml:"enabled,omitempty" doc:"Serve agents. Requires listen.publicURL, the audience of their proofs." default:"true"`
	ConnectRate     int  `yaml:"connectRate,omitempty" doc:"Sessions that agents may open with this replica per second, 1 to 1000. Further ones wait in the order of their arrival." default:"100"`
	LegacyTokenPath bool `yaml:"legacyTokenPath,omitempty" doc:"Also answer GET /api/v1/cluster/<token>/applications for clusters set up by hand. A token in a URL ends up in the logs of proxies: leave it off unless a client still uses the route." default:"false"`
}

// Forge is where pull requests against the config repo are opened.
type Forge struct {
	API            string   `yaml:"api,omitempty" doc:"URL of the API: https://HOST/api/v3/ for GitHub Enterprise, https://HOST/api/v1/ for Gitea." default:"https://api.github.com/"`
	Repository     string   `yaml:"repository" doc:"owner/name of the config repo on the Git host."`
	RepositoryID   int64    `yaml:"repositoryID,omitempty" doc:"The repository's number on the Git host. With it, another repository that takes over the name is never accepted."`
	App            *App     `yaml:"app,omitempty" doc:"GitHub App of Argosy; argosy bootstrap github creates one. Exactly one of app and tokenFile."`
	TokenFile      string   `yaml:"tokenFile,omitempty" doc:"File with a token, read at each use. With a token, checks are commit statuses."`
	WebhookSecrets []string `yaml:"webhookSecretFiles,omitempty" doc:"Files with the secrets of signed deliveries to /webhook/github, read at each delivery; two during a rotation. Without any, Argosy accepts no delivery and polls the Git host at each sweep."`
	DirectPush     []string `yaml:"directPush,omitempty" doc:"Accounts and teams whose pushes to the branch without a pull request count as reviewed by the platform: github:LOGIN, github:LOGIN#NUMBER (the number decides, whatever account has the login) or github:ORG/TEAM. Files that another account pushes are held until they are released. Requires webhookSecretFiles, since only deliveries name the account that pushed."`
	Proposals      bool     `yaml:"proposals,omitempty" doc:"Open pull requests of Argosy's own: one that makes the rollbacks of a deployment lasting. Its account or App then needs the right to write to branches: protect source.branch." default:"false"`
	Sweep          Duration `yaml:"sweep,omitempty" doc:"Interval of the search for open pull requests and lost deliveries, 10s to 1h." default:"5m"`
	AllowHTTP      bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// API. For a Git host on this machine only: the connection is not encrypted."`
	CAFile         string   `yaml:"caFile,omitempty" doc:"File with the CA certificates of the Git host, for a private CA."`
}

// App is a GitHub App.
type App struct {
	ID             int64  `yaml:"id" doc:"The App's number."`
	InstallationID int64  `yaml:"installationID,omitempty" doc:"Its installation on the repository; left out: looked up."`
	KeyFile        string `yaml:"keyFile" doc:"File with the App's private key (PEM), read for each new token."`
}

// Load reads and checks the file. Relative paths in it are relative to its folder.
func Load(path string) (Settings, error) {
	f, err := os.Open(path)
	if err != nil {
		return Settings{}, fmt.Errorf("settings: %w", err)
	}
	defer f.Close()
	s, err := parse(f)
	if err != nil {
		return Settings{}, fmt.Errorf("%s: %w", path, err)
	}
	s.resolve(filepath.Dir(path))
	return s, nil
}

func parse(r io.Reader) (Settings, error) {
	s := Settings{
		Source: Source{Branch: "main", Poll: Duration(30 * time.Second),
			FetchTimeout: Duration(5 * time.Minute)},
		Database: Database{Migrate: true},
		Listen:   Listen{Address: "127.0.0.1:8080", Ops: "127.0.0.1:8081"},
		Engines:  Engines{InFlight: 32, Poll: Duration(5 * time.Second)},
		Agents:   Agents{Enabled: true, ConnectRate: 100},
		Log:      Log{Level: "info", Format: "text"},
	}
	dec := yaml.NewDecoder(io.LimitReader(r, 1<<20))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil {
		if errors.Is(err, io.EOF) {
			return s, errors.New("is empty; `argosy schema settings` prints its schema")
		}
		return s, err
	}
	return s, s.check()
}

func (s *Settings) check() error {
	s.Forge.withDefaults()
	s.SignIn.withDefaults()
	s.Tracing.withDefaults()
	return errors.Join(s.Source.check(), s.Database.check(), s.Forge.check(), s.Agents.check(),
		s.checkSignIn(), s.Tracing.check(),
		s.Retention.check(), s.checkRest())
}

// withDefaults sets the fields that are empty.
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

func (s *Source) check() error {
	var errs []error
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		errs = append(
			errs, errors.New("source.url is required: the config repo's https or ssh URL"))
	case strings.HasPrefix(s.URL, "/"):
	case err != nil:
		errs = append(
			errs,
			errors.New("source.url is no URL; write https://host/path or ssh://user@host/path"))
	case u.User != nil && (u.Scheme != "ssh" || hasPassword(u)):
		errs = append(
			errs,
			errors.New(
				"source.url carries a credential; put it into a file and name that in "+
					"source.tokenFile or source.passwordFile"))
	case u.Scheme == "http" && !s.AllowHTTP:
		errs = append(
			errs,
			errors.New(
				"source.url is http; use https, or set source.allowHTTP for a Git server on "+
					"this machine"))
	case u.Scheme == "file":
		errs = append(
			errs,
			fmt.Errorf(
				"source.url: a repository on this machine is named by its path alone; write %s",
				filepath.Join("/", u.Path)))
	case u.Scheme == "":
		errs = append(
			errs,
			errors.New(
				"source.url is neither a URL nor an absolute path; write https://host/path, or "+
					"for a repository on this machine its path from the root"))
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		errs = append(errs, fmt.Errorf("source.url has the scheme %q; https and ssh are supported",
			u.Scheme))
	case u.Scheme == "ssh" && s.KnownHostsFile == "":
		errs = append(
			errs,
			errors.New(
				"source.knownHostsFile is required for ssh: the host key is never accepted unseen"))
	}
	if s.TokenFile != "" && s.PasswordFile != "" {
		errs = append(
			errs, errors.New("source.tokenFile and source.passwordFile exclude each other"))
	}
	if d := time.Duration(s.Poll); d < time.Second || d > time.Hour {
		errs = append(errs, errors.New("source.poll must be 1s to 1h"))
	}
	if d := time.Duration(s.FetchTimeout); d < 10*time.Second || d > 24*time.Hour {
		errs = append(errs, errors.New("source.fetchTimeout must be 10s to 24h"))
	}
	if s.MaxBytes < 0 || s.MaxObjects < 0 || s.MaxObjectBytes < 0 || s.MaxFiles < 0 {
		errs = append(
			errs,
			errors.New(
				"source.maxBytes, maxObjects, maxObjectBytes and maxFiles cannot be negative; 0 "+
					"takes the built-in bound"))
	}
	return errors.Join(errs...)
}

func hasPassword(u *url.URL) bool {
	_, ok := u.User.Password()
	return ok
}

func (d *Database) check() error {
	n := 0
	for _, v := range []string{d.URL, d.URLFile, d.Embedded} {
		if v != "" {
			n++
		}
	}
	if n != 1 {
		return errors.New("database needs exactly one of url, urlFile and embedded")
	}
	return d.Connections.check()
}

func (c *Connections) check() error {
	var errs []error
	for _, s := range []struct {
		name    string
		n, most int
	}{{"control", c.Control, 100}, {"workers", c.Workers, 1000}, {"readers", c.Readers, 1000}} {
		if s.n != 0 && (s.n < 2 || s.n > s.most) {
			errs = append(
				errs, fmt.Errorf("database.connections.%s must be 2 to %d", s.name, s.most))
		}
	}
	return errors.Join(errs...)
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
		errs = append(
			errs,
			errors.New(
				"forge.api must be a URL such as https://api.github.com/, without a credential "+
					"or query"))
	case u.Scheme == "http" && !f.AllowHTTP:
		errs = append(
			errs,
			errors.New(
				"forge.api is http; use https, or set forge.allowHTTP for a forge on this machine"))
	case u.Scheme != "https" && u.Scheme != "http":
		errs = append(errs, fmt.Errorf("forge.api has the scheme %q; https is supported", u.Scheme))
	}
	if !repositoryName.MatchString(f.Repository) {
		errs = append(errs, errors.New("forge.repository must be owner/name"))
	}
	if (f.App == nil) == (f.TokenFile == "") {
		errs = append(errs, errors.New("forge needs exactly one of app and tokenFile"))
	}
	if f.App != nil && (f.App.ID <= 0 || f.App.KeyFile == "") {
		errs = append(errs, errors.New("forge.app needs id and keyFile"))
	}
	for _, entry := range f.DirectPush {
		if !directPusher.MatchString(entry) {
			errs = append(
				errs,
				fmt.Errorf(
					"forge.directPush: %q must be github:LOGIN, github:LOGIN#NUMBER or "+
						"github:ORG/TEAM", entry))
		}
	}
	if len(f.DirectPush) > 0 && len(f.WebhookSecrets) == 0 {
		errs = append(
			errs,
			errors.New(
				"forge.directPush needs forge.webhookSecretFiles: only signed deliveries name "+
					"the account that pushed"))
	}
	if d := time.Duration(f.Sweep); d < 10*time.Second || d > time.Hour {
		errs = append(errs, errors.New("forge.sweep must be 10s to 1h"))
	}
	return errors.Join(errs...)
}

func (a *Agents) check() error {
	if a.ConnectRate < 1 || a.ConnectRate > 1000 {
		return errors.New("agents.connectRate must be 1 to 1000")
	}
	return nil
}

func (r *Retention) check() error {
	var errs []error
	for _, s := range []struct {
		name           string
		n, least, most int
	}{
		{"events", r.Events, 1, 365}, {"operations", r.Operations, 7, 3650},
		{"revisions", r.Revisions, 30, 3650}, {"pulls", r.Pulls, 30, 3650},
		{"audit", r.Audit, 90, 36500},
	} {
		if s.n != 0 && (s.n < s.least || s.n > s.most) {
			errs = append(
				errs, fmt.Errorf("retention.%s must be %d to %d days", s.name, s.least, s.most))
		}
	}
	return errors.Join(errs...)
}

func (s *Settings) checkRest() error {
	var errs []error
	if s.DataDir == "" {
		errs = append(errs, errors.New("dataDir is required: a folder of this replica's own"))
	}
	for name, addr := range map[string]string{
		"listen.address": s.Listen.Address, "listen.ops": s.Listen.Ops} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("%s must be host:port, such as 127.0.0.1:8080", name))
		}
	}
	if (s.Listen.CertFile == "") != (s.Listen.KeyFile == "") {
		errs = append(errs, errors.New("listen.certFile and listen.keyFile go together"))
	}
	if _, err := s.Listen.Proxies(); err != nil {
		errs = append(errs, err)
	}
	if u, err := url.Parse(s.Listen.Public); s.Listen.Public != "" &&
		(err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil ||
			u.RawQuery != "") {
		errs = append(
			errs,
			errors.New(
				"listen.publicURL must be a URL such as https://argosy.example.com, without a "+
					"credential or query"))
	}
	if s.Secrets.Kubernetes != nil && s.Secrets.Kubernetes.Namespace == "" {
		errs = append(
			errs,
			errors.New(
				"secrets.kubernetes.namespace is required: where the platform's own Secrets are"))
	}
	if s.Secrets.Age != nil && s.Secrets.Age.IdentityFile == "" &&
		s.Secrets.Age.TenantIdentities == "" {
		errs = append(
			errs,
			errors.New("secrets.age.identityFile or secrets.age.tenantIdentities is required"))
	}
	if s.Engines.InFlight < 1 || s.Engines.InFlight > 64 {
		errs = append(errs, errors.New("engines.inFlight must be 1 to 64"))
	}
	if d := time.Duration(s.Engines.Poll); d < time.Second || d > 10*time.Minute {
		errs = append(errs, errors.New("engines.poll must be 1s to 10m"))
	}
	return errors.Join(append(errs, s.Log.Check())...)
}

// Proxies are the networks of trustedProxies.
func (l Listen) Proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range l.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil,
				fmt.Errorf("listen.trustedProxies[%d] is %q; write a network such as 10.0.0.0/8", i,
					text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo,
	"warn": slog.LevelWarn, "error": slog.LevelError}

// Check validates the settings.
func (l Log) Check() error {
	var errs []error
	if _, ok := levels[l.Level]; !ok {
		errs = append(errs, fmt.Errorf("log.level %q must be debug, info, warn or error", l.Level))
	}
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("log.format %q must be text or json", l.Format))
	}
	return errors.Join(errs...)
}

func (s *Settings) resolve(dir string) {
	paths := []*string{&s.DataDir, &s.Source.TokenFile, &s.Source.PasswordFile,
		&s.Source.SSHKeyFile, &s.Source.KnownHostsFile, &s.Source.CAFile,
		&s.Database.URLFile, &s.Database.Embedded, &s.Secrets.Directory, &s.Listen.CertFile,
		&s.Listen.KeyFile, &s.Bootstrap}
	if s.Secrets.Kubernetes != nil {
		paths = append(paths, &s.Secrets.Kubernetes.Kubeconfig)
	}
	if s.Secrets.Age != nil {
		paths = append(paths, &s.Secrets.Age.IdentityFile, &s.Secrets.Age.TenantIdentities)
	}
	if s.Tracing != nil {
		paths = append(paths, &s.Tracing.CAFile)
	}
	paths = append(paths, s.SignIn.paths()...)
	for _, p := range append(paths, s.Forge.paths()...) {
		absolute(dir, p)
	}
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

// absolute makes the path relative to the settings' folder.
func absolute(dir string, p *string) {
	if *p != "" && !filepath.IsAbs(*p) {
		*p = filepath.Join(dir, *p)
	}
}

// UnmarshalYAML reads text such as "30s".
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil || n.Tag != "!!str" {
		return fmt.Errorf("line %d: %q is no duration; write it as \"30s\" or \"5m\"", n.Line,
			n.Value)
	}
	*d = Duration(v)
	return nil
}

// Logger returns a logger with these settings.
func (l Log) Logger(to io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: levels[l.Level]}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(printable.JSONWriter(to), opts))
	}
	return slog.New(slog.NewTextHandler(printable.LinesWriter(to), opts))
}
