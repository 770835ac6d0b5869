package configschema

import (
	"errors"
	"net/url"
	"reflect"
	"time"

	"argosy.dev/argosy/fleet"
)

var (
	formatPrometheus = &format{code: codeInvalidURL, what: "the URL of a Prometheus server, such " +
		"as https://prometheus.example.com", pattern: `^https?://[^ ]+$`, check: checkPrometheus}
	formatQuery = &format{code: codeUnknownVariable, what: "a query of PromQL with no variables " +
		"but " + fleet.MetricVariables, pattern: `^.+$`, check: fleet.CheckMetricQuery}
	formatBound = &format{code: codeInvalidValue, what: "a number in quotes, such as \"0.01\"",
		pattern: `^[0-9.eE+-]+$`, check: fleet.CheckBound}
)

func checkPrometheus(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("it is no http or https URL")
	case u.User != nil:
		return errors.New("it has a credential, which belongs in credentialsRef")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it has a query or a fragment")
	}
	return nil
}

// prometheus is the server that measures what gates waves.
func prometheus() field {
	upTo := func(least, most time.Duration) value {
		return value{shape: shapeDuration, least: int64(least), most: int64(most)}
	}
	return field{
		name: "prometheus",
		doc: "The Prometheus server, and the metrics that waves of rollouts may name " +
			"(`docs/rollouts.md`). Tenants name metrics and write no queries, since a query reads " +
			"the metrics of all tenants.",
		value: object(
			field{name: "url", doc: "The server, or one with its API.",
				example: "https://prometheus.example.com", required: true,
				value: textOf(formatPrometheus)},
			field{
				name: "credentialsRef",
				doc: "A secret of the platform with the key `token`, or `username` and `password`. " +
					"Left out: none is needed.", example: "{name: prometheus}",
				value: secretRef("The secret's name.", "prometheus")},
			field{
				name: "metrics", doc: "What waves may name.", required: true,
				value: listOf(object(
					field{name: "name", doc: "The name that `waves[].metrics` refers to.",
						example: "error-rate", required: true, value: textOf(formatName)},
					field{
						name: "query",
						doc: "A query of PromQL with exactly one value for an environment. " +
							"`{{tenant}}`, `{{deployment}}`, `{{environment}}` and `{{namespace}}` " +
							"become strings with their quotes.",
						example:  "'sum(rate(errors_total{namespace={{namespace}}}[5m]))'",
						required: true, value: textOf(formatQuery).atMost(2000)},
					field{name: "min", doc: "The least good value. Left out: unbounded.",
						example: `"0.99"`, value: textOf(formatBound)},
					field{name: "max", doc: "The greatest good value. Left out: unbounded.",
						example: `"0.01"`, value: textOf(formatBound)},
					field{
						name: "for",
						doc: "How long all values are good before the wave is done: up to 24h. " +
							"Left out: one good measurement is enough.", example: "5m",
						value: upTo(time.Second, 24*time.Hour)},
					field{name: "interval", doc: "The time between measurements: 10s to 1h.",
						example: "30s", fallback: "30s", value: upTo(10*time.Second, time.Hour)},
					field{
						name:    "failures",
						doc:     "How many measurements in a row with a bad value fail the wave: 1 to 100.",
						example: "3", fallback: "3", value: integer(1, 100)},
				).checked(metricBounds)).by("name").atMost(50)},
		)}
}

// metricBounds refuses a metric whose every value is good, or none.
func metricBounds(d *decoder, into reflect.Value, at node) {
	m := into.Addr().Interface().(*fleet.Metric)
	if m.Name == "" || fleet.CheckBound(m.Min) != nil && m.Min != "" ||
		fleet.CheckBound(m.Max) != nil && m.Max != "" {
		return // reported with the field
	}
	if m.Min == "" && m.Max == "" {
		d.problem(at, codeMissingField, "metric "+quoted(m.Name)+" has neither min nor max, so "+
			"that every value is good", "write max, min or both")
	}
}
