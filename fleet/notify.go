package fleet

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Notification subscribes recipients to the notifications of a deployment's Applications. The
// platform grants the service: see Allowances.
type Notification struct {
	// of argocd-notifications-cm; empty: the triggers that the platform has as the default
	Trigger string `json:"trigger,omitempty"`
	Service string `json:"service"`
	// as the service takes them; none for a service without recipients, such as a webhook
	Recipients []string `json:"recipients,omitempty"`
}

// NotificationGrant allows a service to the deployments of a tenant.
type NotificationGrant struct {
	Service    string   `json:"service"`
	Recipients []string `json:"recipients,omitempty"` // exact; none: any
}

// Limits of notifications and of watched paths.
const (
	MaxNotifications = 20
	MaxRecipients    = 20
	MaxWatchPaths    = 50

	subscription = "subscribe." // begins the name of an annotation's key, of at most 63 characters
)

// AnnotationName is the name of the notification's annotation, without the domain.
func (n Notification) AnnotationName() string {
	if n.Trigger == "" {
		return subscription + n.Service
	}
	return subscription + n.Trigger + "." + n.Service
}

// Check reports why a notification is refused, or nil.
func (n Notification) Check() error {
	if err := CheckNotificationWord(n.Service); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if n.Trigger != "" {
		if err := CheckNotificationWord(n.Trigger); err != nil {
			return fmt.Errorf("trigger: %w", err)
		}
	}
	if len(n.AnnotationName()) > maxName {
		return fmt.Errorf("trigger and service together have at most %d characters",
			maxName-len(subscription)-1)
	}
	if len(n.Recipients) > MaxRecipients {
		return fmt.Errorf("recipients: %d; at most %d are allowed", len(n.Recipients),
			MaxRecipients)
	}
	for _, r := range n.Recipients {
		if err := CheckRecipient(r); err != nil {
			return fmt.Errorf("recipients: %w", err)
		}
	}
	return nil
}

// CheckNotificationWord accepts the name of a trigger or a service, as a part of a key that Argo CD
// splits at dots.
func CheckNotificationWord(s string) error {
	if s == "" || !only(s, alnum+"-_") || !only(s[:1]+s[len(s)-1:], alnum) {
		return errors.New("the name holds letters, digits, '-' and '_', and begins and ends with " +
			"a letter or digit")
	}
	return nil
}

// CheckRecipient accepts one recipient of a service. Argo CD splits recipients at semicolons.
func CheckRecipient(s string) error {
	if s == "" || len(s) > 253 {
		return errors.New("a recipient has 1 to 253 characters")
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == ';' {
			return errors.New("a recipient holds printable ASCII characters, no blank and no ';'")
		}
	}
	return nil
}

// NotificationGranted reports whether the grants cover the service with each of the recipients. A
// grant of certain recipients does not cover the service without one.
func NotificationGranted(grants []NotificationGrant, n Notification) bool {
	return slices.ContainsFunc(grants, func(g NotificationGrant) bool {
		if g.Service != n.Service {
			return false
		}
		if len(g.Recipients) == 0 {
			return true
		}
		return len(n.Recipients) > 0 && !slices.ContainsFunc(n.Recipients, func(r string) bool {
			return !slices.Contains(g.Recipients, r)
		})
	})
}

// CheckWatchPath accepts a path of the repository, relative to the source's, or from the root of
// the repository if it begins with a slash. It is a plain path: Argo CD would read others as
// patterns.
func CheckWatchPath(s string) error {
	if s == "/" || s == "." {
		return nil
	}
	plain := strings.TrimPrefix(s, "/")
	if plain == "" || path.Clean(plain) == "." {
		return errors.New("the path is empty")
	}
	return CheckPath(plain)
}
