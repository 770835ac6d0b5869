// Command lab is a Kubernetes cluster in one process: etcd, kube-apiserver and
// kube-controller-manager as released, and in the place of scheduler and kubelets a runner that
// binds Pods to the one node and plays their containers.
//
//	lab --dir DIR --port PORT --kubeconfig FILE [--audit-log FILE] [--fsync]
//
// FILE appears, whole, when the cluster is ready: an administrator's kubeconfig. DIR keeps
// certificates and data; the next start with it re-opens the cluster. It ends on SIGTERM and when
// its standard input closes.
//
// A port forward to a Pod leads to the address in an annotation of the Pod; see kubelet.go.
//
// Limits: no container runs, no Service routes, no volume is provisioned and no LoadBalancer gets
// an address.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type config struct {
	dir, kubeconfig, auditLog string
	port                      int
	fsync                     bool
}

func main() {
	var c config
	flag.StringVar(&c.dir, "dir", "", "folder for certificates and data")
	flag.IntVar(&c.port, "port", 0, "loopback port of the API server")
	flag.StringVar(&c.kubeconfig, "kubeconfig", "", "file to write when ready")
	flag.StringVar(&c.auditLog, "audit-log", "", "file for an audit log at level Metadata")
	flag.BoolVar(&c.fsync, "fsync", false, "have etcd write through to the disk")
	flag.Parse()
	if c.dir == "" || c.port == 0 || c.kubeconfig == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(c); err != nil {
		log.Fatal(err)
	}
}

// run returns when the cluster has ended.
func run(c config) error {
	kubeconfig, err := filepath.Abs(c.kubeconfig)
	if err != nil {
		return err
	}
	if c.auditLog != "" {
		if c.auditLog, err = filepath.Abs(c.auditLog); err != nil {
			return err
		}
	}
	if err := os.Remove(kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// A Unix socket's path is short, so everything below is relative to DIR.
	if err := errors.Join(os.MkdirAll(c.dir, 0o700), os.Chdir(c.dir)); err != nil {
		return err
	}
	if err := writePKI(c.port); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	etcd, err := startEtcd(c.fsync)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.Server.Stop() // not Close, which waits for the clients, all of them in this process

	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM, syscall.SIGINT)
	ended := make(chan error, 2)
	go func() { ended <- runAPIServer(c) }()
	go func() {
		if err := runControllers(kubeconfig); err != nil {
			ended <- err
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
	}()
	select {
	case err := <-ended:
		return err
	case <-asked:
	}
	// The API server has the signal too. It answers the requests that it has begun, and then waits
	// a minute for the controllers' watches. The clients do not need that.
	select {
	case err := <-ended:
		return err
	case <-time.After(time.Second):
		return nil
	}
}

// runControllers starts the clients of the API server and publishes the kubeconfig when all are
// ready.
func runControllers(kubeconfig string) error {
	ctx := context.Background() // they end with the process
	admin, err := clients(adminUser)
	if err != nil {
		return err
	}
	if err := await(ctx, "the API server", func() error {
		return admin.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- runControllerManager() }()
	go func() { failed <- runPods(ctx) }()
	if err := await(ctx, "the controllers", func() error {
		return settled(ctx, admin)
	}); err != nil {
		return err
	}
	if err := publish(kubeconfig); err != nil {
		return err
	}
	return <-failed
}

// await polls for a minute.
func await(ctx context.Context, what string, ready func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: not ready after a minute: %w", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func clients(user string) (*kubernetes.Clientset, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigOf(user))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	return kubernetes.NewForConfig(config)
}

// publish writes the administrator's kubeconfig where the caller wants it, in
// one step, so that a reader never sees half of it.
func publish(kubeconfig string) error {
	text, err := os.ReadFile(kubeconfigOf(adminUser))
	if err != nil {
		return err
	}
	temp := kubeconfig + ".tmp"
	return errors.Join(os.WriteFile(temp, text, 0o600), os.Rename(temp, kubeconfig))
}

// startEtcd serves on a socket in the working folder: no port, and no other process on the machine
// can reach it.
func startEtcd(fsync bool) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync = "etcd", !fsync
	cfg.LogLevel = "error"
	cfg.QuotaBackendBytes = 8 << 30
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = socketURL("etcd:0"), socketURL("etcd:0")
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = socketURL("peer:0"), socketURL("peer:0")
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		return nil, err
	case <-time.After(time.Minute):
		etcd.Close()
		return nil, errors.New("not ready after a minute")
	}
}
