// Package audit holds the entries of the audit log, the chain of hashes over them, and its
// verification. It does no I/O: the store seals entries with it, and a reader of an archive
// verifies them with it.
//
// Rules of this package:
//   - an entry is sealed once, after it is committed: its Seal has its place in the chain, and a
//     hash over the entry, its place and the hash of the entry before;
//   - every tenant has a chain of its own within that of the whole log, so that the export of one
//     tenant is verified without the entries of others;
//   - the encoding that is hashed never changes: another one is another Format.
package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

// Format is how an entry is encoded for its hash.
type Format int

// FormatV1 is the only format so far.
const FormatV1 Format = 1

// Hash is the hash of a sealed entry, 64 hexadecimal digits; the first entry has "" as Previous.
type Hash string

// Identity is what is known of an actor beside the name that records show.
type Identity struct {
	Token   string `json:"token,omitempty" doc:"Id of the API's token"`
	Session string `json:"session,omitempty" doc:"Id of the person's session"`
	Issuer  string `json:"issuer,omitempty" doc:"Of the person's identity"`
	Account string `json:"account,omitempty" doc:"Subject of the person at the issuer"`
}

// Counts are the objects that a plan counts.
type Counts struct {
	Created  int `json:"created,omitempty"`
	Changed  int `json:"changed,omitempty"`
	Deleted  int `json:"deleted,omitempty"`
	Held     int `json:"held,omitempty"`
	Problems int `json:"problems,omitempty"`
}

// Entry is one entry: who did what to what, and how it ended.
type Entry struct {
	N     int64     `json:"n" doc:"Number of the entry, in the order in which entries began"`
	At    time.Time `json:"at"`
	Actor string    `json:"actor" example:"token:acme/ci"`
	Identity
	// e.g. "approve", "record", "end sync"
	Action    string           `json:"action"`
	Subject   string           `json:"subject" example:"revision 4f1c9e2a"`
	Tenant    fleet.TenantName `json:"tenant,omitempty"`
	TenantUID string           `json:"tenantUID,omitempty" doc:"Of the tenant that had the name then"`
	Engine    fleet.EngineName `json:"engine,omitempty"`
	Revision  fleet.Revision   `json:"revision,omitempty"`
	Pull      int              `json:"pull,omitempty" doc:"Number of the pull request"`
	Operation string           `json:"operation,omitempty" doc:"That shows the progress"`
	Outcome   string           `json:"outcome,omitempty" doc:"Of an operation that ended"`
	Detail    string           `json:"detail,omitempty" doc:"The reason that a person gave, or a message"`
	Counts
	Seal
}

// Seal is the place of an entry in the chain. The zero value is that of an entry that is not sealed
// yet.
type Seal struct {
	Format         Format `json:"format,omitempty" doc:"How the entry is encoded for its hash"`
	Position       int64  `json:"position,omitempty" doc:"In the chain, from 1; absent until the entry is sealed"`
	Previous       Hash   `json:"previous,omitempty" doc:"Hash of the entry at the position before"`
	TenantPosition int64  `json:"tenantPosition,omitempty" doc:"In the chain of the tenant, from 1"`
	TenantPrevious Hash   `json:"tenantPrevious,omitempty" doc:"Hash of the tenant's entry before"`
	Hash           Hash   `json:"hash,omitempty" doc:"SHA-256 over the entry and the fields above"`
}

// Head is the newest sealed entry of a chain.
type Head struct {
	Position int64 `json:"position"`
	Hash     Hash  `json:"hash"`
}

// String returns what ParseHead reads.
func (h Head) String() string { return strconv.FormatInt(h.Position, 10) + ":" + string(h.Hash) }

// ParseHead reads POSITION:HASH.
func ParseHead(text string) (Head, error) {
	position, hash, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(position, 10, 64)
	if err != nil || n < 1 || !validHash(Hash(hash)) {
		return Head{}, fmt.Errorf(
			"%q is no head of the audit log: write POSITION:HASH, the hash with 64 digits", text)
	}
	return Head{Position: n, Hash: Hash(hash)}, nil
}

func validHash(h Hash) bool {
	raw, err := hex.DecodeString(string(h))
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == string(h)
}

// State is where the chain of the log begins and ends.
type State struct {
	Head     Head  `json:"head" doc:"The newest sealed entry"`
	Anchor   Head  `json:"anchor" doc:"The last entry that was pruned; position 0: none was"`
	Pruned   int64 `json:"pruned"`
	Unsealed int64 `json:"unsealed" doc:"Entries that are not sealed yet"`
}

// Sum returns the hash of the entry with its place in the chain. Each field is preceded by its
// length, so that no two entries have the same encoding.
func (e Entry) Sum() Hash {
	h := sha256.New()
	var size [8]byte
	field := func(text string) {
		binary.BigEndian.PutUint64(size[:], uint64(len(text)))
		h.Write(size[:])
		h.Write([]byte(text))
	}
	number := func(n int64) { field(strconv.FormatInt(n, 10)) }
	field("argosy audit")
	number(int64(e.Format))
	number(e.Position)
	field(string(e.Previous))
	number(e.TenantPosition)
	field(string(e.TenantPrevious))
	number(e.N)
	number(e.At.UnixMicro())
	for _, text := range []string{e.Actor, e.Token, e.Session, e.Issuer, e.Account, e.Action,
		e.Subject, string(e.Tenant), e.TenantUID, string(e.Engine), string(e.Revision),
		e.Operation, e.Outcome, e.Detail} {
		field(text)
	}
	for _, n := range []int{e.Pull, e.Created, e.Changed, e.Deleted, e.Held, e.Problems} {
		number(int64(n))
	}
	return Hash(hex.EncodeToString(h.Sum(nil)))
}

// Append seals the entry after the head of the log, and after that of its tenant if it has one. It
// returns the new head of both.
func Append(e *Entry, log Head, tenant Head) (newLog, newTenant Head) {
	e.Seal = Seal{Format: FormatV1, Position: log.Position + 1, Previous: log.Hash}
	if e.TenantUID != "" {
		e.TenantPosition, e.TenantPrevious = tenant.Position+1, tenant.Hash
	}
	e.Hash = e.Sum()
	newLog, newTenant = Head{e.Position, e.Hash}, tenant
	if e.TenantUID != "" {
		newTenant = Head{e.TenantPosition, e.Hash}
	}
	return newLog, newTenant
}

type identityKey struct{}

// WithIdentity returns a context for the requests of one caller: the store writes who it is into
// the entries of the decisions that the requests make.
func WithIdentity(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, id)
}

// IdentityOf returns the caller of WithIdentity; the zero value without one.
func IdentityOf(ctx context.Context) Identity {
	id, _ := ctx.Value(identityKey{}).(Identity)
	return id
}
