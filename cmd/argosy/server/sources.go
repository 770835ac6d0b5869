package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/reconciler/pushes"
	"argosy.dev/argosy/reconciler/secrets"
	"argosy.dev/argosy/webhook"
)

// sourcePath receives deliveries of pushes to the repositories of Applications; those of a tenant
// below it.
const sourcePath = "/webhook/push"

// tenantHookSecret is the name of a tenant's secret that signs its deliveries.
const tenantHookSecret = "push-webhook"

// assembleSources builds what handles pushes to the repositories of Applications.
func (v *Server) assembleSources() error {
	proxies, err := v.settings.Listen.Proxies()
	if err != nil {
		return err
	}
	v.pushes = pushes.NewRunner(v.store.SourcePushes, v.log, newPushCounter(v.registry))
	kept := &hookSecretsOf{read: v.sourceSecrets}
	v.sources = webhook.NewSourceReceiver(webhook.SourceConfig{Secrets: kept.get,
		Accept: v.store.SourcePushes.AcceptSourcePush, Proxies: proxies, Log: v.log})
	return nil
}

// handlePushes runs while this replica leads.
func (v *Server) handlePushes(ctx context.Context) { v.loop.WhileLeading(ctx, v.pushes.Run) }

// secretAge is how long the secret of a tenant, or that there is none, is kept: anybody may ask.
const secretAge = 10 * time.Second

// maxKept limits the tenants whose secrets are kept.
const maxKept = 4096

// hookSecretsOf keeps the secrets of tenants for a few seconds.
type hookSecretsOf struct {
	read func(context.Context, fleet.TenantName) ([]fleet.Secret, error)

	mu   sync.Mutex
	kept map[fleet.TenantName]keptSecrets
}

type keptSecrets struct {
	secrets []fleet.Secret
	err     error
	at      time.Time
}

func (h *hookSecretsOf) get(ctx context.Context, tenant fleet.TenantName) ([]fleet.Secret, error) {
	h.mu.Lock()
	k, ok := h.kept[tenant]
	h.mu.Unlock()
	if ok && time.Since(k.at) < secretAge {
		return k.secrets, k.err
	}
	k = keptSecrets{at: time.Now()}
	if k.secrets, k.err = h.read(ctx, tenant); k.err != nil && !errors.Is(k.err,
		webhook.ErrNoSecret) {
		return nil, k.err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.kept == nil || len(h.kept) >= maxKept {
		h.kept = map[fleet.TenantName]keptSecrets{}
	}
	h.kept[tenant] = k
	return k.secrets, k.err
}

// sourceSecrets returns the secrets that sign the deliveries of a tenant, or with "" those of the
// Git host of the config repo.
func (v *Server) sourceSecrets(ctx context.Context, tenant fleet.TenantName) ([]fleet.Secret,
	error) {
	if tenant == "" {
		if v.settings.Forge == nil || len(v.settings.Forge.WebhookSecrets) == 0 {
			return nil, webhook.ErrNoSecret
		}
		return hookSecrets(v.settings.Forge.WebhookSecrets)()
	}
	if fleet.ValidateName(string(tenant)) != nil {
		return nil, webhook.ErrNoSecret
	}
	of := fleet.CredentialSource{Tenant: tenant, Name: tenantHookSecret,
		Folder: fleet.ObjectRepository.CredentialFolder()}
	var err error
	if of.Sealed, err = v.store.SourcePushes.SealedOf(ctx, tenant, of.Folder,
		of.Name); errors.Is(err, mirror.ErrNotFound) {
		return nil, webhook.ErrNoSecret
	} else if err != nil {
		return nil, err
	}
	secret, err := v.secrets.Get(ctx, of)
	switch {
	case errors.Is(err, secrets.ErrNotFound):
		return nil, webhook.ErrNoSecret
	case err != nil: // refused as without a secret: the answer shows nothing of the tenant
		v.log.Warn("a tenant's deliveries are refused: its secret cannot be read", "tenant", tenant,
			"secret", tenantHookSecret, "error", err)
		return nil, webhook.ErrNoSecret
	case len(secret.Value(webhook.SecretKey)) < leastSecret:
		v.log.Warn("deliveries are refused: the key secret of the tenant's secret is too short",
			"tenant", tenant, "secret", tenantHookSecret, "characters", leastSecret)
		return nil, webhook.ErrNoSecret
	}
	return []fleet.Secret{secret}, nil
}
