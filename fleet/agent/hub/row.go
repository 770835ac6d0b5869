package hub

import (
	"context"
	"fmt"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/agent"
)

// secretsTime bounds the reading of the secrets of one batch of rows: one place that does not
// answer holds up nobody for longer.
const secretsTime = 10 * time.Second

// rowOf is a row as it goes over the wire, without its credential.
func rowOf(r fleet.Row) agent.Row {
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

// checkRow is the last look at a row before it leaves: the store's walls hold, or nothing is sent
// at all.
func checkRow(to fleet.Agent, r fleet.Row) error {
	if r.Key.Engine != to.Engine || (to.Tenant != "" && r.Tenant != to.Tenant) {
		return fmt.Errorf("row %s %s is of engine %s and not for agent %s: nothing is sent",
			r.Key.Kind, r.Key.Name, r.Key.Engine, to.ID)
	}
	return nil
}

// credential is the secret that a row needs, sealed to the agent's key, or why it is not to be had.
func (h *Hub) credential(ctx context.Context, to fleet.Agent, r fleet.Row) *agent.Credential {
	if r.Credential == nil || r.Unwanted {
		return nil
	}
	c := &agent.Credential{Tenant: r.Credential.Tenant, Name: r.Credential.Name}
	if r.Credential.Tenant != r.Tenant {
		c.Problem = "the credential is of another tenant and is not sent"
		return c
	}
	var secret fleet.Secret
	err := h.resolving.within(ctx, func() (err error) {
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

// rows are a batch of rows as they go over the wire, with their credentials, and the secrets that
// are not to be had now.
func (h *Hub) rows(ctx context.Context, to fleet.Agent, batch []fleet.Row) (out []agent.Row,
	missing []secretName, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTime)
	defer cancel()
	for _, r := range batch {
		if err := checkRow(to, r); err != nil {
			return nil, nil, err
		}
		row := rowOf(r)
		if row.Credential = h.credential(ctx, to, r); row.Credential != nil &&
			row.Credential.Problem != "" {
			missing = append(missing, secretName{r.Credential.Tenant, r.Credential.Name})
		}
		out = append(out, row)
	}
	return out, missing, nil
}
