package stack

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tenantsNamespace holds the accounts of tenants, out of their own reach.
const tenantsNamespace = "stack-tenants"

// tokenLife is longer than any stack lives.
const tokenLife = 7 * 24 * time.Hour

// CreateNamespace makes a namespace, or leaves it as it is.
func (c *Cluster) CreateNamespace(ctx context.Context, name string) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// TenantToken returns a token of a service account that may do everything in the
// namespaces, which are made if need be, and nothing elsewhere but discovery:
// what a tenant gives to an Argo CD whose cluster Secret lists these namespaces.
func (c *Cluster) TenantToken(ctx context.Context, name string, namespaces ...string) (string,
	error) {
	everything := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"},
		Verbs: []string{"*"}}}
	token, err := c.account(ctx, tenantsNamespace, name)
	if err != nil {
		return "", fmt.Errorf("%s: tenant %s: %w", c.Name, name, err)
	}
	for _, namespace := range namespaces {
		if err := c.CreateNamespace(ctx, namespace); err != nil {
			return "", fmt.Errorf("%s: tenant %s: %w", c.Name, name, err)
		}
		if err := c.allow(ctx, namespace, tenantsNamespace, name, everything); err != nil {
			return "", fmt.Errorf("%s: tenant %s: %w", c.Name, name, err)
		}
	}
	return token, nil
}

// account makes a service account and returns a token for it.
func (c *Cluster) account(ctx context.Context, namespace, name string) (string, error) {
	if err := c.CreateNamespace(ctx, namespace); err != nil {
		return "", err
	}
	accounts := c.Client().CoreV1().ServiceAccounts(namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return "", err
	}
	seconds := int64(tokenLife.Seconds())
	token, err := accounts.CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return token.Status.Token, nil
}

// allow lets the account of one namespace do something in another, by a Role and
// a RoleBinding named for the account.
func (c *Cluster) allow(ctx context.Context, namespace, accountNamespace, account string,
	rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: account, Namespace: namespace}
	return c.Apply(ctx,
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account},
			Subjects: []rbacv1.Subject{
				{Kind: rbacv1.ServiceAccountKind, Namespace: accountNamespace, Name: account}},
		})
}
