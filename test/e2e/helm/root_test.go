package helm

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// image is the content of a container's root, whatever its manifest names.
type image struct {
	folders    map[string]string // of this machine, by where they are in the image
	links      map[string]string
	files      map[string]string // likewise, bound over what folders hold
	entrypoint []string
	insteadOf  []string // a command to run in place of the real program
	env        []string
	user       int
}

// imageOf are Argosy's own image, and substitutes for Argo CD's and Redis': the binaries that
// scripts/parts.sh has built, and this machine's tools.
func (p *pod) imageOf(c corev1.Container) image {
	p.t.Helper()
	name := filepath.Base(strings.Split(c.Image, "@")[0])
	switch name, _, _ := strings.Cut(name, ":"); name {
	case "argosy":
		i := image{folders: map[string]string{}, entrypoint: []string{"/usr/local/bin/argosy"},
			env: []string{"PATH=/usr/local/bin", "HOME=/home/nonroot"}, user: 65532}
		for _, e := range must(os.ReadDir(p.image))(p.t) {
			i.folders["/"+e.Name()] = filepath.Join(p.image, e.Name())
		}
		return i
	case "argocd":
		_, version, tagged := strings.Cut(filepath.Base(c.Image), ":v")
		if !tagged && strings.HasSuffix(c.Image, "@sha256:"+digest) {
			version = "3.5.7"
		}
		i := p.machine("argocd-"+version[:strings.LastIndex(version, ".")], "argocd",
			"argocd-repo-server", "argocd-application-controller")
		// its gpg-agent would outlive it
		i.env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/argocd", "USER=argocd",
			"ARGOCD_GPG_ENABLED=false"}
		i.user = 999
		return i
	case "redis":
		i := p.machine("redis", "redis-server")
		i.insteadOf, i.user = []string{"/usr/local/bin/redis-server", "6379"}, 999
		return i
	}
	p.t.Fatalf("an image that this test does not know: %s", c.Image)
	return image{}
}

// verify is the script that Argo CD's repo-server calls for every commit.
const verify = "git-verify-wrapper.sh"

// machine is an image with this machine's tools, helm, kustomize and a program that answers to some
// names.
func (p *pod) machine(program string, names ...string) image {
	p.t.Helper()
	tools := filepath.Join(p.dir, "tools")
	check(p.t, os.MkdirAll(tools, 0o755))
	i := image{folders: map[string]string{"/usr": "/usr", "/etc": "/etc", "/dev": "/dev",
		"/proc": "/proc"}, links: map[string]string{}, files: map[string]string{
		"/usr/local/bin": tools}}
	for _, name := range []string{"bin", "lib", "lib64", "sbin"} {
		if target, err := os.Readlink("/" + name); err == nil {
			i.links["/"+name] = target
		} else if _, err := os.Stat("/" + name); err == nil {
			i.folders["/"+name] = "/" + name
		}
	}
	for name, part := range map[string]string{names[0]: "bin/" + program, "helm": "bin/helm-4",
		"kustomize": "bin/kustomize", verify: "argocd-3.5/" + verify} {
		touch(p, filepath.Join(tools, name))
		i.files["/usr/local/bin/"+name] = must(
			filepath.Abs(filepath.Join("../../../.cache", part)))(p.t)
	}
	for _, name := range names[1:] {
		_ = os.Remove(filepath.Join(tools, name))
		check(p.t, os.Symlink(names[0], filepath.Join(tools, name)))
	}
	// Services by their names: their ports lead out of the Pod.
	hosts := filepath.Join(p.dir, "hosts")
	check(p.t, os.WriteFile(hosts, []byte("127.0.0.1 localhost argocd-redis argocd-repo-server\n"),
		0o644))
	i.files["/etc/hosts"] = hosts
	return i
}

// assemble makes a container's root: the image's files and the volumes, where they are mounted.
func (p *pod) assemble(root string, c corev1.Container, i image) {
	p.t.Helper()
	check(p.t, os.MkdirAll(root, 0o755))
	check(p.t, os.Chmod(root, 0o755))
	for at, target := range i.links {
		check(p.t, os.Symlink(target, filepath.Join(root, at)))
	}
	for at := range i.folders {
		check(p.t, os.MkdirAll(filepath.Join(root, at), 0o755))
	}
	sources := map[string]string{}
	for _, m := range c.VolumeMounts {
		source, there := p.volumes[m.Name]
		if !there {
			p.t.Fatalf("%s mounts %s, which is no volume of its Pod", c.Name, m.Name)
		}
		source = filepath.Join(source, m.SubPath)
		sources[m.MountPath] = source
		if must(os.Stat(source))(p.t).IsDir() {
			check(p.t, os.MkdirAll(filepath.Join(root, m.MountPath), 0o755))
		} else {
			touch(p, filepath.Join(root, m.MountPath))
		}
	}
	readOnly := c.SecurityContext != nil && c.SecurityContext.ReadOnlyRootFilesystem != nil &&
		*c.SecurityContext.ReadOnlyRootFilesystem
	if !readOnly {
		p.t.Errorf("%s may write to its root", c.Name)
	}
	check(p.t, p.box.Bind(root, root, readOnly))
	for _, binds := range []map[string]string{i.folders, i.files} {
		for _, at := range slices.Sorted(maps.Keys(binds)) {
			check(p.t, p.box.Bind(binds[at], filepath.Join(root, at), at != "/dev" &&
				at != "/proc"))
		}
	}
	for _, at := range slices.Sorted(maps.Keys(sources)) {
		for around, source := range sources { // a mount within a mount
			if inner, within := strings.CutPrefix(at, around+"/"); within {
				check(p.t, os.MkdirAll(filepath.Join(source, inner), 0o755))
			}
		}
		check(p.t, p.box.Bind(sources[at], filepath.Join(root, at), p.fixed(c, at)))
	}
}

