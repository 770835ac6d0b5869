package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"argosy.dev/argosy/fleet"
)

// Names of the agent's own objects.
const (
	// of the Deployment, the ServiceAccount, the Secret and the Roles
	Name          = "argosy-agent"
	DeletionsName = "argosy-agent-deletions"
	// ConfigMap in Argo CD's namespace that stores emergency stops
	StopMarker    = "argosy-emergency-stop"
	secretsPolicy = "argosy-agent-secrets"
)

// Install holds the options of an agent's installation.
type Install struct {
	Namespace       string // of the agent; default argosy-agent
	ArgoCDNamespace string // default argocd
	// further namespaces with Applications that the agent may adopt, change and delete, if they are
	// declared too
	ApplicationNamespaces []string

	Hub   string // URL
	Image string
	CA    []byte // PEM; trusted for the hub in addition to the system's authorities
	// URL; empty: none. It is visible in the Deployment: set a proxy with a password in the
	// environment of the node instead
	Proxy        string
	NoProxy      string // hosts that bypass the proxy
	MaxDeletions int    // Applications deleted within an hour without an approval; below 1: 20
	// PublicOnly omits all rights on Secrets in Argo CD's namespace. It suffices if all
	// repositories are public and the agent serves one environment.
	PublicOnly bool
	// InstallArgoCD adds the rights to install and upgrade the Argo CD of its namespace, which must
	// exist (ADR 0075).
	InstallArgoCD bool
	// SelfUpgrade lets the agent change the image of its own Deployment, and gives it the Lease by
	// which its Pods work one after the other (ADR 0075).
	SelfUpgrade bool
	// Reads lets the agent show people the resources of Applications (ADR 0085): it connects to the
	// Redis of its Argo CD through the API server.
	Reads bool
	// ReadNamespaces are the namespaces of workloads whose Pods, logs and events it reads too. They
	// need Reads.
	ReadNamespaces []string
	// Restarts lets people restart the workloads of Applications in ReadNamespaces (ADR 0096).
	Restarts bool
	// EgressOnly adds a NetworkPolicy that denies ingress and allows egress to DNS and the ports of
	// the hub and the API server.
	EgressOnly bool
}

func (in Install) withDefaults() Install {
	fill := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	fill(&in.Namespace, Name)
	fill(&in.ArgoCDNamespace, "argocd")
	if in.MaxDeletions < 1 {
		in.MaxDeletions = defaultMaxPerHour
	}
	return in
}

func (in Install) check() error {
	if _, err := ParseHub(in.Hub); err != nil {
		return err
	}
	for what, ns := range map[string]string{"the agent's namespace": in.Namespace,
		"Argo CD's namespace": in.ArgoCDNamespace} {
		if wrong := validation.IsDNS1123Label(ns); len(wrong) > 0 {
			return fmt.Errorf("%s: %s", what, wrong[0])
		}
	}
	if in.Namespace == in.ArgoCDNamespace {
		return errors.New(
			"the agent needs a namespace of its own: in Argo CD's its rights would cover its " +
				"own Secret, and Argo CD's rights its keys")
	}
	if err := in.CheckNamespaces(); err != nil {
		return err
	}
	if in.Image == "" {
		return errors.New("an image is required; name one with --image")
	}
	if len(in.CA) > 0 {
		if err := fleet.CheckCA(in.CA); err != nil {
			return fmt.Errorf("the CA file %w", err)
		}
	}
	if in.Proxy != "" {
		proxy, err := ParseProxy(in.Proxy)
		if err != nil {
			return err
		}
		if proxy.User != nil {
			return errors.New(
				"the proxy's URL contains a user name, which every reader of the Deployment " +
					"would see; remove it")
		}
	}
	return nil
}

// CheckNamespaces checks ApplicationNamespaces and ReadNamespaces, which are exact and neither Argo
// CD's namespace nor the agent's.
func (in Install) CheckNamespaces() error {
	in = in.withDefaults()
	if len(in.ReadNamespaces) > 0 && !in.Reads {
		return errors.New("--read-namespaces needs --reads")
	}
	if in.Restarts && len(in.ReadNamespaces) == 0 {
		return errors.New("--restarts needs --read-namespaces")
	}
	for flag, names := range map[string][]string{
		"--application-namespaces": in.ApplicationNamespaces,
		"--read-namespaces":        in.ReadNamespaces} {
		if err := in.checkNamespaces(names); err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
	}
	return nil
}

