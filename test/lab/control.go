package main

import (
	"context"
	"net/url"
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	logsapi "k8s.io/component-base/logs/api/v1"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func init() {
	// Both components set up the one logger of the process. The second would
	// take that for a mistake and exit.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
}

// socketURL names a Unix socket in the working folder. etcd wants every address
// to end in a port, so the name does.
func socketURL(name string) []url.URL { return []url.URL{{Scheme: "unix", Host: name}} }

// auditPolicy records every request once, when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// runAPIServer returns when the server has ended, after SIGTERM or SIGINT.
func runAPIServer(c config) error {
	args := []string{
		"--etcd-servers=unix://etcd:0",
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.port),
		// No Pod runs here, so the Service's endpoint has no user; the API server refuses a
		// loopback address.
		"--advertise-address=192.0.2.1", "--external-hostname=127.0.0.1",
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + pkiFile("server.crt"), "--tls-private-key-file=" +
			pkiFile("server.key"),
		"--client-ca-file=" + pkiFile("ca.crt"), "--requestheader-client-ca-file=" +
			pkiFile("ca.crt"),
		"--kubelet-client-certificate=" + pkiFile(adminUser+".crt"),
		"--kubelet-client-key=" + pkiFile(adminUser+".key"),
		"--authorization-mode=Node,RBAC", "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + pkiFile("sa.key"), "--service-account-signing-key-file=" +
			pkiFile("sa.key"),
	}
	if c.auditLog != "" {
		if err := os.WriteFile("audit-policy.yaml", []byte(auditPolicy), 0o600); err != nil {
			return err
		}
		args = append(args, "--audit-policy-file=audit-policy.yaml", "--audit-log-path="+c.auditLog,
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=4096") // MB: tests count the requests of one file
	}
	cmd := apiserver.NewAPIServerCommand()
	cmd.SetArgs(args)
	return cmd.Execute()
}

// runControllerManager returns only on failure.
func runControllerManager() error {
	cmd := controllermanager.NewControllerManagerCommand()
	cmd.SetArgs([]string{
		"--kubeconfig=" + kubeconfigOf(controllerUser), "--authentication-kubeconfig=",
		"--authorization-kubeconfig=",
		"--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=true",
		"--root-ca-file=" + pkiFile("ca.crt"), "--service-account-private-key-file=" +
			pkiFile("sa.key"),
		"--cluster-signing-cert-file=" + pkiFile("ca.crt"), "--cluster-signing-key-file=" +
			pkiFile("ca.key"),
		// The one node sends no heartbeats, which these would take for its death.
		"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-node-ipam-controller",
		"--flex-volume-plugin-dir=flexvolume", // or it makes one in /usr
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	})
	return cmd.Execute()
}

// settled reports whether the controllers work: they have made the default objects of every
// namespace, and the node is there.
func settled(ctx context.Context, admin kubernetes.Interface) error {
	if _, err := admin.CoreV1().ServiceAccounts("default").Get(ctx, "default",
		metav1.GetOptions{}); err != nil {
		return err
	}
	if _, err := admin.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt",
		metav1.GetOptions{}); err != nil {
		return err
	}
	if _, err := admin.CoreV1().Services("default").Get(ctx, "kubernetes",
		metav1.GetOptions{}); err != nil {
		return err
	}
	_, err := admin.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	return err
}
