package helm

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"argosy.dev/argosy/test/stack"
)

// pod is a Pod of an API server, run as a kubelet would.
type pod struct {
	*setup
	at      place
	object  *corev1.Pod
	dir     string
	box     *stack.Sandbox
	volumes map[string]string // folder by name
}

// newest is the newest Pod that has a label, once there is one.
func (w *setup) newest(at place, namespace, label string) *corev1.Pod {
	w.t.Helper()
	var newest *corev1.Pod
	eventually(w.t, "a Pod "+label, func() string {
		for _, p := range must(at.cluster.Client().CoreV1().Pods(namespace).List(w.t.Context(),
			metav1.ListOptions{LabelSelector: label}))(w.t).Items {
			if p.DeletionTimestamp == nil &&
				(newest == nil || newest.CreationTimestamp.Before(&p.CreationTimestamp)) {
				newest = &p
			}
		}
		return map[bool]string{true: "there is none"}[newest == nil]
	})
	return newest
}

// pod takes the newest Pod that has a label. reach maps the addresses that it asks for to those
// that it gets.
func (w *setup) pod(at place, namespace, label string, reach map[string]string) *pod {
	w.t.Helper()
	newest := w.newest(at, namespace, label)
	p := &pod{setup: w, at: at, object: newest, dir: must(os.MkdirTemp(w.dir, newest.Name+"-"))(
		w.t), box: must(stack.NewSandbox())(w.t), volumes: map[string]string{}}
	w.t.Cleanup(p.box.Close)
	check(w.t, os.Chmod(p.dir, 0o755))
	reach[at.address()] = at.address()
	for address, target := range reach {
		outlet := must(p.box.Outlet(address, nil, target))(w.t)
		w.t.Cleanup(outlet.Close)
	}
	for _, v := range newest.Spec.Volumes {
		p.volumes[v.Name] = p.volume(v)
	}
	return p
}

// behind puts the Pod behind a door.
func (p *pod) behind(d *door) *pod {
	d.lead(p.box)
	p.t.Cleanup(func() { d.lead(nil) })
	return p
}

// start runs the containers that come first to their end, and the Pod's only container until it is
// ready.
func (p *pod) start() *stack.Process {
	p.t.Helper()
	process := p.launch()
	if probe := p.object.Spec.Containers[0].ReadinessProbe; probe != nil {
		check(p.t, process.Await(p.t.Context(), p.ready(probe)))
	}
	return process
}

// launch is start without waiting.
func (p *pod) launch() *stack.Process {
	p.t.Helper()
	for _, c := range p.object.Spec.InitContainers {
		if log, err := p.ended(p.container(c)); err != nil {
			p.t.Fatalf("%s: %v\n%s", c.Name, err, log)
		}
	}
	if len(p.object.Spec.Containers) != 1 {
		p.t.Fatalf("%s has %d containers", p.object.Name, len(p.object.Spec.Containers))
	}
	return p.container(p.object.Spec.Containers[0])
}

// run runs the Pod to its end, and returns its log.
func (p *pod) run() (string, error) {
	p.t.Helper()
	return p.ended(p.launch())
}

// container starts one container.
func (p *pod) container(c corev1.Container) *stack.Process {
	p.t.Helper()
	image := p.imageOf(c)
	root := filepath.Join(p.dir, c.Name)
	p.assemble(root, c, image)
	env := append(image.env, p.environment(c)...)
	command := image.entrypoint
	if len(c.Command) > 0 {
		command = c.Command
	}
	command = expand(append(append([]string{}, command...), c.Args...), env)
	if image.insteadOf != nil {
		command = image.insteadOf
	}
	user := uint32(image.user)
	for _, s := range []*int64{p.podUser(), containerUser(c)} {
		if s != nil {
			user = uint32(*s)
		}
	}
	if user == 0 {
		p.t.Fatalf("%s would run as root", c.Name)
	}
	dir := c.WorkingDir
	if dir == "" {
		dir = "/"
	}
	process := must(stack.StartProcess(stack.Command{
		Name: p.at.name + " " + c.Name, Path: p.find(root, command[0]), Args: command[1:], Env: env,
		Root: root, Dir: dir, Behind: p.box.Firewall,
		User: &syscall.Credential{Uid: user, Gid: user}, Log: root + ".log",
	}))(p.t)
	p.t.Cleanup(func() {
		process.Stop()
		if p.t.Failed() {
			log, _ := os.ReadFile(process.LogFile())
			p.t.Logf("== the log of %s at %s ends with\n%s", c.Name, p.at.name,
				log[max(0, len(log)-3000):])
		}
	})
	return process
}