func (in Install) checkNamespaces(names []string) error {
	for i, ns := range names {
		err := fleet.ValidateNamespace(ns)
		switch {
		case err == nil && (ns == in.ArgoCDNamespace || ns == in.Namespace):
			err = fmt.Errorf("%q is the namespace of Argo CD or of the agent", ns)
		case err == nil && slices.Contains(names[:i], ns):
			err = fmt.Errorf("%q is there twice", ns)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Objects returns the objects that an admin applies to run an agent, in order. It is deterministic.
func (in Install) Objects() ([]runtime.Object, error) {
	in = in.withDefaults()
	if err := in.check(); err != nil {
		return nil, err
	}
	all := []runtime.Object{in.namespace(), in.account(), in.ownRole(), in.bind(in.Namespace),
		in.argoRole(), in.bind(in.ArgoCDNamespace), in.clusterRole(), in.clusterBinding()}
	for _, ns := range in.furtherNamespaces() {
		all = append(all, in.role(ns, in.furtherRules(ns)), in.bind(ns))
	}
	if in.writesSecrets() {
		all = append(all, in.policy(), in.policyBinding())
	}
	if len(in.CA) > 0 {
		all = append(all, in.bundle())
	}
	if in.EgressOnly {
		all = append(all, in.network())
	}
	return append(all, in.deployment()), nil
}

// Manifest returns the objects as YAML.
func (in Install) Manifest() ([]byte, error) {
	objects, err := in.Objects()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, o := range objects {
		text, err := asYAML(o)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.Bytes(), nil
}

// asYAML omits fields that the server sets.
func asYAML(o runtime.Object) ([]byte, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	delete(tree, "status")
	dropEmptyTimes(tree)
	text, err := yaml.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return text, nil
}

// dropEmptyTimes removes the creationTimestamp: null of typed objects.
func dropEmptyTimes(tree map[string]any) {
	for name, v := range tree {
		switch v := v.(type) {
		case map[string]any:
			dropEmptyTimes(v)
		case nil:
			delete(tree, name)
		}
	}
}

func (in Install) meta(name, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
		"app.kubernetes.io/name": Name}}
}

func (in Install) namespace() *corev1.Namespace {
	meta := in.meta(in.Namespace, "")
	meta.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: meta}
}

func (in Install) account() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: in.meta(Name, in.Namespace)}
}

func (in Install) subject() []rbac.Subject {
	return []rbac.Subject{{Kind: "ServiceAccount", Name: Name, Namespace: in.Namespace}}
}

func (in Install) bind(namespace string) *rbac.RoleBinding {
	return &rbac.RoleBinding{TypeMeta: metav1.TypeMeta{APIVersion: rbac.SchemeGroupVersion.String(),
		Kind: "RoleBinding"}, ObjectMeta: in.meta(Name, namespace),
		Subjects: in.subject(), RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role",
			Name: Name}}
}

func (in Install) role(namespace string, rules []rbac.PolicyRule) *rbac.Role {
	return &rbac.Role{TypeMeta: metav1.TypeMeta{APIVersion: rbac.SchemeGroupVersion.String(),
		Kind: "Role"}, ObjectMeta: in.meta(Name, namespace), Rules: rules}
}

func (in Install) ownRole() *rbac.Role { return in.role(in.Namespace, in.ownRules()) }

func (in Install) argoRole() *rbac.Role { return in.role(in.ArgoCDNamespace, in.argoRules()) }

// ownRules are for the agent's Secret, which the join or the admin has created, and its ConfigMap.
// RBAC cannot restrict create to a name.
func (in Install) ownRules() []rbac.PolicyRule {
	rules := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{Name},
			Verbs: []string{"get", "update"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{
			DeletionsName}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
	}
	if in.SelfUpgrade {
		rules = append(rules,
			rbac.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"},
				ResourceNames: []string{Name}, Verbs: []string{"get", "patch"}},
			rbac.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{
				"leases"}, ResourceNames: []string{Name}, Verbs: []string{"get", "update"}},
			rbac.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{
				"leases"}, Verbs: []string{"create"}})
	}
	return rules
}

