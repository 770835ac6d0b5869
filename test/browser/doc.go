// Package browser drives the control plane's page with a real Chromium: its tests sign in, search,
// act, open trees, diffs and logs, and check accessibility, the content security policy and the
// console at 1280 and at 400 px in light and dark.
package browser