func (p *pod) podUser() *int64 {
	if s := p.object.Spec.SecurityContext; s != nil {
		return s.RunAsUser
	}
	return nil
}

func containerUser(c corev1.Container) *int64 {
	if c.SecurityContext != nil {
		return c.SecurityContext.RunAsUser
	}
	return nil
}

// find is where in the root a command without a path is.
func (p *pod) find(root, command string) string {
	if strings.HasPrefix(command, "/") {
		return command
	}
	for _, folder := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
		if _, err := os.Lstat(filepath.Join(p.dir, "tools", command)); folder == "/usr/local/bin" &&
			err == nil {
			return filepath.Join(folder, command)
		}
		if _, err := os.Stat(filepath.Join(folder, command)); folder != "/usr/local/bin" &&
			err == nil {
			return filepath.Join(folder, command)
		}
	}
	p.t.Fatalf("%s is not in the image of %s", command, root)
	return ""
}

// environment is the environment of a container's manifest, and the Service of the API server,
// which every Pod gets.
func (p *pod) environment(c corev1.Container) []string {
	p.t.Helper()
	if len(c.EnvFrom) > 0 {
		p.t.Fatalf("%s has its environment from %v, which this test does not know", c.Name,
			c.EnvFrom)
	}
	server := must(url.Parse(p.at.cluster.Server))(p.t)
	env := []string{"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" +
		server.Port()}
	for _, e := range c.Env {
		if value, there := p.value(e); there {
			env = append(env, e.Name+"="+value)
		}
	}
	return env
}

func (p *pod) value(e corev1.EnvVar) (string, bool) {
	p.t.Helper()
	var content map[string][]byte
	var key string
	var optional *bool
	switch from := e.ValueFrom; {
	case from == nil:
		return e.Value, true
	case from.ConfigMapKeyRef != nil:
		content, key, optional = p.configMap(from.ConfigMapKeyRef.Name), from.ConfigMapKeyRef.Key,
			from.ConfigMapKeyRef.Optional
	case from.SecretKeyRef != nil:
		content, key, optional = p.secretOf(from.SecretKeyRef.Name), from.SecretKeyRef.Key,
			from.SecretKeyRef.Optional
	default:
		p.t.Fatalf("%s comes from %v, which this test does not know", e.Name, from)
	}
	value, there := content[key]
	if !there && (optional == nil || !*optional) {
		p.t.Fatalf("%s: there is no key %s", e.Name, key)
	}
	return string(value), there
}

var reference = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand fills in $(NAME), as a kubelet does.
func expand(args, env []string) []string {
	values := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		values[name] = value
	}
	for i, arg := range args {
		args[i] = reference.ReplaceAllStringFunc(arg, func(ref string) string {
			if value, there := values[ref[2:len(ref)-1]]; there {
				return value
			}
			return ref
		})
	}
	return args
}

// ready asks what the kubelet would ask.
func (p *pod) ready(probe *corev1.Probe) func(context.Context) error {
	client := http.Client{
		Transport: &http.Transport{DialContext: p.box.Dial, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		if probe.HTTPGet == nil {
			return fmt.Errorf("a probe that this test does not know: %v", probe)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"http://"+net.JoinHostPort("127.0.0.1", p.port(probe.HTTPGet.Port))+probe.HTTPGet.Path,
			nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", answer.Status)
		}
		return nil
	}
}

func (p *pod) port(at intstr.IntOrString) string {
	for _, port := range p.object.Spec.Containers[0].Ports {
		if port.Name != "" && port.Name == at.StrVal {
			return fmt.Sprint(port.ContainerPort)
		}
	}
	return at.String()
}

// ended waits for a process that is to end by itself, and returns its log.
func (w *setup) ended(p *stack.Process) (string, error) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		w.t.Fatal("it does not end")
	}
	err := p.Wait()
	return w.logOf(p), err
}

func (w *setup) logOf(p *stack.Process) string {
	w.t.Helper()
	return strings.TrimSpace(string(must(os.ReadFile(p.LogFile()))(w.t)))
}
