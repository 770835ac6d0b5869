package fleet

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Prometheus is the server whose metrics gate waves, with the queries that the platform allows. A
// tenant names a metric, and never writes a query: a query reads the metrics of every tenant.
type Prometheus struct {
	URL string `json:"url"` // http or https, with a path or without
	// a secret of the platform with a key token, or username and password; nil: none
	CredentialsRef *SecretRef `json:"credentialsRef,omitempty"`
	Metrics        []Metric   `json:"metrics"`
}

// Metric is a query with the values that let a wave go on. It has one value for each environment of
// the wave.
type Metric struct {
	Name  string `json:"name"`
	Query string `json:"query"` // PromQL with variables: see Ask
	// bounds of a good value, inclusive; "": unbounded
	Min string `json:"min,omitempty"`
	Max string `json:"max,omitempty"`
	// For is how long all values are good before the wave is done.
	For      Duration `json:"for,omitempty"`
	Interval Duration `json:"interval,omitempty"` // between measurements
	// Failures is how many measurements in a row with a bad value fail the wave.
	Failures int `json:"failures,omitempty"`
}

// OrDefaults returns the metric with every omitted field set.
func (m Metric) OrDefaults() Metric {
	m.Interval = cmp.Or(m.Interval, Duration(30*time.Second))
	m.Failures = cmp.Or(m.Failures, 3)
	return m
}

// Metric returns a metric by its name.
func (p *Prometheus) Metric(name string) (Metric, bool) {
	if p != nil {
		for _, m := range p.Metrics {
			if m.Name == name {
				return m.OrDefaults(), true
			}
		}
	}
	return Metric{}, false
}

var metricVariable = regexp.MustCompile(`\{\{[^{}]*\}\}`)

// MetricVariables are the variables of a query.
const MetricVariables = "{{tenant}}, {{deployment}}, {{environment}} and {{namespace}}"

// Ask returns the query for one Application. Each variable becomes a string of PromQL with its
// quotes.
func (m Metric) Ask(id ApplicationID, namespace string) string {
	return metricVariable.ReplaceAllStringFunc(m.Query, func(v string) string {
		switch v {
		case "{{tenant}}":
			v = string(id.Tenant)
		case "{{deployment}}":
			v = string(id.Deployment)
		case "{{environment}}":
			v = string(id.Environment)
		case "{{namespace}}":
			v = namespace
		}
		return strconv.Quote(v)
	})
}

// CheckMetricQuery returns what is wrong with the variables of a query.
func CheckMetricQuery(query string) error {
	for _, v := range metricVariable.FindAllString(query, -1) {
		if !strings.Contains(MetricVariables, v) {
			return fmt.Errorf("there is no variable %s", v)
		}
	}
	return nil
}

// CheckBound returns what is wrong with a bound of a metric.
func CheckBound(text string) error {
	if v, err := strconv.ParseFloat(text, 64); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is no number", text)
	}
	return nil
}

// Bad returns why a value is out of the metric's bounds; "": it is not.
func (m Metric) Bad(value float64) string {
	is := strconv.FormatFloat(value, 'g', 6, 64)
	if least, err := strconv.ParseFloat(m.Min, 64); err == nil && value < least {
		return "is " + is + ", below " + m.Min
	}
	if most, err := strconv.ParseFloat(m.Max, 64); err == nil && value > most {
		return "is " + is + ", above " + m.Max
	}
	return ""
}
