package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
)

func TestATenantListsAndTestsItsOwnChannels(t *testing.T) {
	c := content()
	for i, tenant := range []fleet.TenantName{"acme", "globex", ""} {
		c.Notifications = append(c.Notifications, mirror.Notification{
			ID: "n-" + string(tenant), Tenant: tenant, Channel: "chat",
			Trigger: fleet.TriggerDegraded, About: tenant, State: mirror.NotificationSent,
			At: time.Now().Add(time.Duration(i) * time.Second)})
	}
	s := newSite(t, c)
	body := s.do(http.MethodGet, "/api/v1/notifications", acmeToken, "").body
	if !strings.Contains(body, "n-acme") || strings.Contains(body, "globex") ||
		strings.Contains(body, `"n-"`) {
		t.Errorf("acme reads %s", body)
	}
	test := func(token, body string) answer {
		return s.do(http.MethodPost, "/api/v1/notifications/test", token, body)
	}
	if got := test(acmeToken, `{"channel": "chat"}`); got.status != http.StatusOK ||
		!strings.Contains(got.body, `"tenant":"acme"`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got := test(acmeToken, `{"channel": "chat", "tenant": "globex"}`); got.status !=
		http.StatusNotFound {
		t.Errorf("a tenant tests the channel of another: %d %s", got.status, got.body)
	}
	if got := test(readerToken, `{"channel": "chat"}`); got.status != http.StatusForbidden {
		t.Errorf("a reader sends: %d %s", got.status, got.body)
	}
	if got := test(acmeToken, `{"channel": "../chat"}`); got.status !=
		http.StatusUnprocessableEntity && got.status != http.StatusBadRequest {
		t.Errorf("a path for a channel: %d %s", got.status, got.body)
	}
}
