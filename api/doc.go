// Package api is the control plane as people and programs see it: a JSON API over the mirror with
// its OpenAPI document, an event stream, and a page.
//
// Rules of this package:
//   - a caller's scope comes from its token and from nowhere else; another tenant's object is answered exactly like one that does not
//     exist;
//   - a token travels in the Authorization header (or, for the page, in a cookie that scripts cannot read), never in a URL, and is never
//     logged;
//   - what is read has no field that could hold a secret;
//   - an error names its subject and the next step (RFC 9457), and never tells what went wrong inside.
package api
