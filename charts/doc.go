// Package charts has the Helm charts of Argosy: argosy, the control plane; argosy-agent, the
// pull-mode agent beside an existing Argo CD; and argosy-engine, an Argo CD instance for the fleet.
// The tests here verify the charts against the product; test/charts has the tools.
//
// Rules of the charts:
//   - charts/generate makes values.schema.json and README.md from the comments of values.yaml.
//     The schema rejects undocumented keys; only `global` is open.
//   - The schema of argosy.yaml comes from its types (cmd/argosy/settings), so that chart and
//     binary cannot disagree.
//   - A Role grants a right only because a request needs it.
//   - No value contains a secret: each names an existing Secret. The only exception is the trial
//     PostgreSQL, which generates its own.
//   - The charts set no user ID if the image has one: OpenShift assigns its own.
package charts

//go:generate go run ./generate
