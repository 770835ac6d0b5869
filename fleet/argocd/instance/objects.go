package instance

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	argosyengine "argosy.dev/argosy/charts/argosy-engine"
	"argosy.dev/argosy/fleet"
)

// Settings are what differs between the instances of one version.
type Settings struct {
	Namespace      string
	InstallationID string
	// Base is the digest of the settings that the instance had when Argosy took it over: as long as
	// they are the same, no Pod is replaced for them. "" without one.
	Base string
	// Size is what the components have; nil: others set their resources.
	Size *fleet.InstanceSize
	// Shards are the application-controllers; 0: others set their number.
	Shards int
}

// Stages are the objects of an instance in the order in which they are applied.
type Stages struct {
	Definitions []*unstructured.Unstructured // of the cluster
	Objects     []*unstructured.Unstructured // of the namespace
	Projects    []*unstructured.Unstructured // of the kinds that Definitions define
}

// Names of objects that Argosy adds to Argo CD's.
const (
	gitConfigMap = "argosy-git"
	gitMount     = "/app/config/argosy-git"
	parameters   = "argocd-cmd-params-cm"

	controllerName = "argocd-application-controller"
	envShards      = "ARGOCD_CONTROLLER_REPLICAS"
)

// Marks on the objects.
const (
	// labelInstance marks what Argosy has applied; it deletes nothing else. Its value is the
	// installationID.
	labelInstance = "argosy.dev/instance"
	// annotationSettings of a Pod template replaces the Pods when their settings change: Argo CD
	// reads its parameters at the start of a process only.
	annotationSettings = "argosy.dev/settings"
	// annotationVersion of a CustomResourceDefinition is the version of Argo CD that it is of.
	annotationVersion = "argosy.dev/argocd-version"
)

// configMaps are the settings that Argosy depends on, by ConfigMap. They are those of the chart
// argosy-engine (ADR 0015). Others own all other keys.
var configMaps = map[string]map[string]string{
	"argocd-cm": {"application.resourceTrackingMethod": "annotation", "admin.enabled": "false",
		"jsonnet.enable": "false", "helm.valuesFileSchemes": ""},
	parameters: {"reposerver.enable.git.submodule": "false", "controller.status.processors": "100",
		"controller.operation.processors": "50", "reposerver.parallelism.limit": "20"},
	"argocd-tls-certs-cm": {}, "argocd-rbac-cm": {}, "argocd-gpg-keys-cm": {},
	"argocd-ssh-known-hosts-cm": {},
}

// limits bound what an unresponsive cluster occupies of the application-controller (ADR 0021).
var limits = []struct{ name, value string }{
	{"ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION", "3m"}, {"ARGOCD_K8S_SERVER_SIDE_TIMEOUT", "30s"},
	{"ARGOCD_K8S_TCP_TIMEOUT", "30s"}, {"ARGOCD_K8S_TLS_HANDSHAKE_TIMEOUT", "5s"},
}

