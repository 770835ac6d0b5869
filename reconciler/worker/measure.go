package worker

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/metering"
	"argosy.dev/argosy/fleet/pacing"
	"argosy.dev/argosy/fleet/printable"
)

const (
	measureEvery   = time.Minute
	measureTimeout = 20 * time.Second // of one endpoint
	measureBytes   = 4 << 20          // read in a minute: a larger response is read less often
	endpointError  = 160              // bytes of the message of one endpoint
)

// measurer reads the metrics of the engine's components once a minute. The next report of the
// engine has the load.
type measurer struct {
	*connection
	meter *metering.Meter
}

func newMeasurer(c *connection) *measurer {
	return &measurer{connection: c, meter: metering.NewMeter()}
}

// run measures until ctx ends. It never delays a write, and a failure ends nothing.
func (m *measurer) run(ctx context.Context) error {
	if m.Spec.Metrics == nil || m.Engine.OfEnvironment() {
		return nil
	}
	// engines that were connected to together are not measured in the same second
	if !pacing.Sleep(ctx, rand.N(min(10*time.Second, m.Poll))) {
		return context.Cause(ctx)
	}
	for {
		if !pacing.Sleep(ctx, m.measure(ctx)) {
			return context.Cause(ctx)
		}
	}
}

// measure reads all endpoints, and returns the pause before the next time: what is read in a minute
// does not grow with the Applications.
func (m *measurer) measure(ctx context.Context) time.Duration {
	var readings []metering.Reading
	bytes := 0
	for _, c := range []fleet.Component{fleet.ApplicationController, fleet.RepoServer} {
		for _, from := range m.Spec.Metrics.Of(c) {
			sample, size, err := m.read(ctx, c, from)
			if err != nil {
				err = errors.New(printable.Truncate(err.Error(), endpointError))
			}
			bytes += size
			readings = append(readings, metering.Reading{Component: c, Endpoint: from.String(),
				Sample: sample, Err: err})
		}
	}
	if ctx.Err() != nil {
		return 0
	}
	load := m.meter.Add(time.Now(), readings)
	load.Message = short(load.Message)
	m.setLoad(&load)
	return measureEvery * time.Duration(1+bytes/measureBytes)
}

func (m *measurer) read(ctx context.Context, c fleet.Component, from fleet.MetricsEndpoint) (
	sample metering.Sample, size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureTimeout)
	defer cancel()
	var body io.ReadCloser
	if from.URL != "" {
		body, err = metering.Get(ctx, from.URL)
	} else if through, ok := engine.As[engine.MetricsReader](m.target); ok {
		body, err = through.ReadMetrics(ctx, from)
	} else {
		err = errors.New("the engine's API server leads to no metrics")
	}
	if err != nil {
		return sample, 0, err
	}
	defer func() { _ = body.Close() }()
	return metering.Parse(c, body)
}
