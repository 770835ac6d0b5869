// Package promql asks a Prometheus server for one number.
package promql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"argosy.dev/argosy/fleet"
)

// maxAnswer is the size of an answer in bytes. One value has some hundreds.
const maxAnswer = 1 << 20

// Client asks the Prometheus server of the Fleet.
type Client struct {
	// Secret reads a secret of the platform.
	Secret func(ctx context.Context, ref fleet.CredentialSource) (fleet.Secret, error)
}

// Query returns the only value of a query. Its errors contain no credential.
func (c Client) Query(ctx context.Context, server fleet.Prometheus, query string) (float64, error) {
	client := &http.Client{
		Transport: transport{c, server},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the server redirects, which is not followed")
		},
	}
	at, err := api.NewClient(api.Config{Address: server.URL, Client: client})
	if err != nil {
		return 0, fmt.Errorf("spec.prometheus.url: %w", err)
	}
	value, _, err := prometheus.NewAPI(at).Query(ctx, query, time.Time{},
		prometheus.WithTimeout(5*time.Second))
	if err != nil {
		return 0, explained(err)
	}
	return one(value)
}

// explained returns an error of the server in one line.
func explained(err error) error {
	var refused *prometheus.Error
	switch {
	case errors.As(err, &refused):
		text := strings.Join(strings.Fields(refused.Msg), " ")
		return fmt.Errorf("prometheus answers %s: %.300s", refused.Type, text)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("prometheus does not answer in time")
	}
	return fmt.Errorf("prometheus does not answer: %.300s", err.Error())
}

// one returns the number of a scalar or of a vector with one series.
func one(value model.Value) (float64, error) {
	var v float64
	switch found := value.(type) {
	case *model.Scalar:
		v = float64(found.Value)
	case model.Vector:
		if len(found) != 1 {
			return 0, fmt.Errorf("the query has %d series, not one", len(found))
		}
		v = float64(found[0].Value)
	default:
		return 0, fmt.Errorf("the query has a %s, not one number", value.Type())
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("the query has the value %v, which is no number", v)
	}
	return v, nil
}

// transport adds the credential to each request, and limits each answer.
type transport struct {
	Client
	server fleet.Prometheus
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if ref := t.server.CredentialsRef; ref != nil {
		secret, err := t.Secret(r.Context(), fleet.CredentialSource{Name: ref.Name})
		switch {
		case err != nil:
			return nil, fmt.Errorf("the platform's secret %s cannot be read", ref.Name)
		case secret.Has("token"):
			r = r.Clone(r.Context())
			r.Header.Set("Authorization",
				"Bearer "+strings.TrimSpace(string(secret.Value("token"))))
		case secret.Has("username") && secret.Has("password"):
			r = r.Clone(r.Context())
			r.SetBasicAuth(string(secret.Value("username")), string(secret.Value("password")))
		default:
			return nil, fmt.Errorf("secret %s has neither token nor username and password",
				ref.Name)
		}
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		response.Body = limited{io.LimitReader(response.Body, maxAnswer), response.Body}
	}
	return response, err
}

type limited struct {
	io.Reader
	io.Closer
}
