package stack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	argosyengine "argosy.dev/argosy/charts/argosy-engine"
)

// ArgoVersions are the Argo CD releases that scripts/parts.sh builds.
var ArgoVersions = []string{"2.14", "3.5"}

// helmOf is the part that is Argo CD's helm: 3.5 and later contain Helm 4.
func helmOf(version string) string {
	if version == "2.14" {
		return "helm"
	}
	return "helm-4"
}

// ArgoOptions describe an Argo CD instance. Cluster, Version and Namespace are
// required.
type ArgoOptions struct {
	Cluster        *Cluster // where its Applications live
	Version        string   // one of ArgoVersions
	Namespace      string   // made if need be; several instances in a cluster have one each
	InstallationID string   // the namespace's name when empty
	Dir            string   // a temporary folder when empty

	// Refresh is how often Applications are compared with Git without being
	// asked: 10 s when zero, in whole seconds.
	Refresh time.Duration
	// Settings are further keys of the ConfigMap argocd-cm.
	Settings map[string]string
	// Open leaves out what charts/argosy-engine sets to keep tenants apart in the
	// repo-server: it runs as Argo CD is published.
	Open bool
	// ClusterAdmin lets it deploy to its own cluster as
	// https://kubernetes.default.svc, as Argo CD's cluster install may. Without
	// it it has the rights of a namespace install.
	ClusterAdmin bool
	// ApplicationSets installs their CRD too, three times as large as the others
	// together: 4 s and 200 MB of the API server's.
	ApplicationSets bool
	// ApplicationNamespaces are further namespaces whose Applications it serves. It needs
	// ClusterAdmin for them.
	ApplicationNamespaces []string
	// ApplicationSetController runs it too, with ApplicationSets. Only 3.5 has it.
	ApplicationSetController bool
	// ControllerEnv are further variables of the application-controller, as NAME=value.
	ControllerEnv []string
	// Shards is the number of application-controllers, which divide the clusters; 0 is one.
	Shards int
	// Via is between its processes and the API server; nil: nothing is.
	Via *Proxy
	// Plugin is the file plugin.yaml of a config management plugin that runs beside the
	// repo-server. Only 3.5 has its server.
	Plugin string
	// TrustedCAs are PEM certificates to trust, by host name without the port.
	TrustedCAs map[string][]byte
	// Notifications are triggers, templates and services, as argocd-notifications-cm has them; nil:
	// argocd-notifications does not run, which Argo CD 2.14 is built without.
	Notifications map[string]string
}

// ArgoCD is a running instance: the application controller, the repo-server with
// helm and kustomize, a Redis, and on request the ApplicationSet controller.
// There is no UI and no API server.
type ArgoCD struct {
	Version        string // exact, e.g. "v2.14.21"
	Namespace      string
	InstallationID string
	Dir            string
	// Kubeconfig is a file for the program that drives this instance: it grants Applications,
	// AppProjects and Secrets of the namespace and reading its ConfigMaps, nothing else.
	Kubeconfig string
	// The processes, to measure, kill and look at; Start brings them back.
	Redis, RepoServer, Controller *Process
	Shards                        []*Process // further application-controllers
	Plugin                        *Process   // nil without ArgoOptions.Plugin
	SetController                 *Process   // nil without ArgoOptions.ApplicationSetController
	Notifications                 *Process   // nil without ArgoOptions.Notifications

	options  ArgoOptions
	folder   folder
	sockets  folder
	binary   string
	password string // of Redis
	git      string // the repo-server's Git settings, "" for none
	ports    struct {
		redis, repo, repoMetrics, controllerMetrics, setMetrics, setProbe, setWebhook,
		notifications int
		shards []int // metrics
	}
}

