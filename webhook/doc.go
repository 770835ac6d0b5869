// Package webhook is where the forge and the control plane meet: deliveries come in, checks and
// comments go out.
//
//	Receiver   a signed delivery -> what it asks to look at, stored once
//	Reviewer   looks at one pull request, reads the truth of it, and reports what it comes to
//
// Rules of this package:
//   - a delivery only says "look"; every fact is read from the forge and from Git, and an incomplete answer is an error, never absence;
//   - the same look has the same outcome: what has been said is not said again;
//   - whose word counts is decided by the account's id, at exactly one commit;
//   - what strangers write is shown as text and acts as nothing else.
package webhook
