package catalog

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"argosy.dev/argosy/fleet"
)

// entry is what is known of one key. It is never changed once it is in a state; a new one takes its
// place.
type entry struct {
	key        fleet.Key
	path, blob string             // of the head; of a removed file, the last ones
	effective  *fleet.Declaration // nil: never good so far
	head       *fleet.Declaration // nil: gone or not decoded
	removed    bool
	notes      []fleet.Problem // of decoding: why head is nil, or warnings
	quarantine []fleet.Problem // why the head is not in effect; empty: it is
	advice     []fleet.Problem // warnings of policies about what is in effect
}

func (e *entry) quarantined() bool { return e != nil && len(e.quarantine) > 0 }

func effectiveOf(e *entry) *fleet.Declaration {
	if e == nil {
		return nil
	}
	return e.effective
}

// versions yields what the key declares in effect and at the head: none, one or both.
func (e *entry) versions() []*fleet.Declaration {
	if e == nil {
		return nil
	}
	v := make([]*fleet.Declaration, 0, 2)
	if e.effective != nil {
		v = append(v, e.effective)
	}
	if e.head != nil && e.head != e.effective {
		v = append(v, e.head)
	}
	return v
}

// same is the effective declaration when the head is equal to it: whether something changes is
// asked of pointers.
func same(head, effective *fleet.Declaration) *fleet.Declaration {
	if head != nil && effective != nil && reflect.DeepEqual(head, effective) {
		return effective
	}
	return head
}

func (e *entry) public() Quarantine {
	return Quarantine{Key: e.key, Path: e.path, Blob: e.blob, Declaration: e.head,
		Problems:    e.quarantine,
		HasLastGood: e.effective != nil, Removed: e.removed}
}

// rank orders kinds so that what is referred to is judged before what refers to it.
func rank(k fleet.Kind) int {
	switch k {
	case fleet.KindFleet:
		return 0
	case fleet.KindTenant:
		return 1
	case fleet.KindEngine, fleet.KindPolicy:
		return 2
	case fleet.KindManagedEnvironment, fleet.KindRepositoryCredential, fleet.KindSealedSecret:
		return 3
	case fleet.KindGitOpsDeployment:
		return 4
	default:
		return ranks - 1
	}
}

const ranks = 6

// compareKeys orders by rank, kind, tenant and name, which is the order of paths within a folder.
func compareKeys(a, b fleet.Key) int {
	return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), strings.Compare(string(a.Kind),
		string(b.Kind)),
		strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(a.Name, b.Name))
}

func onlyErrors(problems []fleet.Problem) []fleet.Problem {
	var errs []fleet.Problem
	for _, p := range problems {
		if p.Severity != fleet.SeverityWarning {
			errs = append(errs, p)
		}
	}
	return errs
}

func sortProblems(problems []fleet.Problem) []fleet.Problem {
	slices.SortStableFunc(problems, fleet.CompareProblems)
	return problems
}

// The keys of what others refer to.
func fleetKey() fleet.Key { return fleet.Key{Kind: fleet.KindFleet, Name: "fleet"} }
func engineKey(n fleet.EngineName) fleet.Key {
	return fleet.Key{Kind: fleet.KindEngine, Name: string(n)}
}
func tenantKey(n fleet.TenantName) fleet.Key {
	return fleet.Key{Kind: fleet.KindTenant, Name: string(n)}
}
func environmentKey(id fleet.EnvironmentID) fleet.Key {
	return fleet.Key{Kind: fleet.KindManagedEnvironment, Tenant: id.Tenant, Name: string(id.Name)}
}
func deploymentKey(id fleet.DeploymentID) fleet.Key {
	return fleet.Key{Kind: fleet.KindGitOpsDeployment, Tenant: id.Tenant, Name: string(id.Name)}
}
func credentialKey(id fleet.CredentialID) fleet.Key {
	return fleet.Key{Kind: fleet.KindRepositoryCredential, Tenant: id.Tenant, Name: string(id.Name)}
}
func syncRunKey(id fleet.SyncRunID) fleet.Key {
	return fleet.Key{Kind: fleet.KindSyncRun, Tenant: id.Tenant, Name: string(id.Name)}
}

// SealedKey is the key of an encrypted file beside a declaration. Files of one name in two folders
// are two files, so the folder is part of the name.
func SealedKey(tenant fleet.TenantName, folder, name string) fleet.Key {
	return fleet.Key{Kind: fleet.KindSealedSecret, Tenant: tenant, Name: folder + "/" + name}
}