// fixed reports whether what is mounted there may not be written to: all but an emptyDir.
func (p *pod) fixed(c corev1.Container, at string) bool {
	for _, m := range c.VolumeMounts {
		for _, v := range p.object.Spec.Volumes {
			if m.MountPath == at && v.Name == m.Name {
				return m.ReadOnly || v.EmptyDir == nil
			}
		}
	}
	return true
}

// volume makes a volume's folder.
func (p *pod) volume(v corev1.Volume) string {
	p.t.Helper()
	dir := filepath.Join(p.dir, "volumes", v.Name)
	check(p.t, os.MkdirAll(dir, 0o755))
	switch {
	case v.EmptyDir != nil:
		check(p.t, os.Chmod(dir, 0o777))
	case v.Secret != nil:
		p.fill(dir, v.Name, p.secretOf(v.Secret.SecretName), v.Secret.Items, v.Secret.Optional)
	case v.ConfigMap != nil:
		p.fill(dir, v.Name, p.configMap(v.ConfigMap.Name), v.ConfigMap.Items, v.ConfigMap.Optional)
		if mode := v.ConfigMap.DefaultMode; mode != nil && *mode&0o111 != 0 {
			for _, entry := range must(os.ReadDir(dir))(p.t) {
				check(p.t, os.Chmod(filepath.Join(dir, entry.Name()), os.FileMode(*mode)))
			}
		}
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			p.project(dir, v.Name, s)
		}
	default:
		p.t.Fatalf("the volume %s is of a kind that this test does not know: %+v", v.Name, v)
	}
	return dir
}

// project is what the API server adds to Pods: their account's token, the cluster's CA and their
// namespace.
func (p *pod) project(dir, volume string, s corev1.VolumeProjection) {
	p.t.Helper()
	switch {
	case s.ServiceAccountToken != nil:
		write(p, filepath.Join(dir, s.ServiceAccountToken.Path), p.token(s.ServiceAccountToken))
	case s.ConfigMap != nil:
		p.fill(dir, volume, p.configMap(s.ConfigMap.Name), s.ConfigMap.Items, s.ConfigMap.Optional)
	case s.DownwardAPI != nil:
		for _, item := range s.DownwardAPI.Items {
			if item.FieldRef == nil || item.FieldRef.FieldPath != "metadata.namespace" {
				p.t.Fatalf("%s asks for %v, which this test does not know", volume, item)
			}
			write(p, filepath.Join(dir, item.Path), []byte(p.object.Namespace))
		}
	default:
		p.t.Fatalf("%s asks for %+v, which this test does not know", volume, s)
	}
}

// token is one that a kubelet would ask for: of the Pod's account, and for as long as there is the
// Pod.
func (p *pod) token(s *corev1.ServiceAccountTokenProjection) []byte {
	p.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
			Name: p.object.Name, UID: p.object.UID}}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	accounts := p.at.cluster.Client().CoreV1().ServiceAccounts(p.object.Namespace)
	return []byte(must(accounts.CreateToken(p.t.Context(), p.object.Spec.ServiceAccountName,
		request, metav1.CreateOptions{}))(p.t).Status.Token)
}

// fill writes the keys that items name, or all.
func (p *pod) fill(dir, volume string, content map[string][]byte, items []corev1.KeyToPath,
	optional *bool) {
	p.t.Helper()
	may := optional != nil && *optional
	if content == nil && !may {
		p.t.Fatalf("the volume %s: what it shows is not there", volume)
	}
	if len(items) == 0 {
		for key, value := range content {
			write(p, filepath.Join(dir, key), value)
		}
	}
	for _, item := range items {
		value, there := content[item.Key]
		if !there && !may {
			p.t.Fatalf("the volume %s has no key %s", volume, item.Key)
		}
		if there {
			write(p, filepath.Join(dir, item.Path), value)
		}
	}
}

// configMap is nil when there is none.
func (p *pod) configMap(name string) map[string][]byte {
	p.t.Helper()
	m, err := p.at.cluster.Client().CoreV1().ConfigMaps(p.object.Namespace).Get(p.t.Context(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	check(p.t, err)
	content := map[string][]byte{}
	for key, value := range m.Data {
		content[key] = []byte(value)
	}
	return content
}

func (p *pod) secretOf(name string) map[string][]byte {
	p.t.Helper()
	s, err := p.at.cluster.Client().CoreV1().Secrets(p.object.Namespace).Get(p.t.Context(), name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	check(p.t, err)
	if s.Data == nil {
		return map[string][]byte{}
	}
	return s.Data
}

func write(p *pod, file string, content []byte) {
	p.t.Helper()
	check(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
	check(p.t, os.WriteFile(file, content, 0o644))
}

func touch(p *pod, file string) {
	p.t.Helper()
	write(p, file, nil)
}
