package configschema

import (
	"strings"

	"argosy.dev/argosy/fleet"
)

// PathOf is where a declaration stands in the config repo: what Classify would read the key from.
// It is empty for a key that does not tell.
func PathOf(k fleet.Key) string {
	switch k.Kind {
	case fleet.KindFleet:
		return "fleet/fleet.yaml"
	case fleet.KindSealedSecret:
		return "tenants/" + string(k.Tenant) + "/" + k.Name + sealedSuffix
	case fleet.KindFile:
		if strings.Contains(k.Name, "//") { // see fileName
			return ""
		}
		return k.Name
	}
	for _, at := range platformPlaces {
		if at.kind == k.Kind && k.Kind != "" {
			return "fleet/" + at.folder + "/" + k.Name + ".yaml"
		}
	}
	for _, at := range tenantPlaces {
		if at.kind == k.Kind && k.Kind != "" {
			return strings.Join([]string{"tenants", string(k.Tenant), at.folder, k.Name + ".yaml"},
				"/")
		}
	}
	return ""
}
