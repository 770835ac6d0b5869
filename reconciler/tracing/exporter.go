package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/view"
)

const (
	sendTime    = 10 * time.Second
	maxAnswer   = 64 << 10
	maxShown    = 200 // bytes of an answer in an error
	defaultPath = "/v1/traces"
)

// Results of an export, as the metric counts commits.
const (
	ResultExported = "exported"
	ResultRetried  = "retried" // the collector was away: they are exported again later
	ResultDropped  = "dropped"
)

// Store has the commits to export. The mirror is the queue: nothing waits in memory.
type Store interface {
	// Take claims commits that have come to their end, or were recorded longer ago than patience,
	// and returns their traces, also with an error.
	Take(ctx context.Context, patience time.Duration) ([]view.Trace, error)
	// Return gives back claimed commits for a later Take, and returns how many are too old for one.
	Return(ctx context.Context, traces []view.Trace) (dropped int, err error)
}

// Config is what an Exporter needs.
type Config struct {
	Store    Store
	Endpoint string // of the collector, such as https://collector:4318; the path is /v1/traces
	Roots    *x509.CertPool
	Version  string
	Count    func(result string, commits int)
	Log      *slog.Logger
	// Every is how often it reads the commits to export, Patience how long it waits for one to be
	// Healthy.
	Every, Patience time.Duration
}

// Exporter exports the traces of commits.
type Exporter struct {
	Config
	url    string
	client *http.Client
}

// New returns an Exporter.
func New(c Config) (*Exporter, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" {
		return nil, errors.New("the endpoint of the collector is no URL")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = defaultPath
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment,
		TLSClientConfig:       &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
		ResponseHeaderTimeout: sendTime, IdleConnTimeout: time.Minute, MaxIdleConns: 1}
	return &Exporter{Config: c, url: u.String(), client: &http.Client{Transport: transport,
		Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}}, nil
}

// Run exports until ctx ends. All replicas may run it: each commit is claimed by one.
func (e *Exporter) Run(ctx context.Context) {
	for {
		if err := e.Export(ctx); err != nil && ctx.Err() == nil {
			e.Log.Warn("failed to export the traces of commits; they are exported later",
				"error", err)
		}
		if !pacing.Sleep(ctx, e.Every) {
			return
		}
	}
}

// refusal is an answer that another try would get again.
type refusal struct{ error }

// Export exports the commits that have come to their end, once.
func (e *Exporter) Export(ctx context.Context) error {
	traces, unread := e.Store.Take(ctx, e.Patience)
	if len(traces) == 0 {
		return unread
	}
	err := e.send(ctx, traces)
	var refused refusal
	switch {
	case err == nil:
		e.Count(ResultExported, len(traces))
		return unread
	case errors.As(err, &refused):
		e.Count(ResultDropped, len(traces))
		return fmt.Errorf("%d commits are dropped: %w", len(traces), err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	dropped, lost := e.Store.Return(ctx, traces)
	if lost != nil {
		dropped = len(traces)
	}
	e.Count(ResultDropped, dropped)
	e.Count(ResultRetried, len(traces)-dropped)
	return errors.Join(err, lost)
}

func (e *Exporter) send(ctx context.Context, traces []view.Trace) error {
	body, err := proto.Marshal(Spans(traces, e.Version))
	if err != nil {
		return refusal{err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return refusal{err}
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "argosy/"+e.Version)
	answer, err := e.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch status := answer.StatusCode; {
	case status == http.StatusOK:
		return nil // a broken answer does not undo it
	case status == http.StatusTooManyRequests, status == http.StatusBadGateway,
		status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout:
		return fmt.Errorf("the collector answers %s", answer.Status)
	}
	return refusal{errors.Join(fmt.Errorf("the collector answers %s: %q", answer.Status,
		text[:min(len(text), maxShown)]), err)}
}
