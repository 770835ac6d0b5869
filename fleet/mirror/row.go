package mirror

import (
	"bytes"
	"encoding/json"

	"argosy.dev/argosy/fleet"
)

// Row is one desired object of an engine in the mirror.
type Row struct {
	Key         fleet.ObjectKey       `json:"key"`
	Tenant      fleet.TenantName      `json:"tenant"`
	Environment fleet.EnvironmentName `json:"environment,omitempty"`
	Deployment  fleet.DeploymentName  `json:"deployment,omitempty"`
	// of Cluster and Repository rows
	Credential *fleet.CredentialSource `json:"credential,omitempty"`
	Manifest   fleet.Manifest          `json:"-"`
	// of Applications: how the object is deleted
	Deletion fleet.DeletionPolicy `json:"deletion,omitempty"`
	// the object must be deleted; the row is deleted once that is acknowledged
	Unwanted bool `json:"absent,omitempty"`
	// of the config repo: the commit that last changed this object
	Revision fleet.Revision `json:"revision"`
	// commit-ordered; increases with every change of the row
	Seq int64 `json:"seq"`
	// latest acknowledged state; the store sets it
	Apply ApplyState `json:"apply,omitempty"`
	// of an orphan to delete; another object of that name is kept
	UID string `json:"uid,omitempty"`
	// incarnation of the store that it was read from: see Lease
	Life string `json:"-"`
	// the Application moves to or from this engine: see ApplicationMove
	Moving bool `json:"-"`
}

// Application is the Application of an Application's row.
func (r Row) Application() fleet.ApplicationID {
	return fleet.ApplicationID{Tenant: r.Tenant, Environment: r.Environment,
		Deployment: r.Deployment}
}

// Wave returns the wave of an Application: see fleet.WaveAnnotation. It is part of the manifest, so
// that an object has its wave wherever the manifest is.
func (r Row) Wave() int {
	if r.Key.Kind != fleet.ObjectApplication ||
		!bytes.Contains(r.Manifest.Body, []byte(fleet.WaveAnnotation)) {
		return 0
	}
	var object struct {
		Metadata struct{ Annotations map[string]string }
	}
	if json.Unmarshal(r.Manifest.Body, &object) != nil {
		return 0 // Apply reports it
	}
	return fleet.ParseWave(object.Metadata.Annotations[fleet.WaveAnnotation])
}

// Head returns the fields that decide whether an object matches its Row.
func (r Row) Head() RowHead {
	return RowHead{
		Key: r.Key, Hash: r.Manifest.Hash, Unwanted: r.Unwanted, Credential: r.Credential != nil,
		Seq: r.Seq, Apply: r.Apply, Life: r.Life,
	}
}

// RowHead is a Row without its manifest. Its fields are those of the Row.
type RowHead struct {
	Key        fleet.ObjectKey
	Hash       string // Manifest.Hash
	Unwanted   bool
	Credential bool // whether the row has one
	Seq        int64
	Apply      ApplyState
	Life       string
	Moving     bool // see Row
}
