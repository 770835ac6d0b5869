// Package api serves the control plane to people and programs: a JSON API over the mirror with its
// OpenAPI document, an event stream, and a page.
//
// Rules of this package:
//   - only the token determines a caller's scope; the answers for another tenant's object and for a missing object are the same;
//   - a token is sent in the Authorization header (or, for the page, in a cookie that scripts cannot read), never in a URL, and is never
//     logged;
//   - no type of an answer has a field for a secret;
//   - an error names its subject and the next step (RFC 9457), and never reveals an internal cause.
package api
