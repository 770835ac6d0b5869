package fleet

import "slices"

// PolicySpec is one rule that declarations of tenants keep (fleet/policies/<name>.yaml). Its
// expressions are CEL (https://cel.dev), over the variables that Subject stands for.
type PolicySpec struct {
	// of declarations that it judges: PolicedKinds
	Kinds []Kind `json:"kinds"`
	// whose; empty: every tenant's
	Tenants  []TenantName `json:"tenants,omitempty"`
	Severity Severity     `json:"severity,omitempty"` // default SeverityError
	// a boolean; true says that the declaration is fine
	Rule    string `json:"rule"`
	Message string `json:"message,omitempty"` // told when it is not
	// a text, in place of Message
	MessageExpression string `json:"messageExpression,omitempty"`
	Fix               string `json:"fix,omitempty"` // what to write instead
	// of the declaration: where its problem is shown, e.g. spec.source.targetRevision
	Field string `json:"field,omitempty"`
}

// PolicedKinds are the kinds that a policy may judge: what tenants write, but for what is
// encrypted.
func PolicedKinds() []Kind {
	return []Kind{KindManagedEnvironment, KindGitOpsDeployment, KindRepositoryCredential,
		KindSyncRun}
}

// Covers reports whether the policy judges declarations of this key.
func (p *PolicySpec) Covers(k Key) bool {
	return slices.Contains(p.Kinds, k.Kind) && slices.Contains(PolicedKinds(), k.Kind) &&
		(len(p.Tenants) == 0 || slices.Contains(p.Tenants, k.Tenant))
}

// Weight is the severity of what breaks the policy.
func (p *PolicySpec) Weight() Severity {
	if p.Severity == "" {
		return SeverityError
	}
	return p.Severity
}

// Subject is what a policy is shown: one declaration of a tenant and what it stands among. It holds
// nothing of other tenants, and no secret: declarations have no field for one.
type Subject struct {
	Declaration *Declaration
	Tenant      *Declaration // that it belongs to
	// of a deployment, in the order of their environments' names; of other kinds none
	Targets []Target
}

// Target is a deployment in one of the environments that it reaches: what its Application will be
// made of.
type Target struct {
	Environment    *Declaration
	Namespace      string
	Source         Source // the environment's override merged in
	Sync           Sync   // every default resolved
	DeletionPolicy DeletionPolicy
}

// TargetIn is the deployment as it is in one environment. defaults are the Fleet's.
func (d *DeploymentSpec) TargetIn(env *Declaration, defaults SyncSettings) Target {
	return Target{Environment: env, Namespace: d.Destination.Namespace,
		Source: d.SourceIn(EnvironmentName(env.Key.Name)),
		Sync:   d.Sync.Resolved(defaults), DeletionPolicy: d.policyOfDeletion()}
}

func (d *DeploymentSpec) policyOfDeletion() DeletionPolicy {
	if d.DeletionPolicy == "" {
		return DeletionDelete
	}
	return d.DeletionPolicy
}

// SourceIn is the source in one environment. An override that sets a tool replaces the tool as a
// whole: at most one may be set.
func (d *DeploymentSpec) SourceIn(env EnvironmentName) Source {
	s := d.Source
	i := slices.IndexFunc(d.Overrides, func(o Override) bool { return o.Environment == env })
	if i < 0 {
		return s
	}
	o := d.Overrides[i].Source
	if o.Path != "" {
		s.Path = o.Path
	}
	if o.TargetRevision != "" {
		s.TargetRevision = o.TargetRevision
	}
	if o.Kustomize != nil || o.Helm != nil || o.Directory != nil {
		s.Kustomize, s.Helm, s.Directory = o.Kustomize, o.Helm, o.Directory
	}
	return s
}

// Resolved fills in what is left out, from the Fleet's defaults and then from the built-in ones:
// automated, prune, self-heal, and no namespace made.
func (s SyncSettings) Resolved(defaults SyncSettings) Sync {
	mode := s.Mode
	if mode == "" {
		mode = defaults.Mode
	}
	return Sync{
		Automated:       mode != SyncManual,
		Prune:           firstSet(true, s.Prune, defaults.Prune),
		SelfHeal:        firstSet(true, s.SelfHeal, defaults.SelfHeal),
		CreateNamespace: firstSet(false, s.CreateNamespace, defaults.CreateNamespace),
	}
}

func firstSet(otherwise bool, from ...*bool) bool {
	for _, b := range from {
		if b != nil {
			return *b
		}
	}
	return otherwise
}
