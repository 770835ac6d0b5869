package example

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"argosy.dev/argosy/test/stack"
)

// agentName is of the agent's namespace, Deployment and ServiceAccount.
const agentName = "argosy-agent"

// Join joins the cluster as its admin would, and returns what that prints.
func (e *Edge) Join(binary, token string, flags ...string) (string, error) {
	file := filepath.Join(e.Dir, "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		return "", err
	}
	return e.Run(binary, append([]string{"agent", "join", e.URL, "--token-file", file,
		"--ca-file", e.CAFile, "--image", "registry.example.com/argosy:latest"}, flags...)...)
}

// StartAgent runs the command of the cluster's Deployment, with further flags, with the rights of
// its ServiceAccount: the nodes of the lab only pretend to run Pods.
func (e *Edge) StartAgent(ctx context.Context, binary string, flags ...string) (*stack.Process,
	error) {
	deployment, err := e.Cluster.Client().AppsV1().Deployments(agentName).Get(ctx, agentName,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the agent's Deployment: %w", err)
	}
	pod := deployment.Spec.Template.Spec
	kubeconfig, err := e.account(ctx, pod.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	args := slices.Clone(pod.Containers[0].Args)
	for i, arg := range args {
		if strings.HasSuffix(arg, "/ca.pem") { // mounted there
			args[i] = e.CAFile
		}
	}
	args = append(append(args, "--kubeconfig", kubeconfig), flags...)
	command := e.Command(binary, args...)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + e.Dir}
	for _, v := range pod.Containers[0].Env {
		if v.ValueFrom == nil {
			command.Env = append(command.Env, v.Name+"="+v.Value)
		}
	}
	return stack.StartProcess(command)
}

// account writes a kubeconfig with a token of the agent's ServiceAccount.
func (e *Edge) account(ctx context.Context, name string) (string, error) {
	seconds := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds}}
	token, err := e.Cluster.Client().CoreV1().ServiceAccounts(agentName).CreateToken(ctx, name,
		request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token for %s: %w", name, err)
	}
	kubeconfig, err := e.Cluster.KubeconfigFor(token.Status.Token, agentName)
	if err != nil {
		return "", err
	}
	file := filepath.Join(e.Dir, "agent.kubeconfig")
	return file, os.WriteFile(file, kubeconfig, 0o600)
}
