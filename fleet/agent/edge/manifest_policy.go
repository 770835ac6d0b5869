package edge

import (
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ourSecret is a CEL expression that is true for a Secret that the control plane has created for an
// Argo CD, by its labels.
const ourSecret = `has(%s.metadata.labels) && 'app.kubernetes.io/managed-by' in %s.metadata.labels && %s.metadata.labels['app.kubernetes.io/managed-by'] == 'argosy' && ` +
	`'argocd.argoproj.io/secret-type' in %s.metadata.labels && %s.metadata.labels['argocd.argoproj.io/secret-type'] in ['repository', 'cluster']`

func labelled(object string) string { return strings.ReplaceAll(ourSecret, "%s", object) }

// policy denies the agent writes that RBAC cannot distinguish: those in Argo CD's namespace to
// other Secrets, such as argocd-secret. Both the old and the new object must be ours, so that a
// write can neither adopt a Secret by a label nor release one. Kubernetes serves this kind from
// 1.30 on.
func (in Install) policy() *admission.ValidatingAdmissionPolicy {
	fail, equivalent := admission.Fail, admission.Equivalent
	return &admission.ValidatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(),
			Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: in.meta(in.policyName(), ""),
		Spec: admission.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admission.MatchResources{MatchPolicy: &equivalent,
				ResourceRules: []admission.NamedRuleWithOperations{{
					RuleWithOperations: admission.RuleWithOperations{
						Operations: []admission.OperationType{admission.Create, admission.Update,
							admission.Delete},
						Rule: admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"secrets"}},
					},
				}}},
			MatchConditions: []admission.MatchCondition{
				{Name: "by-the-agent", Expression: "request.userInfo.username == '" +
					in.username() + "' && request.namespace == '" + in.ArgoCDNamespace + "'"}},
			Validations: []admission.Validation{
				{Expression: "oldObject == null || (" + labelled("oldObject") + ")",
					Message: "the agent changes and deletes only the Secrets that it has made"},
				{Expression: "object == null || (" + labelled("object") + ")",
					Message: "the agent makes only Secrets of repositories and clusters, with " +
						"its labels"},
			},
		},
	}
}

func (in Install) policyName() string {
	if in.Namespace == Name {
		return secretsPolicy
	}
	return secretsPolicy + "-" + in.Namespace
}

// username returns the API server's name for the agent's ServiceAccount.
func (in Install) username() string { return "system:serviceaccount:" + in.Namespace + ":" + Name }

func (in Install) policyBinding() *admission.ValidatingAdmissionPolicyBinding {
	return &admission.ValidatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: admission.SchemeGroupVersion.String(),
			Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: in.meta(in.policyName(), ""),
		Spec: admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: in.policyName(),
			ValidationActions: []admission.ValidationAction{admission.Deny},
			MatchResources: &admission.MatchResources{NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{
					"kubernetes.io/metadata.name": in.ArgoCDNamespace}}}},
	}
}
