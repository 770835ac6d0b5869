// Package webhook connects the Git host and the control plane: deliveries in, checks and comments
// out.
//
//	Receiver   verifies a signed delivery, stores it, wakes the loop for a push
//	Reviewer   runs review jobs: reads one pull request, plans it, reports the outcome
//	Reviews    finds out what was reviewed of the commits that reached the branch
//
// Rules of this package:
//   - a delivery triggers and carries no facts: these are read from the Git host and from Git, and
//     an incomplete answer is an error, never absence;
//   - a review job is idempotent: nothing is reported twice;
//   - the ID of an account decides whose approval counts, at exactly one commit;
//   - text of strangers is shown as text and never acts.
package webhook