// argoRules are the rights that the engine needs in Argo CD's namespace; its preflight reports
// missing ones. Server-side apply needs patch, and create for new objects.
func (in Install) argoRules() []rbac.PolicyRule {
	write := []string{"get", "list", "watch", "create", "patch", "delete"}
	rules := []rbac.PolicyRule{
		{APIGroups: []string{"argoproj.io"}, Resources: []string{"applications", "appprojects"},
			Verbs: write},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{
			"argocd-cm", StopMarker}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{
			StopMarker}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{APIGroups: []string{"apps"}, Resources: []string{"statefulsets", "deployments"},
			Verbs: []string{"list"}},
	}
	if !in.PublicOnly {
		rules = append(rules, rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{
			"secrets"}, Verbs: write})
	}
	if in.InstallArgoCD {
		rules = append(rules, installRules(in.PublicOnly)...)
	}
	if in.Reads && !in.InstallArgoCD {
		rules = append(rules, in.redisRules()...)
	}
	if len(in.ApplicationNamespaces) > 0 || in.Reads { // what Argo CD serves, and its Redis
		rules = append(rules, rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{
			"configmaps"}, ResourceNames: []string{"argocd-cmd-params-cm"},
			Verbs: []string{"get"}})
	}
	return rules
}

// installRules are the rights of docs/rings.md and docs/shadow.md in Argo CD's namespace, besides
// argoRules. With them, the agent may run any program there, and connect to any Pod.
func installRules(public bool) []rbac.PolicyRule {
	write := []string{"get", "create", "patch", "delete"}
	rules := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "create", "update", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "services"},
			Verbs: write},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"},
			Verbs: write},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"},
			Verbs: write},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"rolebindings"},
			Verbs: write},
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"},
			Verbs: []string{"get", "create", "patch", "delete", "escalate", "bind"}},
		// of docs/shadow.md
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/portforward"},
			Verbs: []string{"create"}},
	}
	if public { // otherwise argoRules cover it
		rules = append(rules,
			rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
				ResourceNames: []string{keySecret}, Verbs: []string{"get", "patch"}},
			rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
				ResourceNames: []string{redisSecret}, Verbs: []string{"get"}},
			rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"},
				Verbs: []string{"create"}})
	}
	return rules
}

// redisRules are the rights to connect to the Redis of Argo CD, which installRules include.
func (in Install) redisRules() []rbac.PolicyRule {
	rules := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"pods/portforward"},
			Verbs: []string{"create"}},
	}
	if in.PublicOnly { // otherwise argoRules cover it
		rules = append(rules, rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{
			"secrets"}, ResourceNames: []string{redisSecret}, Verbs: []string{"get"}})
	}
	return rules
}

// furtherNamespaces are the namespaces besides Argo CD's and the agent's in which it has rights.
func (in Install) furtherNamespaces() []string {
	all := slices.Clone(in.ApplicationNamespaces)
	for _, ns := range in.ReadNamespaces {
		if !slices.Contains(all, ns) {
			all = append(all, ns)
		}
	}
	return all
}

func (in Install) furtherRules(namespace string) (rules []rbac.PolicyRule) {
	if slices.Contains(in.ApplicationNamespaces, namespace) {
		rules = append(rules, applicationRules()...)
	}
	if slices.Contains(in.ReadNamespaces, namespace) {
		rules = append(rules, readRules()...)
		if in.Restarts {
			rules = append(rules, rbac.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{
				"deployments", "statefulsets", "daemonsets"}, Verbs: []string{"get", "patch"}})
		}
	}
	return rules
}

// readRules are the rights to read what Argo CD keeps no manifest of: the objects that controllers
// make of an Application's resources. No Secret is one of them.
func readRules() []rbac.PolicyRule {
	get := []string{"get"}
	return []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods", "pods/log", "endpoints",
			"persistentvolumeclaims"}, Verbs: get},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"replicasets", "controllerrevisions"},
			Verbs: get},
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: get},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"},
			Verbs: get},
	}
}

