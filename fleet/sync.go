package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SyncMode selects who starts a sync.
type SyncMode string

// Sync modes.
const (
	SyncAutomated SyncMode = "automated"
	SyncManual    SyncMode = "manual"
)

// PrunePropagation is the deletion propagation of pruned resources.
type PrunePropagation string

// Propagations of a deletion, as Kubernetes has them.
const (
	PropagateForeground PrunePropagation = "foreground"
	PropagateBackground PrunePropagation = "background"
	PropagateOrphan     PrunePropagation = "orphan"
)

// DiffMode selects who computes the differences between the desired and the live objects.
type DiffMode string

// Modes of a comparison. Argo CD computes it, or the API server by a dry run, with or without what
// its mutating webhooks change.
const (
	DiffClient             DiffMode = "client"
	DiffServer             DiffMode = "server"
	DiffServerWithWebhooks DiffMode = "serverWithWebhooks"
)

// SyncSettings are the sync options of a deployment. An omitted field is inherited from
// Fleet.defaults; the built-in default is automated, prune, selfHeal, and nothing else.
type SyncSettings struct {
	Mode            SyncMode `json:"mode,omitempty"`
	Prune           *bool    `json:"prune,omitempty"`
	SelfHeal        *bool    `json:"selfHeal,omitempty"`
	CreateNamespace *bool    `json:"createNamespace,omitempty"`

	AllowEmpty                  *bool              `json:"allowEmpty,omitempty"`
	ServerSideApply             *bool              `json:"serverSideApply,omitempty"`
	ApplyOutOfSyncOnly          *bool              `json:"applyOutOfSyncOnly,omitempty"`
	PruneLast                   *bool              `json:"pruneLast,omitempty"`
	PrunePropagation            PrunePropagation   `json:"prunePropagation,omitempty"`
	RespectIgnoreDifferences    *bool              `json:"respectIgnoreDifferences,omitempty"`
	Validate                    *bool              `json:"validate,omitempty"`
	Replace                     *bool              `json:"replace,omitempty"`
	SkipDryRunOnMissingResource *bool              `json:"skipDryRunOnMissingResource,omitempty"`
	FailOnSharedResource        *bool              `json:"failOnSharedResource,omitempty"`
	Diff                        DiffMode           `json:"diff,omitempty"`
	Retry                       *Retry             `json:"retry,omitempty"`
	ManagedNamespaceMetadata    *NamespaceMetadata `json:"managedNamespaceMetadata,omitempty"`
}

// Retry sets how often Argo CD repeats a failed automated sync.
type Retry struct {
	Limit   int      `json:"limit"` // repetitions; 0: none, RetryForever: without end
	Backoff *Backoff `json:"backoff,omitempty"`
}

// RetryForever is the Retry.Limit of a sync that Argo CD repeats until it succeeds.
const RetryForever = -1

// Backoff is the time between repetitions: Duration, multiplied by Factor after each, at most
// MaxDuration. Argo CD's defaults are 5s, 2 and 3m.
type Backoff struct {
	Duration    Duration `json:"duration,omitempty"`
	Factor      int      `json:"factor,omitempty"`
	MaxDuration Duration `json:"maxDuration,omitempty"`
}

// NamespaceMetadata is the metadata of the namespace that Argo CD creates. The tenant is granted
// each key: see Allowances.
type NamespaceMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Or returns the settings with every omitted field taken from other.
func (s SyncSettings) Or(other SyncSettings) SyncSettings {
	return SyncSettings{
		Mode:               cmp.Or(s.Mode, other.Mode),
		Prune:              cmp.Or(s.Prune, other.Prune),
		SelfHeal:           cmp.Or(s.SelfHeal, other.SelfHeal),
		CreateNamespace:    cmp.Or(s.CreateNamespace, other.CreateNamespace),
		AllowEmpty:         cmp.Or(s.AllowEmpty, other.AllowEmpty),
		ServerSideApply:    cmp.Or(s.ServerSideApply, other.ServerSideApply),
		ApplyOutOfSyncOnly: cmp.Or(s.ApplyOutOfSyncOnly, other.ApplyOutOfSyncOnly),
		PruneLast:          cmp.Or(s.PruneLast, other.PruneLast),
		PrunePropagation:   cmp.Or(s.PrunePropagation, other.PrunePropagation),
		RespectIgnoreDifferences: cmp.Or(s.RespectIgnoreDifferences,
			other.RespectIgnoreDifferences),
		Validate: cmp.Or(s.Validate, other.Validate),
		Replace:  cmp.Or(s.Replace, other.Replace),
		SkipDryRunOnMissingResource: cmp.Or(s.SkipDryRunOnMissingResource,
			other.SkipDryRunOnMissingResource),
		FailOnSharedResource: cmp.Or(s.FailOnSharedResource, other.FailOnSharedResource),
		Diff:                 cmp.Or(s.Diff, other.Diff),
		Retry:                cmp.Or(s.Retry, other.Retry),
		ManagedNamespaceMetadata: cmp.Or(s.ManagedNamespaceMetadata,
			other.ManagedNamespaceMetadata),
	}
}

