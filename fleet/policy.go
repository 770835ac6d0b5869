package fleet

import "slices"

// PolicySpec is one rule for the declarations of tenants (fleet/policies/<name>.yaml). Its
// expressions are CEL (https://cel.dev) over the variables of Subject.
type PolicySpec struct {
	// kinds of declarations that it evaluates: PolicedKinds
	Kinds []Kind `json:"kinds"`
	// tenants whose declarations it evaluates; empty: every tenant
	Tenants  []TenantName `json:"tenants,omitempty"`
	Severity Severity     `json:"severity,omitempty"` // default SeverityError
	// boolean; true if the declaration follows the policy
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"` // problem's message if it does not
	// string, instead of Message
	MessageExpression string `json:"messageExpression,omitempty"`
	Fix               string `json:"fix,omitempty"` // what to write instead
	// of the declaration: position of its problem, e.g. spec.source.targetRevision
	Field string `json:"field,omitempty"`
}

// PolicedKinds are the kinds that a policy may evaluate: everything that tenants write except
// encrypted files and their defaults, which it evaluates in the deployments that inherit them.
func PolicedKinds() []Kind {
	return []Kind{KindManagedEnvironment, KindGitOpsDeployment, KindRepositoryCredential,
		KindSyncRun, KindTenantNotifications}
}

// Covers reports whether the policy evaluates declarations of this key.
func (p *PolicySpec) Covers(k Key) bool {
	return slices.Contains(p.Kinds, k.Kind) && slices.Contains(PolicedKinds(), k.Kind) &&
		(len(p.Tenants) == 0 || slices.Contains(p.Tenants, k.Tenant))
}

// Weight is the severity of a problem that the policy finds.
func (p *PolicySpec) Weight() Severity {
	if p.Severity == "" {
		return SeverityError
	}
	return p.Severity
}

// Subject is the input of a policy: one declaration of a tenant and its context. It contains
// nothing of other tenants, and no secret: declarations have no field for one.
type Subject struct {
	Declaration *Declaration
	Tenant      *Declaration // owner of the declaration
	// of a deployment, ordered by environment name; other kinds have none
	Targets []Target
}