// writesSecrets reports whether the agent has a right to write Secrets in Argo CD's namespace.
func (in Install) writesSecrets() bool { return !in.PublicOnly || in.InstallArgoCD }

// applicationRules are the rights in a further namespace: the agent creates no Application there.
func applicationRules() []rbac.PolicyRule {
	return []rbac.PolicyRule{{APIGroups: []string{"argoproj.io"}, Resources: []string{
		"applications"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}}}
}

// clusterRules cover the cluster-scoped reads: the UID that identifies the cluster, and the schema
// that reveals Argo CD's version.
func (in Install) clusterRules() []rbac.PolicyRule {
	rules := []rbac.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{
			"kube-system"}, Verbs: []string{"get"}},
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{
			"customresourcedefinitions"}, ResourceNames: []string{"applications.argoproj.io"},
			Verbs: []string{"get"}},
	}
	if in.InstallArgoCD {
		rules = append(rules,
			rbac.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"},
				ResourceNames: []string{in.ArgoCDNamespace}, Verbs: []string{"get"}},
			rbac.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{
				"customresourcedefinitions"}, ResourceNames: []string{
				"applications.argoproj.io", "appprojects.argoproj.io"},
				Verbs: []string{"get", "patch"}},
			rbac.PolicyRule{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{
				"customresourcedefinitions"}, Verbs: []string{"create"}})
	}
	return rules
}

// clusterName names cluster-scoped objects. It differs between two agents on a cluster.
func (in Install) clusterName() string {
	if in.Namespace == Name {
		return Name
	}
	return Name + "-" + in.Namespace
}

func (in Install) clusterRole() *rbac.ClusterRole {
	return &rbac.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbac.SchemeGroupVersion.String(),
		Kind: "ClusterRole"}, ObjectMeta: in.meta(in.clusterName(), ""), Rules: in.clusterRules()}
}

func (in Install) clusterBinding() *rbac.ClusterRoleBinding {
	return &rbac.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: rbac.SchemeGroupVersion.String(),
			Kind: "ClusterRoleBinding"}, ObjectMeta: in.meta(in.clusterName(), ""),
		Subjects: in.subject(), RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole",
			Name: in.clusterName()}}
}

func (in Install) bundle() *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: in.meta(Name+"-ca", in.Namespace), Data: map[string]string{
			"ca.pem": string(in.CA)}}
}

func (in Install) network() *networking.NetworkPolicy {
	udp, tcp := corev1.ProtocolUDP, corev1.ProtocolTCP
	port := func(protocol *corev1.Protocol, n int32) networking.NetworkPolicyPort {
		at := intstr.FromInt32(n)
		return networking.NetworkPolicyPort{Protocol: protocol, Port: &at}
	}
	// DNS; the API server, through its Service and directly
	ports := []networking.NetworkPolicyPort{port(&udp, 53), port(&tcp, 53), port(&tcp, 443),
		port(&tcp, 6443)}
	if n := in.hubPort(); n != 443 && n != 6443 {
		ports = append(ports, port(&tcp, n))
	}
	return &networking.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networking.SchemeGroupVersion.String(),
			Kind: "NetworkPolicy"}, ObjectMeta: in.meta(Name, in.Namespace),
		Spec: networking.NetworkPolicySpec{PodSelector: metav1.LabelSelector{
			MatchLabels: podLabels()}, PolicyTypes: []networking.PolicyType{
			networking.PolicyTypeIngress, networking.PolicyTypeEgress},
			Egress: []networking.NetworkPolicyEgressRule{{Ports: ports}}}}
}

func podLabels() map[string]string { return map[string]string{"app.kubernetes.io/name": Name} }

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
	if len(in.ApplicationNamespaces) > 0 {
		args = append(args, "--application-namespaces",
			strings.Join(in.ApplicationNamespaces, ","))
	}
	if in.Reads {
		args = append(args, "--reads")
	}
	if len(in.ReadNamespaces) > 0 {
		args = append(args, "--read-namespaces", strings.Join(in.ReadNamespaces, ","))
	}
	if in.Restarts {
		args = append(args, "--restarts")
	}
	if in.SelfUpgrade {
		args = append(args, "--self-upgrade", "--ops", fmt.Sprintf(":%d", opsPort))
	}
	return args
}

