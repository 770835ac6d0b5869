package agent

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"
)

// BenchmarkProve measures the cost that authentication adds to each request: the agent signs a
// proof and the hub verifies it. A credential is sealed for each row that has one, whenever the row
// is sent.

func BenchmarkProve(b *testing.B) {
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			keys := newKeys(b)
			for b.Loop() {
				if _, err := Prove(keys, http.MethodPost, PathStatus, accessToken, body,
					noon); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCheckProof(b *testing.B) {
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			keys := newKeys(b)
			proof, err := Prove(keys, http.MethodPost, PathStatus, accessToken, body, noon)
			if err != nil {
				b.Fatal(err)
			}
			public := keys.Public()
			for b.Loop() {
				if _, err := CheckProof(proof, public, http.MethodPost, PathStatus, accessToken,
					body, noon.Add(time.Second)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSeal(b *testing.B) {
	public := newKeys(b).Public()
	for b.Loop() {
		if _, err := Seal(public, row("repo-1"), canary); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	keys := newKeys(b)
	sealed, err := Seal(keys.Public(), row("repo-1"), canary)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Open(keys, row("repo-1"), sealed); err != nil {
			b.Fatal(err)
		}
	}
}

// bodies are the signed content of a GET (its session) and of a full report.
var bodies = map[string][]byte{
	"session": Session{Protocol: Protocol, Instance: strings.Repeat("i", 32), Epoch: 7,
		Version: "v1.0.0", Cursor: 4711}.Bytes(),
	"report": bytes.Repeat([]byte("x"), MaxReport),
}

var accessToken = strings.Repeat("t", 43)
