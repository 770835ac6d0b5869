// Package settings is argosy.yaml: how one control plane is run. It is strict: an unknown key, a
// wrong type or a value out of range is an error with its line, and nothing has two spellings.
package settings

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Settings is the whole file.
type Settings struct {
	Source    Source    `yaml:"source" doc:"The config repo."`
	Database  Database  `yaml:"database" doc:"Where the mirror is kept. Exactly one of url, urlFile and embedded."`
	DataDir   string    `yaml:"dataDir" doc:"A folder of this replica's own for the bare mirror of the config repo. Losing it costs one clone."`
	Secrets   Secrets   `yaml:"secrets,omitempty" doc:"Where the content of a credentialsRef is found."`
	Listen    Listen    `yaml:"listen,omitempty" doc:"Where the API, the page and the probes answer."`
	Forge     *Forge    `yaml:"forge,omitempty" doc:"Where pull requests against the config repo are opened. Left out: none are looked at."`
	Engines   Engines   `yaml:"engines,omitempty" doc:"How engines are written to."`
	Agents    Agents    `yaml:"agents,omitempty" doc:"Clusters that dial out (pull mode)."`
	Retention Retention `yaml:"retention,omitempty" doc:"How many days history is kept in the database."`
	Log       Log       `yaml:"log,omitempty" doc:"What is logged, to standard error."`
	Bootstrap string    `yaml:"bootstrapTokenFile,omitempty" doc:"A file with a platform token that is valid while it stands there (at least 32 characters); with it the first other tokens are made."`
}

// Source is the config repo.
type Source struct {
	URL            string   `yaml:"url" doc:"https or ssh URL of the config repo, or an absolute path of a bare repository on this machine. No credential in it."`
	Branch         string   `yaml:"branch,omitempty" doc:"Branch that is applied." default:"main"`
	Poll           Duration `yaml:"poll,omitempty" doc:"How often the branch is looked at when nothing says so, 1s to 1h." default:"30s"`
	AllowHTTP      bool     `yaml:"allowHTTP,omitempty" doc:"Accept an http:// URL. For a Git server on this machine only: nothing is protected on the way."`
	TokenFile      string   `yaml:"tokenFile,omitempty" doc:"File with a token for https, read anew at each fetch."`
	Username       string   `yaml:"username,omitempty" doc:"User name for https with passwordFile."`
	PasswordFile   string   `yaml:"passwordFile,omitempty" doc:"File with the password, read anew at each fetch."`
	SSHKeyFile     string   `yaml:"sshKeyFile,omitempty" doc:"File with a private key for ssh, read anew at each fetch."`
	KnownHostsFile string   `yaml:"knownHostsFile,omitempty" doc:"File with the host keys that are accepted; required for ssh."`
	CAFile         string   `yaml:"caFile,omitempty" doc:"File with the certificates that sign the server's, for https with a private CA."`
	MaxBytes       int64    `yaml:"maxBytes,omitempty" doc:"Bytes that one fetch may bring, as they are sent; 0 is 512 MiB."`
	MaxObjects     int      `yaml:"maxObjects,omitempty" doc:"Objects that one fetch may bring; 0 is 2,000,000. Each takes about 150 bytes of memory while the fetch runs."`
	MaxObjectBytes int64    `yaml:"maxObjectBytes,omitempty" doc:"Bytes of one object of the config repo that is held in memory, such as a folder's list of entries; 0 is 64 MiB. A larger one holds back only the folder that it stands in."`
	MaxFiles       int      `yaml:"maxFiles,omitempty" doc:"Files and folders in fleet/, and in each tenant's folder; 0 is 250,000. A folder with more is not read, and what was applied of it stays."`
	FetchTimeout   Duration `yaml:"fetchTimeout,omitempty" doc:"How long a fetch may take, 10s to 24h, beside one second for every 64 KiB that arrive: a slow clone goes on for as long as it gets on." default:"5m"`
}

// Database says where the mirror is kept.
type Database struct {
	URL      string `yaml:"url,omitempty" doc:"PostgreSQL URL. With a password in it, prefer urlFile."`
	URLFile  string `yaml:"urlFile,omitempty" doc:"File with the PostgreSQL URL, such as a mounted Secret."`
	Embedded string `yaml:"embedded,omitempty" doc:"Folder for a PostgreSQL that is found on this machine and run as a child. For a laptop or a trial."`
	Migrate  bool   `yaml:"migrate,omitempty" doc:"Bring the schema up to date at the start. Off: the start only checks that it is new enough, and somebody else runs argosy migrate." default:"true"`

	Connections Connections `yaml:"connections,omitempty" doc:"Connections that this replica opens at most, by what they are for. Beside them it opens one that listens, and four with a forge. A size that is left out takes its default, or its share of pool_max_conns when the URL has that."`
}