const opsPort = 8081 // of /readyz

// deployment never runs two processes at once that work: the second one would take over from the
// first, which is how a copied identity is detected. With SelfUpgrade, the new one waits.
func (in Install) deployment() *appsv1.Deployment {
	one, history := int32(1), int32(2)
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if in.SelfUpgrade {
		surge, unavailable := intstr.FromInt32(1), intstr.FromInt32(0)
		strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge,
				MaxUnavailable: &unavailable}}
	}
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(),
			Kind: "Deployment"}, ObjectMeta: in.meta(Name, in.Namespace),
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, RevisionHistoryLimit: &history, Strategy: strategy,
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
	if in.SelfUpgrade {
		agent.Env = append(agent.Env, corev1.EnvVar{Name: "POD_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "metadata.name"}}})
		agent.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(opsPort)}}}
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

// ourSecret is a CEL expression that is true for a Secret that the control plane has created for an
// Argo CD, by its labels.
const ourSecret = `has(%s.metadata.labels) && 'app.kubernetes.io/managed-by' in %s.metadata.labels && %s.metadata.labels['app.kubernetes.io/managed-by'] == 'argosy' && ` +
	`'argocd.argoproj.io/secret-type' in %s.metadata.labels && %s.metadata.labels['argocd.argoproj.io/secret-type'] in ['repository', 'cluster']`

// keySecret is the Secret of Argo CD's own keys, which an installation creates.
const keySecret = "argocd-secret"

// redisSecret is the Secret with the password of Argo CD's Redis, which knows the versions of the
// clusters.
const redisSecret = "argocd-redis"

func labelled(object string) string { return strings.ReplaceAll(ourSecret, "%s", object) }

// policy denies the agent writes that RBAC cannot distinguish: those in Argo CD's namespace to
// other Secrets, such as argocd-secret. Both the old and the new object must be ours, so that a
// write can neither adopt a Secret by a label nor release one. Kubernetes serves this kind from
// 1.30 on.
func (in Install) policy() *admission.ValidatingAdmissionPolicy {
	fail, equivalent := admission.Fail, admission.Equivalent
	return &admission.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(),
			Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: in.meta(in.policyName(), ""),
		Spec: admission.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admission.MatchResources{MatchPolicy: &equivalent,
				ResourceRules: []admission.NamedRuleWithOperations{{
					RuleWithOperations: admission.RuleWithOperations{
						Operations: []admission.OperationType{admission.Create, admission.Update,
							admission.Delete},
						Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"secrets"}},
					},
				}}},
			MatchConditions: []admission.MatchCondition{
				{Name: "by-the-agent", Expression: "request.userInfo.username == '" +
					in.username() + "' && request.namespace == '" + in.ArgoCDNamespace + "'"}},
			Validations: []admission.Validation{
				{Expression: "oldObject == null || (" + labelled("oldObject") + ")" +
					in.orKeys("object != null && oldObject"),
					Message: "the agent changes and deletes only the Secrets that it has made"},
				{Expression: "object == null || (" + labelled("object") + ")" +
					in.orKeys("object"),
					Message: "the agent makes only Secrets of repositories and clusters, with " +
						"its labels"},
			},
		},
	}
}

// orKeys admits argocd-secret too if the agent installs Argo CD: it creates it, and never deletes
// it.
func (in Install) orKeys(object string) string {
	if !in.InstallArgoCD {
		return ""
	}
	return " || (" + object + ".metadata.name == '" + keySecret + "')"
}

func (in Install) policyName() string {
	if in.Namespace == Name {
		return secretsPolicy
	}
	return secretsPolicy + "-" + in.Namespace
}

// username returns the API server's name for the agent's ServiceAccount.
func (in Install) username() string { return "system:serviceaccount:" + in.Namespace + ":" + Name }

func (in Install) policyBinding() *admission.ValidatingAdmissionPolicyBinding {
	return &admission.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(),
			Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: in.meta(in.policyName(), ""),
		Spec: admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: in.policyName(),
			ValidationActions: []admission.ValidationAction{admission.Deny},
			MatchResources: &admission.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{
					"kubernetes.io/metadata.name": in.ArgoCDNamespace}}}},
	}
}
