// Package charts holds the Helm charts by which Argosy is installed: argosy, the control plane;
// argosy-agent, the pull-mode agent beside an Argo CD; argosy-engine, an Argo CD instance for the
// fleet. Here are the tests that hold them to the product; test/charts has the tools.
//
// Rules of the charts:
//   - values.schema.json and README.md are made from the comments of values.yaml (charts/generate). A key that is not described is refused;
//     only `global` is open.
//   - What argosy.yaml may hold comes from its own types (cmd/argosy/settings), so that chart and binary cannot disagree.
//   - A right stands in a Role only because a request needs it.
//   - No value holds a secret: each names a Secret that is there already. The one exception is the PostgreSQL for trials, which makes its own.
//   - Nothing sets a user's number where the image has one: OpenShift gives its own.
package charts

//go:generate go run ./generate