// Connections are the sizes of the pools.
type Connections struct {
	Control int `yaml:"control,omitempty" doc:"For leases, emergency stops, approvals and readiness, 2 to 100. Nothing else uses them." default:"4"`
	Workers int `yaml:"workers,omitempty" doc:"For the loop, the engines' workers, what agents report, and webhook deliveries, 2 to 1000. Add one for about every five engines above twenty." default:"8"`
	Readers int `yaml:"readers,omitempty" doc:"For the API, the page, event streams and what agents read, 2 to 1000." default:"8"`
}

func (c *Connections) check() error {
	var errs []error
	for _, s := range []struct {
		name    string
		n, most int
	}{{"control", c.Control, 100}, {"workers", c.Workers, 1000}, {"readers", c.Readers, 1000}} {
		if s.n != 0 && (s.n < 2 || s.n > s.most) {
			errs = append(errs, fmt.Errorf("database.connections.%s is to be 2 to %d", s.name,
				s.most))
		}
	}
	return errors.Join(errs...)
}

// Secrets says where credentials are found, in this order: beside the declaration (*.sops.yaml),
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
	IdentityFile     string `yaml:"identityFile,omitempty" doc:"File that age-keygen wrote. It opens the files of every tenant that has no identity of its own."`
	TenantIdentities string `yaml:"tenantIdentities,omitempty" doc:"Folder with one file of age-keygen a tenant, named as the tenant. It alone opens that tenant's files; it is read at each use."`
}

// Listen is the HTTP server.
type Listen struct {
	Address        string   `yaml:"address,omitempty" doc:"host:port of the API and the page." default:"127.0.0.1:8080"`
	Ops            string   `yaml:"ops,omitempty" doc:"host:port of /healthz, /readyz and /metrics, which ask for no token." default:"127.0.0.1:8081"`
	CertFile       string   `yaml:"certFile,omitempty" doc:"Certificate; with keyFile the API is served by TLS. Both are read anew when they change."`
	KeyFile        string   `yaml:"keyFile,omitempty" doc:"Private key of certFile."`
	Public         string   `yaml:"publicURL,omitempty" doc:"URL by which people reach the page, and agents the API: for the links in pull requests, and the name that agents prove themselves to."`
	TrustedProxies []string `yaml:"trustedProxies,omitempty" doc:"Networks, such as 10.0.0.0/8, of proxies whose X-Forwarded-For says which address asks. Limits by address go by the peer otherwise, so that all who come through an unlisted proxy share one."`
}

// Engines is how engines are written to.
type Engines struct {
	InFlight int      `yaml:"inFlight,omitempty" doc:"Objects that are written at a time to one engine, 1 to 64. Fewer go out as long as its API server throttles." default:"32"`
	Poll     Duration `yaml:"poll,omitempty" doc:"How often rows are looked at when no notification comes, 1s to 10m." default:"5s"`
}

// Retention is how many days history is kept.
type Retention struct {
	Events     int `yaml:"events,omitempty" doc:"Days for events, which streams and the page tell of, 1 to 365." default:"7"`
	Operations int `yaml:"operations,omitempty" doc:"Days for operations that have ended, approvals that nothing waits for and tokens that are no longer valid, 7 to 3650." default:"90"`
	Revisions  int `yaml:"revisions,omitempty" doc:"Days for revisions of which no object is left, and for the results of syncs whose SyncRun is gone, 30 to 3650. A SyncRun of the same name runs again after that." default:"365"`
	Pulls      int `yaml:"pulls,omitempty" doc:"Days for closed pull requests and their plans, 30 to 3650." default:"365"`
	Audit      int `yaml:"audit,omitempty" doc:"Days for the audit log, 90 to 36500. Export it before, if it has to be kept for longer." default:"730"`
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
			errs = append(errs, fmt.Errorf("retention.%s is to be %d to %d days", s.name, s.least,
				s.most))
		}
	}
	return errors.Join(errs...)
}

