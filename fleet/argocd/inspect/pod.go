package inspect

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"argosy.dev/argosy/fleet/mirror"
)

const (
	podKind          = "Pod"
	defaultContainer = "kubectl.kubernetes.io/default-container"
	maxContainers    = 100
)

// podOf parses a Pod. A manifest with fields of other types gives an empty one.
func podOf(manifest map[string]any) corev1.Pod {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(plainNumbers(manifest),
		&pod); err != nil {
		return corev1.Pod{}
	}
	return pod
}

// plainNumbers is a manifest without json.Number, which the converter does not know.
func plainNumbers(manifest map[string]any) map[string]any {
	out, ok := plainValue(manifest).(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return out
}

func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = plainValue(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = plainValue(value)
		}
		return out
	case interface{ Int64() (int64, error) }:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, ok := v.(interface{ Float64() (float64, error) }); ok {
			if n, err := f.Float64(); err == nil {
				return n
			}
		}
		return nil
	}
	return v
}

// containers returns the containers of a Pod, those of initialization first.
func containers(manifest map[string]any) []mirror.Container {
	pod := podOf(manifest)
	var out []mirror.Container
	add := func(declared []corev1.Container, states []corev1.ContainerStatus, init bool) {
		for _, c := range declared {
			if len(out) == maxContainers {
				return
			}
			one := mirror.Container{Name: short(c.Name), Image: short(c.Image), Init: init,
				State: "Waiting"}
			for i := range states {
				if states[i].Name == c.Name {
					fillState(&one, &states[i])
				}
			}
			out = append(out, one)
		}
	}
	add(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true)
	add(pod.Spec.Containers, pod.Status.ContainerStatuses, false)
	return out
}

func fillState(c *mirror.Container, s *corev1.ContainerStatus) {
	c.Ready, c.Restarts = s.Ready, int(s.RestartCount)
	switch {
	case s.State.Running != nil:
		c.State, c.Since = "Running", timeOf(&s.State.Running.StartedAt)
	case s.State.Terminated != nil:
		t := s.State.Terminated
		c.State, c.Since, c.Message = "Terminated", timeOf(&t.FinishedAt), message(t.Message)
		c.Reason = endOf(t)
	case s.State.Waiting != nil:
		c.Reason, c.Message = short(s.State.Waiting.Reason), message(s.State.Waiting.Message)
	}
	if t := s.LastTerminationState.Terminated; t != nil {
		c.Last = endOf(t)
	}
}

func endOf(t *corev1.ContainerStateTerminated) string {
	reason := short(t.Reason)
	if reason == "" {
		reason = "ended"
	}
	if t.Signal != 0 {
		return fmt.Sprintf("%s, signal %d", reason, t.Signal)
	}
	return fmt.Sprintf("%s, exit code %d", reason, t.ExitCode)
}

// LogContainer returns the container whose log is meant: the named one, else the one that the Pod's
// annotation names for kubectl, else the first. An error lists the Pod's containers.
func LogContainer(manifest map[string]any, name string) (string, error) {
	pod := podOf(manifest)
	var names []string
	for _, of := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for _, c := range of {
			names = append(names, short(c.Name))
		}
	}
	for _, ephemeral := range pod.Spec.EphemeralContainers {
		names = append(names, short(ephemeral.Name))
	}
	want := name
	if want == "" {
		want = pod.Annotations[defaultContainer]
	}
	for _, c := range names {
		if c == want {
			return c, nil
		}
	}
	if name == "" && len(names) > 0 {
		return names[0], nil
	}
	return "", fmt.Errorf("it has no container %q, but %q", name, names)
}
