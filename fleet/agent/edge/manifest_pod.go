package edge

import (
	"net/url"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const caMount = "/etc/argosy-agent/ca"

// Arguments returns the arguments of `argosy agent run` in the Deployment.
func (in Install) Arguments() []string {
	in = in.withDefaults()
	args := []string{"agent", "run", "--hub", in.Hub, "--namespace", in.Namespace,
		"--argocd-namespace", in.ArgoCDNamespace, "--max-deletions", strconv.Itoa(in.MaxDeletions)}
	if len(in.CA) > 0 {
		args = append(args, "--ca-file", caMount+"/ca.pem")
	}
	if in.Proxy != "" {
		args = append(args, "--proxy", in.Proxy)
	}
	if in.PublicOnly {
		args = append(args, "--no-secrets")
	}
	return args
}

// deployment never runs two processes at once: a second one would take over from the first, which
// is how a copied identity is detected.
func (in Install) deployment() *appsv1.Deployment {
	one, history := int32(1), int32(2)
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(),
			Kind: "Deployment"}, ObjectMeta: in.meta(Name, in.Namespace),
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, RevisionHistoryLimit: &history, Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: podLabels()},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels()},
				Spec: in.pod()},
		},
	}
}

func (in Install) pod() corev1.PodSpec {
	yes, no, user := true, false, int64(65532)
	pod := corev1.PodSpec{
		ServiceAccountName: Name, EnableServiceLinks: &no,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user,
			RunAsGroup: &user, SeccompProfile: &corev1.SeccompProfile{
				Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "agent", Image: in.Image, Args: in.Arguments(),
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no,
				ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{
					Drop: []corev1.Capability{"ALL"}}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"),
					corev1.ResourceMemory: resource.MustParse("64Mi")},
				Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
			},
			// shows the reason of an exit in the Pod's status
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	}
	agent := &pod.Containers[0]
	if in.NoProxy != "" {
		agent.Env = append(agent.Env, corev1.EnvVar{Name: "NO_PROXY", Value: in.NoProxy})
	}
	if len(in.CA) > 0 {
		pod.Volumes = []corev1.Volume{
			{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: Name + "-ca"}}}}}
		agent.VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: caMount, ReadOnly: true}}
	}
	return pod
}

// hubPort returns the port of the hub, or of the proxy to it.
func (in Install) hubPort() int32 {
	address := in.Hub
	if in.Proxy != "" {
		address = in.Proxy
	}
	port := int64(443)
	if u, err := url.Parse(address); err == nil {
		if n, err := strconv.ParseInt(u.Port(), 10, 32); err == nil {
			port = n
		} else if u.Scheme == "http" {
			port = 80
		}
	}
	return int32(port)
}