// Log is what is logged.
type Log struct {
	Level  string `yaml:"level,omitempty" doc:"debug, info, warn or error." default:"info"`
	Format string `yaml:"format,omitempty" doc:"text or json." default:"text"`
}

// Duration is written as text, e.g. "30s".
type Duration time.Duration

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
			return s, errors.New("is empty; `argosy schema settings` prints what may stand in it")
		}
		return s, err
	}
	return s, s.check()
}

func (s *Settings) check() error {
	s.Forge.withDefaults()
	return errors.Join(s.Source.check(), s.Database.check(), s.Forge.check(), s.Agents.check(),
		s.Retention.check(), s.checkRest())
}

func (s *Source) check() error {
	var errs []error
	u, err := url.Parse(s.URL)
	switch {
	case s.URL == "":
		errs = append(errs,
			errors.New("source.url is required: the config repo's https or ssh URL"))
	case strings.HasPrefix(s.URL, "/"):
	case err != nil:
		errs = append(errs,
			errors.New("source.url is no URL; write https://host/path or ssh://user@host/path"))
	case u.User != nil && (u.Scheme != "ssh" || hasPassword(u)):
		errs = append(errs,
			errors.New(
				"source.url carries a credential; put it into a file and name that in "+
					"source.tokenFile or source.passwordFile"))
	case u.Scheme == "http" && !s.AllowHTTP:
		errs = append(errs,
			errors.New(
				"source.url is http; use https, or set source.allowHTTP for a Git server on "+
					"this machine"))
	case u.Scheme == "file":
		errs = append(errs,
			fmt.Errorf(
				"source.url: a repository on this machine is named by its path alone; write %s",
				filepath.Join("/", u.Path)))
	case u.Scheme == "":
		errs = append(errs,
			errors.New(
				"source.url is neither a URL nor an absolute path; write https://host/path, or "+
					"for a repository on this machine its path from the root"))
	case u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh":
		errs = append(errs, fmt.Errorf("source.url has the scheme %q; https and ssh are supported",
			u.Scheme))
	case u.Scheme == "ssh" && s.KnownHostsFile == "":
		errs = append(errs,
			errors.New(
				"source.knownHostsFile is required for ssh: the host key is never accepted unseen"))
	}
	if s.TokenFile != "" && s.PasswordFile != "" {
		errs = append(errs,
			errors.New("source.tokenFile and source.passwordFile exclude each other"))
	}
	if d := time.Duration(s.Poll); d < time.Second || d > time.Hour {
		errs = append(errs, errors.New("source.poll is to be 1s to 1h"))
	}
	if d := time.Duration(s.FetchTimeout); d < 10*time.Second || d > 24*time.Hour {
		errs = append(errs, errors.New("source.fetchTimeout is to be 10s to 24h"))
	}
	if s.MaxBytes < 0 || s.MaxObjects < 0 || s.MaxObjectBytes < 0 || s.MaxFiles < 0 {
		errs = append(errs,
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

func (s *Settings) checkRest() error {
	var errs []error
	if s.DataDir == "" {
		errs = append(errs, errors.New("dataDir is required: a folder of this replica's own"))
	}
	for name, addr := range map[string]string{"listen.address": s.Listen.Address,
		"listen.ops": s.Listen.Ops} {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("%s is to be host:port, such as 127.0.0.1:8080", name))
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
		errs = append(errs,
			errors.New(
				"listen.publicURL is to be a URL such as https://argosy.example.com, without a "+
					"credential or query"))
	}
	if s.Secrets.Kubernetes != nil && s.Secrets.Kubernetes.Namespace == "" {
		errs = append(errs,
			errors.New(
				"secrets.kubernetes.namespace is required: where the platform's own Secrets are"))
	}
	if s.Secrets.Age != nil && s.Secrets.Age.IdentityFile == "" &&
		s.Secrets.Age.TenantIdentities == "" {
		errs = append(errs,
			errors.New("secrets.age.identityFile or secrets.age.tenantIdentities is required"))
	}
	if s.Engines.InFlight < 1 || s.Engines.InFlight > 64 {
		errs = append(errs, errors.New("engines.inFlight is to be 1 to 64"))
	}
	if d := time.Duration(s.Engines.Poll); d < time.Second || d > 10*time.Minute {
		errs = append(errs, errors.New("engines.poll is to be 1s to 10m"))
	}
	return errors.Join(append(errs, s.Log.Check())...)
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
	for _, p := range append(paths, s.Forge.paths()...) {
		absolute(dir, p)
	}
}
