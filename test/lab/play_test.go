package main

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestPlay(t *testing.T) {
	for name, c := range map[string]struct {
		image   string
		command []string
		restart corev1.RestartPolicy
		phases  []corev1.PodPhase // at the start, then each time that something changes
		lasts   time.Duration     // of the first phase
		waiting string            // reason at the end
	}{
		"a server runs and stays": {restart: corev1.RestartPolicyAlways,
			phases: phases(corev1.PodRunning)},
		"a job's pod runs, then succeeds": {restart: corev1.RestartPolicyNever,
			phases: phases(corev1.PodRunning, corev1.PodSucceeded)},
		"a job that sleeps takes its time": {restart: corev1.RestartPolicyOnFailure,
			command: []string{"/bin/sleep", "30"},
			phases:  phases(corev1.PodRunning, corev1.PodSucceeded), lasts: 30 * time.Second},
		"a job that fails, fails": {restart: corev1.RestartPolicyNever, command: []string{"false"},
			phases: phases(corev1.PodRunning, corev1.PodFailed)},
		"a server that fails crash-loops": {restart: corev1.RestartPolicyAlways, command: []string{
			"false"},
			phases: phases(corev1.PodRunning, corev1.PodRunning), waiting: "CrashLoopBackOff"},
		"an image of nowhere is never pulled": {image: "registry.invalid/x:1",
			restart: corev1.RestartPolicyAlways,
			phases:  phases(corev1.PodPending), waiting: "ImagePullBackOff"},
		"an image of no registry is never pulled": {image: "registry.example.com/x@sha256:" +
			strings.Repeat("0", 64), restart: corev1.RestartPolicyAlways,
			phases: phases(corev1.PodPending), waiting: "ImagePullBackOff"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{
				RestartPolicy: c.restart, Containers: []corev1.Container{
					{Name: "c", Image: c.image, Command: c.command}},
			}}
			now := time.Unix(1_700_000_000, 0)
			for i, want := range c.phases {
				next, _ := play(pod, now)
				if next == nil {
					t.Fatalf("step %d: nothing changed, want %s", i, want)
				}
				if next.Status.Phase != want {
					t.Fatalf("step %d: phase %s, want %s", i, next.Status.Phase, want)
				}
				pod = next
				if next, wait := play(pod, now); i == 0 && c.lasts > 0 &&
					(next != nil || wait != c.lasts) {
					t.Errorf("it lasts %v, want %v", wait, c.lasts)
				}
				now = now.Add(c.lasts)
			}
			if next, wait := play(pod, now); next != nil || wait != 0 {
				t.Errorf("it goes on: %v, in %v", next, wait)
			}
			var waiting string
			if w := pod.Status.ContainerStatuses[0].State.Waiting; w != nil {
				waiting = w.Reason
			}
			if waiting != c.waiting {
				t.Errorf("waits for %q, want %q", waiting, c.waiting)
			}
			ready := c.phases[len(c.phases)-1] == corev1.PodRunning && c.waiting == ""
			for _, condition := range pod.Status.Conditions {
				if condition.Type == corev1.PodReady &&
					(condition.Status == corev1.ConditionTrue) != ready {
					t.Errorf("ready is %s, want %v", condition.Status, ready)
				}
			}
		})
	}
}

func phases(p ...corev1.PodPhase) []corev1.PodPhase { return p }
