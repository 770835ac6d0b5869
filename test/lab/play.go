package main

import (
	"encoding/binary"
	"hash/fnv"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcome is how a container goes on after its start.
type outcome int

const (
	serves   outcome = iota // runs until its Pod goes
	succeeds                // ends with 0
	fails                   // ends with 1, each time
	unpulled                // never starts
)

// foresee returns the container's outcome and its duration, as a reader of the manifest would
// expect:
//
//   - an image of a host below .invalid, which resolves nowhere (RFC 2606), or
//     with a digest of zeros, which no registry has, is never pulled;
//   - the command "false" fails; "sleep N" ends after N seconds;
//   - every other command serves, or succeeds at once in a Pod that is not
//     restarted, such as a Job's.
func foresee(c corev1.Container, restart corev1.RestartPolicy) (outcome, time.Duration) {
	if host, _, _ := strings.Cut(c.Image, "/"); strings.HasSuffix(host, ".invalid") ||
		strings.HasSuffix(c.Image, "@sha256:"+strings.Repeat("0", 64)) {
		return unpulled, 0
	}
	command := append(append([]string{}, c.Command...), c.Args...)
	switch {
	case len(command) == 1 && path.Base(command[0]) == "false":
		return fails, 0
	case restart == corev1.RestartPolicyAlways:
		return serves, 0
	case len(command) == 2 && path.Base(command[0]) == "sleep":
		seconds, err := strconv.ParseFloat(command[1], 64)
		if err != nil {
			return fails, 0
		}
		return succeeds, time.Duration(seconds * float64(time.Second))
	}
	return succeeds, 0
}

// play returns the Pod with the status that it has at this moment, or nil when
// it has it already, and how long that stays true if it will end by itself.
func play(pod *corev1.Pod, now time.Time) (*corev1.Pod, time.Duration) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil, 0
	}
	next := pod.DeepCopy()
	s := &next.Status
	first := s.StartTime == nil
	if first {
		s.StartTime = &metav1.Time{Time: now}
	}
	s.HostIP, s.PodIP = "192.0.2.1", podIP(pod)
	s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	s.ContainerStatuses = nil
	var wait time.Duration
	for _, c := range pod.Spec.Containers {
		how, lasts := foresee(c, pod.Spec.RestartPolicy)
		if first {
			// it starts before it ends, so that watchers see both
			lasts = max(lasts, time.Nanosecond)
		}
		remaining := s.StartTime.Add(lasts).Sub(now)
		if remaining > 0 && (wait == 0 || remaining < wait) {
			wait = remaining
		}
		s.ContainerStatuses = append(s.ContainerStatuses,
			containerStatus(c, how, lasts, remaining > 0, next))
	}
	s.Phase = phase(s.ContainerStatuses)
	setConditions(s, now)
	if equality.Semantic.DeepEqual(&pod.Status, s) {
		return nil, wait
	}
	return next, 0
}

func containerStatus(c corev1.Container, how outcome, lasts time.Duration, running bool,
	pod *corev1.Pod) corev1.ContainerStatus {
	id := "lab://" + string(pod.UID) + "/" + c.Name
	status := corev1.ContainerStatus{Name: c.Name, Image: c.Image, ImageID: c.Image,
		ContainerID: id}
	start := *pod.Status.StartTime
	ended := &corev1.ContainerStateTerminated{
		Reason: "Completed", StartedAt: start, FinishedAt: metav1.NewTime(start.Add(lasts)),
		ContainerID: id,
	}
	if how == fails {
		ended.Reason, ended.ExitCode = "Error", 1
	}
	switch {
	case how == unpulled:
		status.ImageID, status.ContainerID = "", ""
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
			Message: "failed to pull " + c.Image}
	case how == serves || running:
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: start}
		status.Ready, status.Started = true, &status.Ready
	case how == fails && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		status.RestartCount, status.LastTerminationState.Terminated = 1, ended
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
			Message: "exit code 1, again and again"}
	default:
		status.State.Terminated = ended
	}
	return status
}

// phase is what Kubernetes makes of the containers.
func phase(containers []corev1.ContainerStatus) corev1.PodPhase {
	phase := corev1.PodSucceeded
	for _, c := range containers {
		switch {
		case c.State.Waiting != nil && c.RestartCount == 0:
			return corev1.PodPending
		case c.State.Terminated == nil:
			phase = corev1.PodRunning
		case c.State.Terminated.ExitCode != 0 && phase == corev1.PodSucceeded:
			phase = corev1.PodFailed
		}
	}
	return phase
}

// setConditions leaves the time of a condition that stays as it was.
func setConditions(s *corev1.PodStatus, now time.Time) {
	ready := corev1.ConditionTrue
	for _, c := range s.ContainerStatuses {
		if !c.Ready {
			ready = corev1.ConditionFalse
		}
	}
	for _, want := range []corev1.PodCondition{
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready},
		{Type: corev1.PodReady, Status: ready},
	} {
		want.LastTransitionTime = metav1.NewTime(now)
		at := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == want.Type
		})
		switch {
		case at < 0:
			s.Conditions = append(s.Conditions, want)
		case s.Conditions[at].Status != want.Status:
			s.Conditions[at] = want
		}
	}
}

// podIP gives each Pod an address of its own, near enough: endpoints of a
// Service must differ.
func podIP(pod *corev1.Pod) string {
	h := fnv.New32a()
	h.Write([]byte(pod.UID))
	ip := make(net.IP, 4)
	binary.BigEndian.PutUint32(ip, h.Sum32())
	ip[0] = 10
	return ip.String()
}
