package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"os"

	"argosy.dev/argosy/api"
	"argosy.dev/argosy/fleet/view"
)

// bootstrapLength is the least that a bootstrap token may have: 32 characters.
const bootstrapLength = 32

// withBootstrap accepts, besides the store's tokens, the token in a file: a platform token with
// write access, valid as long as the file contains it.
func withBootstrap(tokens api.Tokens, file string) api.Tokens {
	if file == "" {
		return tokens
	}
	return bootstrap{tokens, file}
}

type bootstrap struct {
	api.Tokens
	file string
}

// VerifyToken compares hashes in constant time. An unreadable file, or one that is too short,
// admits no token.
func (b bootstrap) VerifyToken(ctx context.Context, plaintext string) (view.Token, error) {
	content, err := os.ReadFile(b.file)
	if want := trim(content); err == nil && len(want) >= bootstrapLength {
		x, y := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(plaintext))
		if subtle.ConstantTimeCompare(x[:], y[:]) == 1 {
			return view.Token{ID: "bootstrap", Name: "bootstrap", Role: view.RoleWrite,
				CreatedBy: "argosy.yaml"}, nil
		}
	}
	return b.Tokens.VerifyToken(ctx, plaintext)
}