// StartArgoCD installs the CRDs and settings and returns when all processes answer: about 5 seconds
// and 400 MB. The AppProject default admits nothing, and resources are tracked by annotation.
func StartArgoCD(ctx context.Context, o ArgoOptions) (*ArgoCD, error) {
	a, err := InstallArgoCD(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := a.Start(ctx); err != nil {
		return nil, a.failed(err)
	}
	return a, nil
}

// InstallArgoCD installs the CRDs, settings and accounts of an instance and runs no process. Start
// runs the processes.
func InstallArgoCD(ctx context.Context, o ArgoOptions) (*ArgoCD, error) {
	if o.InstallationID == "" {
		o.InstallationID = o.Namespace
	}
	if o.Refresh == 0 {
		o.Refresh = 10 * time.Second
	}
	a := &ArgoCD{
		Namespace: o.Namespace, InstallationID: o.InstallationID, options: o, password: rand.Text(),
	}
	var err error
	if a.folder, err = openFolder(o.Dir, "argocd"); err == nil {
		a.Dir = a.folder.path
		err = a.install(ctx)
	}
	if err != nil {
		return nil, a.failed(err)
	}
	return a, nil
}

func (a *ArgoCD) failed(err error) error {
	err = fmt.Errorf("argocd %s in %s: %w", a.options.Version, a.Namespace, err)
	return errors.Join(err, a.Stop())
}

// prepare finds the binaries and makes folders and ports, once.
func (a *ArgoCD) prepare() (err error) {
	if a.binary != "" {
		return nil
	}
	if err := a.prepareFolders(); err != nil {
		return err
	}
	ports := []*int{&a.ports.redis, &a.ports.repo, &a.ports.repoMetrics,
		&a.ports.controllerMetrics, &a.ports.setMetrics, &a.ports.setProbe, &a.ports.setWebhook,
		&a.ports.notifications}
	for _, port := range ports {
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	return nil
}

// prepareFolders makes what the processes find in their image elsewhere.
func (a *ArgoCD) prepareFolders() (err error) {
	name := "argocd-" + a.options.Version
	binary, err := part(name, filepath.Join("bin", name))
	if err != nil {
		return err
	}
	// A socket's path has at most 107 bytes, so it never goes below Dir.
	if a.sockets, err = scratch("argocds"); err != nil {
		return err
	}
	for _, name := range []string{"bin", "home", "tmp", "tls", "ssh", "gpg/source", "gpg/keys"} {
		if err := os.MkdirAll(filepath.Join(a.Dir, name), 0o755); err != nil {
			return err
		}
	}
	if !a.options.Open {
		if a.git, err = argosyengine.WriteGit(filepath.Join(a.Dir, "git")); err != nil {
			return err
		}
	}
	for host, ca := range a.options.TrustedCAs {
		if err := os.WriteFile(filepath.Join(a.Dir, "tls", host), ca, 0o644); err != nil {
			return err
		}
	}
	// The repo-server calls these by name; argocd is how git asks it for a password.
	tools := map[string]string{"argocd": binary}
	for name, from := range map[string]string{"helm": helmOf(a.options.Version),
		"kustomize": "kustomize"} {
		if tools[name], err = part(from, filepath.Join("bin", from)); err != nil {
			return err
		}
	}
	const verify = "git-verify-wrapper.sh"
	if tools[verify], err = argoFile(a.options.Version, verify); err != nil {
		return err
	}
	for name, target := range tools {
		link := filepath.Join(a.Dir, "bin", name)
		_ = os.Remove(link)
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	a.binary = binary
	return nil
}

// Start runs those processes that do not run, and waits until they answer.
func (a *ArgoCD) Start(ctx context.Context) error {
	if err := a.prepare(); err != nil {
		return err
	}
	redis, err := part("redis", filepath.Join("bin", "redis"))
	if err != nil {
		return err
	}
	port := func(p int) string { return strconv.Itoa(p) }
	address := func(p int) string { return net.JoinHostPort("127.0.0.1", port(p)) }
	health := func(p int) func(context.Context) error {
		return func(ctx context.Context) error {
			return answers(ctx, a.options.Cluster.options.Behind, "http://"+address(p)+"/healthz")
		}
	}
	if err := a.ensure(ctx, &a.Redis, "redis", redis, []string{port(a.ports.redis)},
		func(ctx context.Context) error {
			return dials(ctx, a.options.Cluster.options.Behind, address(a.ports.redis))
		}); err != nil {
		return err
	}
	repoServer := []string{
		"--address", "127.0.0.1", "--port", port(a.ports.repo),
		"--metrics-address", "127.0.0.1", "--metrics-port", port(a.ports.repoMetrics),
		"--disable-tls", "--redis", address(a.ports.redis),
	}
	if a.options.Version != "2.14" {
		// by default a file for TLS, which conflicts with --disable-tls
		repoServer = append(repoServer, "--client-ca-path", "")
	}
	if err := a.ensure(ctx, &a.RepoServer, "repo-server", a.binary, repoServer,
		health(a.ports.repoMetrics)); err != nil {
		return err
	}
	if err := a.startPlugin(ctx); err != nil {
		return err
	}
	if a.options.ApplicationSetController {
		if err := a.ensure(ctx, &a.SetController, "applicationset-controller", a.binary, []string{
			"--namespace", a.Namespace, "--kubeconfig", a.controllerKubeconfig(),
			"--argocd-repo-server", address(a.ports.repo), "--repo-server-plaintext",
			"--metrics-addr", address(a.ports.setMetrics), "--probe-addr",
			address(a.ports.setProbe), "--webhook-addr", address(a.ports.setWebhook),
		}, func(ctx context.Context) error {
			return dials(ctx, a.options.Cluster.options.Behind, address(a.ports.setMetrics))
		}); err != nil {
			return err
		}
	}
	if a.options.Notifications != nil {
		if err := a.ensure(ctx, &a.Notifications, "notifications", a.binary, []string{
			"--namespace", a.Namespace, "--kubeconfig", a.controllerKubeconfig(),
			"--argocd-repo-server", address(a.ports.repo), "--argocd-repo-server-plaintext",
			"--metrics-port", port(a.ports.notifications),
		}, func(ctx context.Context) error {
			return answers(ctx, a.options.Cluster.options.Behind,
				"http://"+address(a.ports.notifications)+"/metrics")
		}); err != nil {
			return err
		}
	}
	controller := func(p **Process, shard, metrics int) error {
		seconds := strconv.FormatInt(int64(a.options.Refresh/time.Second), 10)
		name := controllerProcess
		if shard > 0 {
			name += "-" + strconv.Itoa(shard)
		}
		return a.ensure(ctx, p, name, a.binary, []string{
			"--namespace", a.Namespace, "--kubeconfig", a.controllerKubeconfig(),
			"--repo-server", address(a.ports.repo), "--repo-server-plaintext", "--redis",
			address(a.ports.redis),
			// on every interface: it has no option for the address
			"--metrics-port", port(metrics),
			"--app-resync", seconds, "--app-resync-jitter", "0",
			"--repo-error-grace-period-seconds", seconds,
		}, health(metrics))
	}
	for shard := 1; shard < a.options.Shards; shard++ {
		if shard > len(a.Shards) {
			metrics, err := freePort()
			if err != nil {
				return err
			}
			a.Shards, a.ports.shards = append(a.Shards, nil), append(a.ports.shards, metrics)
		}
		if err := controller(&a.Shards[shard-1], shard, a.ports.shards[shard-1]); err != nil {
			return err
		}
	}
	return controller(&a.Controller, 0, a.ports.controllerMetrics)
}

// Reshard ends the application-controllers, and starts another number of them.
func (a *ArgoCD) Reshard(ctx context.Context, shards int) error {
	a.stopControllers()
	a.options.Shards = shards
	return a.Start(ctx)
}

func (a *ArgoCD) stopControllers() {
	a.Controller.Stop()
	for _, p := range a.Shards {
		p.Stop()
	}
}

const controllerProcess = "application-controller"

// Switch ends the controller and the repo-server, and starts those of another one of ArgoVersions
// with the same ports and folders. It changes no object of the cluster: an empty version starts
// none, like Pods that do not begin.
func (a *ArgoCD) Switch(ctx context.Context, version string) error {
	a.stopControllers()
	a.RepoServer.Stop()
	if version == "" {
		return nil
	}
	a.options.Version = version
	if err := errors.Join(a.sockets.remove(), a.prepareFolders()); err != nil {
		return err
	}
	return a.Start(ctx)
}

// Metrics are the base URLs of the metrics of the application-controller and the repo-server.
func (a *ArgoCD) Metrics() (controller, repoServer string) {
	at := func(port int) string {
		return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return at(a.ports.controllerMetrics), at(a.ports.repoMetrics)
}

// startPlugin runs the server of the plugin on a socket in the folder that the repo-server reads.
func (a *ArgoCD) startPlugin(ctx context.Context) error {
	if a.options.Plugin == "" {
		return nil
	}
	folder := filepath.Join(a.Dir, "plugin")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "plugin.yaml"), []byte(a.options.Plugin),
		0o644); err != nil {
		return err
	}
	return a.ensure(ctx, &a.Plugin, "cmp-server", a.binary, []string{"--config-dir-path", folder},
		func(context.Context) error {
			found, err := filepath.Glob(filepath.Join(a.sockets.path, "*.sock"))
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("the plugin has no socket in %s", a.sockets.path)
			}
			return err
		})
}

func (a *ArgoCD) ensure(ctx context.Context, p **Process, name, path string, args []string,
	ready func(context.Context) error) (err error) {
	if *p != nil {
		select {
		case <-(*p).Done():
		default:
			return nil
		}
	}
	*p, err = StartProcess(Command{
		Name: a.Namespace + " " + name, Path: path, Args: args, Env: a.environment(name),
		Dir: a.Dir, Log: filepath.Join(a.Dir, name+".log"),
		Behind: a.options.Cluster.options.Behind,
	})
	if err != nil {
		return err
	}
	return (*p).Await(ctx, ready)
}

// cutShard divides the name of the process of an application-controller.
func cutShard(process string) (component, shard string) {
	if shard, ok := strings.CutPrefix(process, controllerProcess+"-"); ok {
		return controllerProcess, shard
	}
	return process, "0"
}

// environment is all that a component sees: nothing of the machine's own.
func (a *ArgoCD) environment(component string) (all []string) {
	component, shard := cutShard(component)
	in := func(name string) string { return filepath.Join(a.Dir, name) }
	all = []string{
		"PATH=" + in("bin") + ":" + os.Getenv("PATH"),
		"HOME=" + in("home"), "TMPDIR=" + in("tmp"), "GIT_CONFIG_NOSYSTEM=1",
		"REDIS_PASSWORD=" + a.password,
		"ARGOCD_BINARY_NAME=argocd-" + component,
		"KUBECONFIG=" + a.controllerKubeconfig(), "ARGOCD_FAKE_IN_CLUSTER=true",
		"ARGOCD_GPG_ENABLED=false", "ARGOCD_GPG_DATA_PATH=" + in("gpg/source"),
		"ARGOCD_GNUPGHOME=" + in("gpg/keys"),
		"ARGOCD_TLS_DATA_PATH=" + in("tls"), "ARGOCD_SSH_DATA_PATH=" + in("ssh"),
		"ARGOCD_PLUGINSOCKFILEPATH=" + a.sockets.path,
		"ARGOCD_ASK_PASS_SOCK=" + filepath.Join(a.sockets.path, "ask"),
	}
	if component == controllerProcess && a.options.Shards > 1 {
		all = append(all, "ARGOCD_CONTROLLER_REPLICAS="+strconv.Itoa(a.options.Shards),
			"ARGOCD_CONTROLLER_SHARD="+shard)
	}
	if component == controllerProcess {
		defer func() { all = append(all, a.options.ControllerEnv...) }()
		if further := a.options.ApplicationNamespaces; len(further) > 0 {
			all = append(all, "ARGOCD_APPLICATION_NAMESPACES="+strings.Join(further, ","))
		}
	}
	if a.options.Open {
		return all
	}
	switch component {
	case "repo-server":
		all = append(all, "ARGOCD_GIT_MODULES_ENABLED=false", "GIT_CONFIG_GLOBAL="+a.git,
			"ARGOCD_REPO_SERVER_PARALLELISM_LIMIT=20")
	case controllerProcess:
		all = append(all, argosyengine.ControllerEnvironment...)
	}
	return all
}

func (a *ArgoCD) controllerKubeconfig() string {
	return filepath.Join(a.Dir, "controller.kubeconfig")
}

// Stop ends all processes and removes the folders that StartArgoCD made. Objects that it put into
// the cluster stay there.
func (a *ArgoCD) Stop() error {
	a.SetController.Stop()
	a.stopControllers()
	a.Notifications.Stop()
	a.Plugin.Stop()
	a.RepoServer.Stop()
	a.Redis.Stop()
	return errors.Join(a.sockets.remove(), a.folder.remove())
}

func dials(ctx context.Context, behind *Firewall, address string) error {
	conn, err := behind.Dial(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func answers(ctx context.Context, behind *Firewall, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: behind.Dial,
		DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
