package original

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// secretLabel marks the Secrets of Argo CD.
const secretLabel = "argocd.argoproj.io/secret-type"

// pageSize bounds the objects of one answer of the API server.
const pageSize = 500

// live are the kinds that are read from a cluster.
var live = []struct {
	kind     string
	resource schema.GroupVersionResource
	labels   string
}{
	{"Application", argo("applications"), ""},
	{"ApplicationSet", argo("applicationsets"), ""},
	{"AppProject", argo("appprojects"), ""},
	{"Secret", schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, secretLabel},
}

func argo(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1",
		Resource: resource}
}

// Kubeconfig is the connection of a person's kubeconfig. An empty file means the default one.
func Kubeconfig(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
}

// Read returns the objects of Argo CD in a namespace; an empty namespace means all of them. It
// reads only. A kind that cannot be listed is named in unread with the reason, and the other kinds
// are still read. err is set if no kind can be.
func Read(ctx context.Context, config *rest.Config, namespace string) (objects []map[string]any,
	unread []string, err error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range live {
		options := metav1.ListOptions{LabelSelector: k.labels, Limit: pageSize}
		for {
			page, listed := client.Resource(k.resource).Namespace(namespace).List(ctx, options)
			if apierrors.IsNotFound(listed) { // the cluster lacks the kind
				break
			}
			if listed != nil {
				err = fmt.Errorf("failed to list %s: %w", k.resource.Resource, listed)
				unread = append(unread, err.Error())
				break
			}
			for i := range page.Items {
				objects = append(objects, page.Items[i].Object)
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if len(unread) == len(live) {
		return nil, nil, err
	}
	return objects, unread, nil
}