// Sync is a deployment's sync policy with every default resolved. The zero value of each field
// but the first three is Argo CD's default.
type Sync struct {
	Automated       bool `json:"automated"`
	Prune           bool `json:"prune"`
	SelfHeal        bool `json:"selfHeal"`
	CreateNamespace bool `json:"createNamespace"`

	AllowEmpty               bool             `json:"allowEmpty,omitempty"`
	ServerSideApply          bool             `json:"serverSideApply,omitempty"`
	ApplyOutOfSyncOnly       bool             `json:"applyOutOfSyncOnly,omitempty"`
	PruneLast                bool             `json:"pruneLast,omitempty"`
	PrunePropagation         PrunePropagation `json:"prunePropagation,omitempty"`
	RespectIgnoreDifferences bool             `json:"respectIgnoreDifferences,omitempty"`
	// validate: false
	SkipValidation              bool `json:"skipValidation,omitempty"`
	Replace                     bool `json:"replace,omitempty"`
	SkipDryRunOnMissingResource bool `json:"skipDryRunOnMissingResource,omitempty"`
	FailOnSharedResource        bool `json:"failOnSharedResource,omitempty"`

	Diff DiffMode `json:"diff,omitempty"` // empty: the engine's

	Retry *Retry `json:"retry,omitempty"`
	// nil without CreateNamespace
	ManagedNamespaceMetadata *NamespaceMetadata `json:"managedNamespaceMetadata,omitempty"`
}

// Resolved fills omitted fields from the defaults and then from the built-in ones: automated,
// prune, self-heal and validate.
func (s SyncSettings) Resolved(defaults SyncSettings) Sync {
	s = s.Or(defaults)
	is := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	out := Sync{
		Automated:                   s.Mode != SyncManual,
		Prune:                       is(s.Prune, true),
		SelfHeal:                    is(s.SelfHeal, true),
		CreateNamespace:             is(s.CreateNamespace, false),
		AllowEmpty:                  is(s.AllowEmpty, false),
		ServerSideApply:             is(s.ServerSideApply, false),
		ApplyOutOfSyncOnly:          is(s.ApplyOutOfSyncOnly, false),
		PruneLast:                   is(s.PruneLast, false),
		PrunePropagation:            s.PrunePropagation,
		RespectIgnoreDifferences:    is(s.RespectIgnoreDifferences, false),
		SkipValidation:              !is(s.Validate, true),
		Replace:                     is(s.Replace, false),
		SkipDryRunOnMissingResource: is(s.SkipDryRunOnMissingResource, false),
		FailOnSharedResource:        is(s.FailOnSharedResource, false),
		Diff:                        s.Diff,
		Retry:                       s.Retry,
	}
	if out.CreateNamespace {
		out.ManagedNamespaceMetadata = s.ManagedNamespaceMetadata
	}
	return out
}

// Bounds of a Retry. A tenant shares the application-controller that repeats its syncs.
const (
	MaxRetries = 1000
	MinBackoff = Duration(time.Second)
	MaxBackoff = Duration(24 * time.Hour)
	MaxFactor  = 10
)

// Check returns an error if a bound does not hold.
func (r *Retry) Check() error {
	if r == nil {
		return nil
	}
	if r.Limit < RetryForever || r.Limit > MaxRetries {
		return fmt.Errorf("limit %d is not %d to %d", r.Limit, RetryForever, MaxRetries)
	}
	b := r.Backoff
	if b == nil {
		return nil
	}
	if b.Factor < 0 || b.Factor > MaxFactor {
		return fmt.Errorf("backoff.factor %d is not 1 to %d", b.Factor, MaxFactor)
	}
	for _, d := range []Duration{b.Duration, b.MaxDuration} {
		if d != 0 && (d < MinBackoff || d > MaxBackoff) {
			return fmt.Errorf("backoff: %s is not %s to %s", time.Duration(d),
				time.Duration(MinBackoff), time.Duration(MaxBackoff))
		}
	}
	return nil
}

// Empty reports whether there is no key.
func (m *NamespaceMetadata) Empty() bool {
	return m == nil || len(m.Labels)+len(m.Annotations) == 0
}

// CheckNamespaceKey refuses keys of a namespace's labels and annotations that no tenant can be
// granted, and text that is no such key. Argo CD and its operator give rights by the metadata of
// a namespace, and the API server sets kubernetes.io/metadata.name, by which others select it.
func CheckNamespaceKey(key string) error {
	domain, name, found := strings.Cut(key, "/")
	if !found {
		domain, name = "", key
	}
	if !labelName(name) {
		return errors.New("the name is not 1 to 63 of a-z, A-Z, 0-9, '-', '_' and '.', beginning " +
			"and ending with a letter or digit")
	}
	if found {
		if err := checkKeyDomain(domain); err != nil {
			return err
		}
	}
	switch key {
	case "kubernetes.io/metadata.name", "kubectl.kubernetes.io/last-applied-configuration":
		return fmt.Errorf("%s is Kubernetes' own", key)
	}
	return nil
}

// CheckNamespaceKeyGrant checks an entry of Allowances.NamespaceMetadata.
func CheckNamespaceKeyGrant(grant string) error {
	if domain, ok := strings.CutSuffix(grant, "/"); ok {
		return checkKeyDomain(domain)
	}
	return CheckNamespaceKey(grant)
}

// NamespaceKeyGranted reports whether a grant covers the key: the same key, or its domain with a
// trailing slash.
func NamespaceKeyGranted(grants []string, key string) bool {
	if CheckNamespaceKey(key) != nil {
		return false
	}
	domain, _, found := strings.Cut(key, "/")
	return slices.Contains(grants, key) || found && slices.Contains(grants, domain+"/")
}

func checkKeyDomain(domain string) error {
	if domain == "" || len(domain) > 253 || strings.Trim(domain,
		"abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || domain != strings.Trim(domain, ".-") {
		return errors.New("the part before the slash is no DNS name")
	}
	for _, d := range []string{"argoproj.io", "argosy.dev"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return fmt.Errorf("keys of %s direct Argo CD or Argosy and are never a declaration's",
				d)
		}
	}
	return nil
}

func labelName(s string) bool {
	const alnum = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 63 && strings.Trim(s, alnum+"-_.") == "" &&
		s == strings.Trim(s, "-_.")
}
