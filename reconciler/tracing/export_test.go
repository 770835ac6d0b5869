package tracing

import "net/http"

// Through sends the requests of an Exporter by another transport.
func Through(e *Exporter, transport http.RoundTripper) { e.client.Transport = transport }
