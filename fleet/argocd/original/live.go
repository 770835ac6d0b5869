package original

import (
	"cmp"
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
// are still read. err is set if no kind can be. progress gets the number of objects of a kind after
// each answer; nil: nothing.
func Read(ctx context.Context, config *rest.Config, namespace string, progress func(kind string,
	objects int)) (objects []map[string]any, unread []string, err error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range live {
		options := metav1.ListOptions{LabelSelector: k.labels, Limit: pageSize}
		before := len(objects)
		for {
			page, listed := client.Resource(k.resource).Namespace(namespace).List(ctx, options)
			switch {
			case apierrors.IsNotFound(listed): // the cluster lacks the kind
			case apierrors.IsResourceExpired(listed) && options.Continue != "":
				// the pages are too old to continue: read all at once
				objects, options.Continue, options.Limit = objects[:before], "", 0
				continue
			case listed != nil:
				failed := fmt.Errorf("failed to list %s: %w", k.resource.Resource, listed)
				if n := len(objects) - before; n > 0 {
					failed = fmt.Errorf("failed to list all %s, %d are read: %w",
						k.resource.Resource, n, listed)
				}
				unread, err = append(unread, failed.Error()), cmp.Or(err, failed)
			}
			if listed != nil {
				break
			}
			for i := range page.Items {
				objects = append(objects, page.Items[i].Object)
			}
			if progress != nil {
				progress(k.kind, len(objects)-before)
			}
			if options.Continue = page.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if len(unread) == len(live) {
		if apierrors.IsForbidden(err) && namespace == "" {
			err = fmt.Errorf("%w; with rights in the namespace of the Argo CD alone, name it with "+
				"--namespace", err)
		}
		return nil, nil, err
	}
	return objects, unread, nil
}
