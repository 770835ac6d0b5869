package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Prometheus is a running Prometheus server with a storage of its own.
type Prometheus struct {
	URL string
	*Process

	folder folder
}

// PrometheusOptions of StartPrometheus.
type PrometheusOptions struct {
	Dir    string // of its files; a temporary folder when empty
	Config string // prometheus.yml, complete
}

// Promtool is a command that runs it.
func Promtool(ctx context.Context, args ...string) (*exec.Cmd, error) {
	path, err := part("prometheus", "bin/promtool")
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, path, args...), nil
}

// StartPrometheus starts a server and returns when it answers queries.
func StartPrometheus(ctx context.Context, o PrometheusOptions) (_ *Prometheus, err error) {
	path, err := part("prometheus", "bin/prometheus")
	if err != nil {
		return nil, err
	}
	p := &Prometheus{}
	if p.folder, err = openFolder(o.Dir, "prometheus"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("prometheus: %w", err)
			err = errors.Join(err, p.Stop())
		}
	}()
	file := filepath.Join(p.folder.path, "prometheus.yml")
	if err := os.WriteFile(file, []byte(o.Config), 0o644); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p.URL = "http://" + address
	p.Process, err = StartProcess(Command{Name: "prometheus", Path: path,
		Log: filepath.Join(p.folder.path, "prometheus.log"), Args: []string{
			"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(p.folder.path, "data"),
			"--web.listen-address=" + address}})
	if err != nil {
		return nil, err
	}
	return p, p.Await(ctx, func(ctx context.Context) error { return p.get(ctx, "/-/ready", nil) })
}

// Stop ends the server and removes its files, unless their folder was given.
func (p *Prometheus) Stop() error {
	if p.Process != nil {
		p.Process.Stop()
	}
	return p.folder.remove()
}

// Sample is one series of an answer: its labels and its present value.
type Sample struct {
	Labels map[string]string
	Value  string
}

// Query asks for the present value of an expression that gives a vector.
func (p *Prometheus) Query(ctx context.Context, expression string) ([]Sample, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expression), &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", expression, err)
	}
	samples := []Sample{}
	for _, r := range answer.Data.Result {
		samples = append(samples, Sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return samples, nil
}

// Alert is one that is pending or firing.
type Alert struct {
	Labels map[string]string
	State  string
}

// Alerts are all that are pending or firing now.
func (p *Prometheus) Alerts(ctx context.Context) ([]Alert, error) {
	var answer struct{ Data struct{ Alerts []Alert } }
	err := p.get(ctx, "/api/v1/alerts", &answer)
	return answer.Data.Alerts, err
}

func (p *Prometheus) get(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("prometheus answers %s", resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// Filled is a dashboard's expression with values for its variables, as Grafana would send it: every
// namespace, rates over five minutes.
func Filled(expression string) string {
	return strings.NewReplacer("$namespace", ".*", "$__rate_interval", "5m").Replace(expression)
}
