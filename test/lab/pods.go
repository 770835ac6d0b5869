package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// nodeName is the one node's.
const nodeName = "lab"

// podRunner replaces the scheduler and, with kubelet, the kubelet: every Pod fits on the one node
// and starts at once.
type podRunner struct {
	client kubernetes.Interface
	pods   listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// runPods returns only on failure.
func runPods(ctx context.Context) error {
	client, err := clients(podRunnerUser)
	if err != nil {
		return err
	}
	port, err := startKubelet(client)
	if err != nil {
		return err
	}
	if err := registerNode(ctx, client, port); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods()
	r := &podRunner{
		client: client, pods: informer.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](
				10*time.Millisecond, 10*time.Second)),
	}
	enqueue := func(obj any) {
		if name, err := cache.ObjectToName(obj); err == nil {
			r.queue.Add(name)
		}
	}
	if _, err := informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, obj any) { enqueue(obj) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	const workers = 8
	for range workers - 1 {
		go r.work(ctx)
	}
	r.work(ctx)
	return nil
}

// registerNode creates the node, or gives it the kubelet's present port.
func registerNode(ctx context.Context, client kubernetes.Interface, port int32) error {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1k"), corev1.ResourceMemory: resource.MustParse(
			"1Ti"), corev1.ResourcePods: resource.MustParse("10k"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
			corev1.LabelHostname: nodeName}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Lab",
					LastTransitionTime: metav1.Now()}},
		},
	}
	_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Status = node.Status
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, live, metav1.UpdateOptions{})
	return err
}

func (r *podRunner) work(ctx context.Context) {
	for {
		name, shutdown := r.queue.Get()
		if shutdown {
			return
		}
		again, err := r.sync(ctx, name)
		switch {
		case err != nil:
			klog.ErrorS(err, "Pod", "name", name)
			r.queue.AddRateLimited(name)
		case again > 0:
			r.queue.AddAfter(name, again)
		default:
			r.queue.Forget(name)
		}
		r.queue.Done(name)
	}
}

// sync takes the Pod one step further and returns the delay until the next; each step's own event
// brings the next one sooner.
func (r *podRunner) sync(ctx context.Context, name cache.ObjectName) (time.Duration, error) {
	pod, err := r.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	pods := r.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil && pod.Spec.NodeName != "":
		// The containers have ended: a kubelet confirms that by this last delete.
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(
				string(pod.UID)),
		})
	case pod.Spec.NodeName == "":
		if len(pod.Spec.SchedulingGates) > 0 {
			return 0, nil
		}
		err = pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
		}, metav1.CreateOptions{})
	default:
		next, again := play(pod, time.Now())
		if next == nil {
			return again, nil
		}
		_, err = pods.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil // it has changed, and the change brings us back
	}
	return 0, err
}
