package hub

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
	"argosy.dev/argosy/fleet/agent/registry"
	"argosy.dev/argosy/fleet/mirror"
)

// secretsTimeout bounds the resolution of the secrets of one batch of rows: an unresponsive source
// delays a stream no longer.
const secretsTimeout = 10 * time.Second

// wireRow converts a row to its wire form, without its credential.
func wireRow(r mirror.Row) agent.Row {
	operation := agent.OperationApply
	if r.Unwanted {
		operation = agent.OperationRemove
	}
	if r.UID != "" {
		operation = agent.OperationRemoveUID
	}
	return agent.Row{
		Kind: r.Key.Kind, Name: r.Key.Name, Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment, Operation: operation,
		Deletion: r.Deletion, Revision: r.Revision, Seq: r.Seq, Apply: r.Apply,
		Hash: r.Manifest.Hash, Manifest: r.Manifest.Body,
		UID: r.UID,
	}
}

// checkRow is the last check before a row is sent. A row of another engine or tenant sends nothing
// at all, even if the store's isolation has failed.
func checkRow(to registry.Agent, r mirror.Row) error {
	if r.Key.Engine != to.Engine || (to.Tenant != "" && r.Tenant != to.Tenant) {
		return fmt.Errorf("row %s %s belongs to engine %s and not to agent %s: nothing is sent",
			r.Key.Kind, r.Key.Name, r.Key.Engine, to.ID)
	}
	return nil
}

// sealedCredential returns the secret of a row, sealed with the agent's key, or the reason why it
// is unavailable.
func (h *Hub) sealedCredential(ctx context.Context, to registry.Agent, r mirror.Row) *agent.Credential {
	if r.Credential == nil || r.Unwanted {
		return nil
	}
	c := &agent.Credential{Tenant: r.Credential.Tenant, Name: r.Credential.Name}
	if r.Credential.Tenant != r.Tenant {
		c.Problem = "the credential belongs to another tenant and is not sent"
		return c
	}
	var secret fleet.Secret
	err := h.resolving.run(ctx, func() (err error) {
		secret, err = h.secrets.Get(ctx, *r.Credential)
		return err
	})
	if err == nil {
		c.Sealed, err = agent.Seal(to.Keys, r.Key, secret)
	}
	if err != nil {
		c.Problem = message(err.Error())
	}
	return c
}

// wireRows converts a batch of rows and their credentials. It also returns the unavailable secrets.
func (h *Hub) wireRows(ctx context.Context, to registry.Agent, batch []mirror.Row) (out []agent.Row,
	missing []secretName, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	for _, r := range batch {
		if err := checkRow(to, r); err != nil {
			return nil, nil, err
		}
		row := wireRow(r)
		if row.Credential = h.sealedCredential(ctx, to, r); row.Credential != nil &&
			row.Credential.Problem != "" {
			missing = append(missing, secretName{r.Credential.Tenant, r.Credential.Name})
		}
		out = append(out, row)
	}
	return out, missing, nil
}
