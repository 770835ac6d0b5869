package argocd

import (
	"encoding/json"
	"fmt"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"

	"argosy.dev/argosy/fleet"
)

// Argo CD authenticates at a cluster of a cloud by argocd-k8s-auth, a program in its image, which
// uses the identity of the Pod. Program, arguments and the names of variables are fixed here; the
// values are checked texts of a Cluster, which the platform owns.
const (
	authProgram = "argocd-k8s-auth"
	authVersion = "client.authentication.k8s.io/v1beta1"
)

// authenticate sets the identity of a cloud.
func authenticate(config *v1alpha1.ClusterConfig, cloud *fleet.CloudIdentity) error {
	if err := cloud.Check(); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	switch {
	case cloud.EKS != nil:
		config.AWSAuthConfig = &v1alpha1.AWSAuthConfig{ClusterName: cloud.EKS.ClusterName,
			RoleARN: cloud.EKS.RoleARN}
	case cloud.GKE != nil:
		config.ExecProviderConfig = &v1alpha1.ExecProviderConfig{Command: authProgram,
			Args: []string{"gcp"}, APIVersion: authVersion}
	case cloud.AKS != nil:
		config.ExecProviderConfig = &v1alpha1.ExecProviderConfig{Command: authProgram,
			Args: []string{"azure"}, Env: azureEnv(cloud.AKS), APIVersion: authVersion}
	}
	return nil
}

// azureEnv returns the variables of argocd-k8s-auth azure. Without AAD_LOGIN_METHOD, kubelogin
// would not read the variables of workload identity.
func azureEnv(a *fleet.AKSIdentity) map[string]string {
	env := map[string]string{"AAD_LOGIN_METHOD": "workloadidentity",
		"AAD_ENVIRONMENT_NAME": string(fleet.AKSPublicCloud)}
	if a.Login == fleet.AKSManagedIdentity {
		env["AAD_LOGIN_METHOD"] = "msi"
	}
	for name, value := range map[string]string{"AAD_ENVIRONMENT_NAME": string(a.Environment),
		"AZURE_CLIENT_ID": a.ClientID, "AZURE_TENANT_ID": a.TenantID} {
		if value != "" {
			env[name] = value
		}
	}
	return env
}

// authenticatesInCloud reports whether a cluster Secret has an identity of a cloud.
func authenticatesInCloud(data map[string]any) bool {
	var config v1alpha1.ClusterConfig
	raw, err := dataValue(data, "config")
	return err == nil && json.Unmarshal(raw, &config) == nil &&
		(config.AWSAuthConfig != nil || config.ExecProviderConfig != nil)
}
