package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ClusterOptions describe a cluster. The zero value is for tests.
type ClusterOptions struct {
	Name     string // for file names and error texts; "cluster" when empty
	Dir      string // a temporary folder when empty; one that was used before is re-opened
	AuditLog string // file for an audit log: one JSON line per request, level Metadata
	Durable  bool   // etcd writes through to the disk, as in production
	Behind   *Firewall
}

// Cluster is a Kubernetes cluster with an API server, the controllers and one
// node whose Pods only pretend to run: see test/lab.
type Cluster struct {
	*Process
	Name       string
	Server     string // e.g. "https://127.0.0.1:23456"; stays over restarts
	CA         []byte // PEM
	Kubeconfig string // file; an administrator's
	Dir        string

	options ClusterOptions
	folder  folder
}

// StartCluster returns when the API server and the controllers work: about 3
// seconds and 310 MB.
func StartCluster(ctx context.Context, o ClusterOptions) (*Cluster, error) {
	if o.Name == "" {
		o.Name = "cluster"
	}
	f, err := openFolder(o.Dir, o.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	c := &Cluster{Name: o.Name, Dir: f.path, Kubeconfig: filepath.Join(f.path, "kubeconfig"),
		options: o, folder: f}
	if err := c.Start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Kubectl returns the path of kubectl, which has the version of the clusters.
func Kubectl() (string, error) { return part("kubectl", filepath.Join("bin", "kubectl")) }

// Start brings a cluster back that was stopped by Process.Stop or Kill, with its
// data and at the same address, as after an outage.
func (c *Cluster) Start(ctx context.Context) error {
	lab, err := part("lab", filepath.Join("bin", "lab"))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	port, err := keptPort(filepath.Join(c.Dir, "port"))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	args := []string{"--dir", filepath.Join(c.Dir, "lab"), "--port", strconv.Itoa(port),
		"--kubeconfig", c.Kubeconfig}
	if c.options.AuditLog != "" {
		args = append(args, "--audit-log", c.options.AuditLog)
	}
	if c.options.Durable {
		args = append(args, "--fsync")
	}
	_ = os.Remove(c.Kubeconfig) // a former start's
	c.Process, err = StartProcess(Command{Name: c.Name, Path: lab, Args: args,
		Log: filepath.Join(c.Dir, "lab.log"), Behind: c.options.Behind})
	if err != nil {
		return err
	}
	if err := c.Await(ctx, func(context.Context) error {
		_, err := os.Stat(c.Kubeconfig)
		return err
	}); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Name, err)
	}
	c.Server, c.CA = config.Host, config.CAData
	return nil
}

// Stop ends the cluster and removes the folder that StartCluster made.
func (c *Cluster) Stop() error {
	c.Process.Stop()
	return c.folder.remove()
}

// REST is an administrator's client configuration without client-side limits.
func (c *Cluster) REST() *rest.Config {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		panic(fmt.Errorf("%s: %w", c.Name, err)) // Start has read the same file
	}
	config.QPS = -1
	if c.options.Behind != nil {
		config.Dial = c.options.Behind.Dial
	}
	return config
}

// Client is an administrator's typed client.
func (c *Cluster) Client() *kubernetes.Clientset { return kubernetes.NewForConfigOrDie(c.REST()) }

// Dynamic is an administrator's client for any kind.
func (c *Cluster) Dynamic() *dynamic.DynamicClient { return dynamic.NewForConfigOrDie(c.REST()) }

// KubeconfigFor is a kubeconfig for this cluster with a bearer token. The
// namespace is the current one.
func (c *Cluster) KubeconfigFor(token, namespace string) ([]byte, error) {
	k := clientcmdapi.NewConfig()
	k.CurrentContext = c.Name
	k.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.CA}
	k.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name,
		Namespace: namespace}
	return clientcmd.Write(*k)
}

// keptPort is the port that the file names, or a free one that it will name.
func keptPort(file string) (int, error) {
	if text, err := os.ReadFile(file); err == nil {
		return strconv.Atoi(strings.TrimSpace(string(text)))
	}
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	return port, os.WriteFile(file, []byte(strconv.Itoa(port)+"\n"), 0o644)
}
