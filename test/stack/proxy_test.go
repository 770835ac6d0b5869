package stack_test

import (
	"context"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"argosy.dev/argosy/test/stack"
)

func TestAProxyDeliversARequestLongAfterItsClientHasGone(t *testing.T) {
	c := startCluster(t, stack.ClusterOptions{Name: "proxied"})
	p, err := stack.StartProxy(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	direct := c.Client().CoreV1().ConfigMaps("default")
	through := kubernetes.NewForConfigOrDie(p.REST()).CoreV1().ConfigMaps("default")
	for name, deliver := range map[string]bool{"late": true, "lost": false} {
		held := p.Hold(func(r *http.Request) bool { return r.Method == http.MethodPost })
		ctx, cancel := context.WithCancel(t.Context())
		created := make(chan error, 1)
		go func() {
			_, err := through.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			created <- err
		}()
		<-held.Arrived
		cancel()
		if err := <-created; err == nil {
			t.Fatalf("%s: created although it is held", name)
		}
		if _, err := direct.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(
			err) {
			t.Errorf("%s arrived before it was released: %v", name, err)
		}
		if deliver {
			held.Release()
		} else {
			held.Drop()
		}
		<-held.Over
		if _, err := direct.Get(t.Context(), name, metav1.GetOptions{}); (err == nil) != deliver {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := through.Get(t.Context(), "late", metav1.GetOptions{}); err != nil {
		t.Errorf("other requests pass: %v", err)
	}
	if n := p.Count("POST", "configmaps"); n != 2 {
		t.Errorf("%d requests were counted", n)
	}
}
