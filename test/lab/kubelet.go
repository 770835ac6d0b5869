package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

// forwardAnnotation of a Pod, followed by a port, is the address of the process that a test has
// started for the Pod: `kubectl port-forward` of that port leads there.
const forwardAnnotation = "lab.argosy.dev/forward-"

// kubelet serves the one node's port forwards and logs to the API server. No container runs, so
// that a Pod's annotations name the addresses and have the logs.
type kubelet struct{ client kubernetes.Interface }

// startKubelet listens until the process ends, and returns the port.
func startKubelet(client kubernetes.Interface) (int32, error) {
	ca, err := os.ReadFile(pkiFile("ca.crt"))
	if err != nil {
		return 0, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(pkiFile("server.crt"), pkiFile("server.key"))
	if err != nil {
		return 0, err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{pair}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert})
	if err != nil {
		return 0, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/portForward/{namespace}/{pod}", kubelet{client}.portForward)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}",
		kubelet{client}.containerLogs)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); err != nil {
			klog.ErrorS(err, "kubelet")
		}
	}()
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.New("the kubelet's listener has no TCP address")
	}
	return int32(addr.Port), nil
}

func (k kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	pod, err := k.client.CoreV1().Pods(r.PathValue("namespace")).Get(r.Context(),
		r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{pod}, pod.Name, pod.UID, options, time.Hour,
		30*time.Second, portforward.SupportedProtocols)
}

// forwarder copies between a stream and the process of a Pod.
type forwarder struct{ pod *corev1.Pod }

// PortForward returns when one of both sides has closed.
func (f forwarder) PortForward(ctx context.Context, _ string, _ types.UID, port int32,
	stream io.ReadWriteCloser) error {
	defer func() { _ = stream.Close() }()
	address := f.pod.Annotations[fmt.Sprint(forwardAnnotation, port)]
	if address == "" {
		return fmt.Errorf("no process listens on port %d of Pod %s", port, f.pod.Name)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ended := make(chan error, 2)
	copying := func(to io.Writer, from io.Reader) {
		_, err := io.Copy(to, from)
		ended <- err
	}
	go copying(conn, stream)
	go copying(stream, conn)
	return <-ended
}
