package mirror

import "argosy.dev/argosy/fleet"

// Row is one desired object of an engine as the mirror holds it.
type Row struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	// of Cluster and Repository rows
	Credential *fleet.CredentialSource `json:"credential,omitempty"`
	Manifest   fleet.Manifest          `json:"-"`
	// of Applications: what removing the row does
	Deletion fleet.DeletionPolicy `json:"deletion,omitempty"`
	// the object is to be removed; the row goes when that is acknowledged
	Unwanted bool `json:"absent,omitempty"`
	// of the config repo: the commit that last changed this object
	Revision fleet.Revision `json:"revision"`
	// commit-ordered; grows with every change of the row
	Seq int64 `json:"seq"`
	// as it was last acknowledged; the store's
	Apply ApplyState `json:"apply,omitempty"`
	// of a removed stray: no other object of that name is removed
	UID string `json:"uid,omitempty"`
	// incarnation of the store that it was read from: see Lease
	Life string `json:"-"`
}

// Head is what tells whether an object is as its Row wants it.
func (r Row) Head() RowHead {
	return RowHead{
		Key: r.Key, Hash: r.Manifest.Hash, Unwanted: r.Unwanted, Credential: r.Credential != nil,
		Seq: r.Seq, Apply: r.Apply, Life: r.Life,
	}
}

// RowHead is a Row without what is written for it. Its fields are the Row's.
type RowHead struct {
	Key        fleet.ObjectKey
	Hash       string // Manifest.Hash
	Unwanted   bool
	Credential bool // whether it has one
	Seq        int64
	Apply      ApplyState
	Life       string
}