// Digest is the digest of the settings that a process reads at its start.
func (s Settings) Digest() string {
	text, err := json.Marshal([]any{configMaps[parameters], argosyengine.Git(), limits[0].value})
	if err != nil {
		panic(err) // strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// Stages lays the settings over the manifests. It leaves out the number of replicas, which a
// person, a fence or Target.scale sets, and all other fields that Argo CD does not publish.
func (m *Manifests) Stages(s Settings) (out Stages, err error) {
	for _, published := range m.objects {
		o := published.DeepCopy()
		if o.GetKind() == "CustomResourceDefinition" {
			annotate(o, annotationVersion, m.Version)
			out.Definitions = append(out.Definitions, o)
			continue
		}
		o.SetNamespace(s.Namespace)
		s.label(o)
		switch o.GetKind() {
		case "RoleBinding":
			subjects, _ := o.Object["subjects"].([]any)
			for _, subject := range subjects {
				if subject, ok := subject.(map[string]any); ok {
					subject["namespace"] = s.Namespace
				}
			}
		case "ConfigMap":
			s.configure(o)
		case "StatefulSet", "Deployment":
			if err := s.overlay(o); err != nil {
				return Stages{}, err
			}
		}
		out.Objects = append(out.Objects, o)
	}
	out.Objects = append(out.Objects, s.git())
	out.Projects = append(out.Projects, s.project())
	return out, nil
}

func (s Settings) configure(o *unstructured.Unstructured) {
	data, ok := o.Object["data"].(map[string]any)
	if !ok {
		data = map[string]any{}
		o.Object["data"] = data
	}
	for key, value := range configMaps[o.GetName()] {
		data[key] = value
	}
	if o.GetName() == "argocd-cm" {
		data["installationID"] = s.InstallationID
	}
	if len(data) == 0 { // others own every key
		delete(o.Object, "data")
	}
}

// overlay sets the environment, the mounts and the annotation of a workload.
func (s Settings) overlay(o *unstructured.Unstructured) error {
	spec, ok := at(o.Object, "spec")
	if !ok {
		return fmt.Errorf("%s has no spec", o.GetName())
	}
	delete(spec, "replicas")
	template, ok := at(spec, "template")
	pod, isPod := at(spec, "template", "spec")
	if !ok || !isPod {
		return fmt.Errorf("%s has no Pod template", o.GetName())
	}
	if s.Base != s.Digest() {
		meta, ok := template["metadata"].(map[string]any)
		if !ok {
			meta = map[string]any{}
			template["metadata"] = meta
		}
		annotations, ok := meta["annotations"].(map[string]any)
		if !ok {
			annotations = map[string]any{}
			meta["annotations"] = annotations
		}
		annotations[annotationSettings] = s.Digest()
	}
	for _, c := range containers(o) {
		if c["name"] != workloads[o.GetName()] {
			continue
		}
		switch o.GetName() {
		case "argocd-application-controller":
			// the actor that sets the replicas owns the number of shards
			setEnv(c, envShards, "")
			if s.Shards > 1 {
				setEnv(c, envShards, strconv.Itoa(s.Shards))
			}
			if s.Size != nil {
				setResources(c, s.Size.ApplicationController)
			}
			for _, limit := range limits {
				setEnv(c, limit.name, limit.value)
			}
		case "argocd-repo-server":
			if s.Size != nil {
				setResources(c, s.Size.RepoServer)
			}
			setEnv(c, "GIT_CONFIG_GLOBAL", gitMount+"/gitconfig")
			add(c, "volumeMounts", map[string]any{"name": gitConfigMap, "mountPath": gitMount,
				"readOnly": true})
		}
	}
	if o.GetName() == "argocd-repo-server" { // Git runs the files as hooks
		add(pod, "volumes", map[string]any{"name": gitConfigMap,
			"configMap": map[string]any{"name": gitConfigMap, "defaultMode": int64(0o555)}})
	}
	return nil
}

func add(o map[string]any, field string, entry map[string]any) {
	list, _ := o[field].([]any)
	o[field] = append(list, entry)
}

// setEnv sets a variable of a container; an empty value removes it.
func setEnv(container map[string]any, name, value string) {
	list, _ := container["env"].([]any)
	list = slices.DeleteFunc(list, func(e any) bool {
		entry, _ := e.(map[string]any)
		return entry["name"] == name
	})
	if value != "" {
		list = append(list, map[string]any{"name": name, "value": value})
	}
	container["env"] = list
}

// setResources sets the requests of a container, and the limit of its memory: without a limit of
// CPU, a process that has more to do takes what its node has left.
func setResources(container map[string]any, r fleet.Resources) {
	requests, limits := map[string]any{}, map[string]any{}
	if r.CPU != "" {
		requests["cpu"] = string(r.CPU)
	}
	if r.Memory != "" {
		requests["memory"], limits["memory"] = string(r.Memory), string(r.Memory)
	}
	if len(requests) > 0 {
		container["resources"] = map[string]any{"requests": requests, "limits": limits}
	}
}

// git are the settings with which the repo-server's Git rejects what would change a source.
func (s Settings) git() *unstructured.Unstructured {
	data := map[string]any{}
	for name, text := range argosyengine.Git() {
		data[name] = text
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": gitConfigMap, "namespace": s.Namespace}, "data": data}}
	s.label(o)
	return o
}

// project is the AppProject of Applications that name none. Argo CD's own admits everything.
func (s Settings) project() *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "argoproj.io/v1alpha1",
		"kind":     "AppProject",
		"metadata": map[string]any{"name": "default", "namespace": s.Namespace},
		"spec":     map[string]any{"sourceRepos": []any{}, "destinations": []any{}}}}
	s.label(o)
	return o
}

func (s Settings) label(o *unstructured.Unstructured) {
	labels := maps.Clone(o.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelInstance] = s.InstallationID
	o.SetLabels(labels)
}

func annotate(o *unstructured.Unstructured, key, value string) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	o.SetAnnotations(annotations)
}
