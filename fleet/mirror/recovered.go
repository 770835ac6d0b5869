package mirror

import "argosy.dev/argosy/fleet"

// Recovered is what engines have shown of Applications after a loss of the mirror.
type Recovered struct {
	Read        map[fleet.EngineName]bool   // whose Applications are all known
	Hashes      map[fleet.ObjectKey]string  // of the manifest that an Application has
	Deployments map[fleet.DeploymentID]bool // that have an Application
}

// Add adds an Application.
func (r *Recovered) Add(k fleet.ObjectKey, of fleet.DeploymentID, hash string) {
	r.Hashes[k], r.Deployments[of] = hash, true
}

// Lost reports whether an Application without a row may exist with a manifest that the mirror has
// lost. It does not, if its engine was read and shows no Application of its deployment; one that
// only another Application of the deployment shows may have waited for its wave.
func (r *Recovered) Lost(k fleet.ObjectKey, of fleet.DeploymentID) bool {
	return r != nil && (!r.Read[k.Engine] || r.Deployments[of])
}

// Has reports whether the engine has exactly this manifest of an Application.
func (r *Recovered) Has(k fleet.ObjectKey, hash string) bool {
	return r != nil && hash != "" && r.Hashes[k] == hash
}
