package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of a Pod that play the logs of its containers, each followed by the container's name.
// No container runs, so that a test writes what it would have printed. A followed log sends what is
// added to the annotation, until the Pod is deleted.
const (
	logAnnotation      = "log.lab.argosy.dev/"
	previousAnnotation = "previous-log.lab.argosy.dev/"
	// logBytesAnnotation repeats the text until so many bytes are sent, or forever if it is
	// "endless".
	logBytesAnnotation = "log-bytes.lab.argosy.dev/"
)

// logPoll is the pause between two reads of a followed Pod.
const logPoll = 100 * time.Millisecond

// containerLogs answers as a kubelet does.
func (k kubelet) containerLogs(w http.ResponseWriter, r *http.Request) {
	pods := k.client.CoreV1().Pods(r.PathValue("namespace"))
	pod, err := pods.Get(r.Context(), r.PathValue("pod"), metav1.GetOptions{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	container, q := r.PathValue("container"), r.URL.Query()
	previous := q.Get("previous") == "true"
	if problem := withoutLog(pod, container, previous); problem != "" {
		http.Error(w, problem, http.StatusBadRequest)
		return
	}
	name := logAnnotation
	if previous {
		name = previousAnnotation
	}
	out := &logWriter{w: w, stamps: q.Get("timestamps") == "true", began: time.Now()}
	if pod.Status.StartTime != nil {
		out.began = pod.Status.StartTime.Time
	}
	if n, err := strconv.ParseInt(q.Get("limitBytes"), 10, 64); err == nil {
		out.limit = n
	}
	text, found := pod.Annotations[name+container]
	if !found {
		text = container + " has started\n"
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if seconds, err := strconv.Atoi(q.Get("sinceSeconds")); err == nil && len(lines) > 0 &&
		time.Since(out.at(0)) > time.Duration(seconds)*time.Second {
		lines = lines[len(lines)-1:] // only the last one is of now
		out.began = time.Now()
	}
	if tail, err := strconv.Atoi(q.Get("tailLines")); err == nil && tail < len(lines) {
		out.number, lines = len(lines)-tail, lines[len(lines)-tail:]
	}
	if !out.send(r.Context(), lines...) || !out.repeat(r.Context(),
		pod.Annotations[logBytesAnnotation+container], lines) {
		return
	}
	for sent := len(text); q.Get("follow") == "true" && r.Context().Err() == nil; {
		time.Sleep(logPoll)
		now, err := pods.Get(r.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || now.UID != pod.UID {
			return
		}
		if text := now.Annotations[logAnnotation+container]; found && len(text) > sent {
			if !out.send(r.Context(), strings.SplitAfter(text[sent:], "\n")...) {
				return
			}
			sent = len(text)
		}
	}
}

// withoutLog is why a container has no log; "" if it has one.
func withoutLog(pod *corev1.Pod, container string, previous bool) string {
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.Name != container:
		case previous && s.LastTerminationState.Terminated == nil:
			return fmt.Sprintf("previous terminated container %q in pod %q not found", container,
				pod.Name)
		case !previous && s.State.Waiting != nil && s.RestartCount == 0:
			return fmt.Sprintf("container %q in pod %q is waiting to start: %s", container,
				pod.Name, s.State.Waiting.Reason)
		default:
			return ""
		}
	}
	return fmt.Sprintf("container %q in pod %q is not available", container, pod.Name)
}

// logWriter writes lines with their times.
type logWriter struct {
	w      http.ResponseWriter
	stamps bool
	began  time.Time
	number int
	limit  int64 // 0: none
	sent   int64
}

// at is the time of a line: one each millisecond from the start on.
func (o *logWriter) at(n int) time.Time { return o.began.Add(time.Duration(n) * time.Millisecond) }

// send reports whether more may be sent.
func (o *logWriter) send(ctx context.Context, lines ...string) bool {
	for _, line := range lines {
		if line == "" {
			continue
		}
		if o.stamps {
			line = o.at(o.number).UTC().Format(time.RFC3339Nano) + " " + line
		}
		o.number++
		if o.limit > 0 && o.sent+int64(len(line)) > o.limit {
			return false
		}
		o.sent += int64(len(line))
		if _, err := o.w.Write([]byte(line)); err != nil || ctx.Err() != nil {
			return false
		}
	}
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
	return true
}

func (o *logWriter) repeat(ctx context.Context, bytes string, lines []string) bool {
	if bytes == "" || len(lines) == 0 {
		return true
	}
	until, err := strconv.ParseInt(bytes, 10, 64)
	for err != nil || o.sent < until { // "endless" is no number
		if !o.send(ctx, lines...) {
			return false
		}
	}
	return true
}
