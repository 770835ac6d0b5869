package fleet

import (
	"errors"
	"regexp"
)

// PlatformClusterName names a Cluster.
type PlatformClusterName string

// PlatformClusterSpec is an API server of the platform that environments name
// (fleet/clusters/<name>.yaml). Exactly one of CredentialsRef and the identities of a cloud is set.
type PlatformClusterSpec struct {
	Server string `json:"server"` // https URL without path, query, userinfo
	CAData string `json:"caData,omitempty"`
	// the platform's secret with which Argosy requests the tokens of the environments' service
	// accounts; Argo CD never gets it
	CredentialsRef *SecretRef   `json:"credentialsRef,omitempty"`
	EKS            *EKSIdentity `json:"eks,omitempty"`
	GKE            *GKEIdentity `json:"gke,omitempty"`
	AKS            *AKSIdentity `json:"aks,omitempty"`
}

// EKSIdentity lets Argo CD authenticate with the IAM role of its Pod.
type EKSIdentity struct {
	ClusterName string `json:"clusterName"`       // in EKS
	RoleARN     string `json:"roleARN,omitempty"` // a role that Argo CD assumes
}

// GKEIdentity lets Argo CD authenticate with the Google service account of its Pod.
type GKEIdentity struct{}

// AKSIdentity lets Argo CD authenticate with the Azure identity of its Pod.
type AKSIdentity struct {
	Login       AKSLogin       `json:"login,omitempty"` // default workloadIdentity
	ClientID    string         `json:"clientID,omitempty"`
	TenantID    string         `json:"tenantID,omitempty"`
	Environment AKSEnvironment `json:"environment,omitempty"` // default AzurePublicCloud
}

// AKSLogin is how Argo CD logs in at Azure.
type AKSLogin string

// Logins of AKS.
const (
	AKSWorkloadIdentity AKSLogin = "workloadIdentity"
	AKSManagedIdentity  AKSLogin = "managedIdentity"
)

// AKSEnvironment is a cloud of Azure.
type AKSEnvironment string

// Clouds of Azure.
const (
	AKSPublicCloud  AKSEnvironment = "AzurePublicCloud"
	AKSUSGovernment AKSEnvironment = "AzureUSGovernmentCloud"
	AKSChina        AKSEnvironment = "AzureChinaCloud"
)

// CloudIdentity is the identity of a cloud as which Argo CD authenticates. At most one is set.
type CloudIdentity struct {
	EKS *EKSIdentity `json:"eks,omitempty"`
	GKE *GKEIdentity `json:"gke,omitempty"`
	AKS *AKSIdentity `json:"aks,omitempty"`
}

// Cloud returns the identity of a cloud, or nil.
func (s *PlatformClusterSpec) Cloud() *CloudIdentity {
	if s.EKS == nil && s.GKE == nil && s.AKS == nil {
		return nil
	}
	return &CloudIdentity{EKS: s.EKS, GKE: s.GKE, AKS: s.AKS}
}

var (
	eksName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$`)
	roleARN = regexp.MustCompile(`^arn:aws(-[a-z]+)*:iam::[0-9]{12}:role/[0-9A-Za-z_+=,.@/-]{1,512}$`)
	guid    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// CheckEKSName reports why the name of a cluster in EKS is refused, or nil.
func CheckEKSName(name string) error {
	if !eksName.MatchString(name) {
		return errors.New("the name of an EKS cluster has 1 to 100 letters, digits, '-' and '_', " +
			"and begins with a letter or digit")
	}
	return nil
}

// CheckRoleARN reports why the ARN of an IAM role is refused, or nil.
func CheckRoleARN(arn string) error {
	if !roleARN.MatchString(arn) {
		return errors.New("the ARN of a role is arn:aws:iam::<12 digits>:role/<name>")
	}
	return nil
}

// CheckGUID reports why an ID of Azure is refused, or nil.
func CheckGUID(id string) error {
	if !guid.MatchString(id) {
		return errors.New("an ID of Azure is a UUID in lower case")
	}
	return nil
}

// Check reports why an identity is refused, or nil. Argo CD runs a program with its texts.
func (c *CloudIdentity) Check() error {
	set := 0
	for _, is := range []bool{c.EKS != nil, c.GKE != nil, c.AKS != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return errors.New("exactly one of eks, gke and aks must be set")
	}
	if c.EKS != nil {
		if c.EKS.RoleARN != "" {
			if err := CheckRoleARN(c.EKS.RoleARN); err != nil {
				return err
			}
		}
		return CheckEKSName(c.EKS.ClusterName)
	}
	if a := c.AKS; a != nil {
		for _, id := range []string{a.ClientID, a.TenantID} {
			if id != "" && CheckGUID(id) != nil {
				return CheckGUID(id)
			}
		}
		switch a.Login {
		case "", AKSWorkloadIdentity, AKSManagedIdentity:
		default:
			return errors.New("login is workloadIdentity or managedIdentity")
		}
		switch a.Environment {
		case "", AKSPublicCloud, AKSUSGovernment, AKSChina:
		default:
			return errors.New("environment is a cloud of Azure")
		}
	}
	return nil
}
