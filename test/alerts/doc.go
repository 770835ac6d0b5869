// Package alerts holds what proves the alerts and the dashboard of charts/argosy: promtool runs
// cases.yaml over the rules, every alert has its page in docs/runbooks, and nothing asks for a
// metric or a label that the program does not have.
package alerts
