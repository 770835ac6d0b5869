package configschema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
)

// A place is a folder of the config repo and the kind of declaration that each file in it holds.
type place struct {
	folder string // with "<tenant>" for any tenant's name
	kind   fleet.Kind
}

var platformPlaces = []place{
	{folder: "engines", kind: fleet.KindEngine},
	{folder: "clusters", kind: fleet.KindCluster},
	{folder: "tenants", kind: fleet.KindTenant},
	{folder: "policies", kind: fleet.KindPolicy},
	{folder: "pools", kind: fleet.KindEnginePool},
}

var tenantPlaces = []place{
	{folder: "environments", kind: fleet.KindManagedEnvironment},
	{folder: "deployments", kind: fleet.KindGitOpsDeployment},
	{folder: "sets", kind: fleet.KindGitOpsDeploymentSet},
	{folder: "credentials", kind: fleet.KindRepositoryCredential},
	{folder: "syncs", kind: fleet.KindSyncRun},
}

// defaultsFile is the file of a tenant's defaults in its folder.
const defaultsFile = fleet.TenantDefaultsName + ".yaml"

// notificationsFile is the file of a tenant's notification settings in its folder.
const notificationsFile = fleet.TenantNotificationsName + ".yaml"

// accessFile is the file of the platform's roles.
const accessFile = "fleet/access.yaml"

// sealedSuffix ends the name of an age-encrypted file.
const sealedSuffix = ".sops.yaml"

// atFolder rewrites the problem of a file at the path of a folder of the layout: the message names
// the folder that belongs there.
func atFolder(f File, p fleet.Problem) fleet.Problem {
	var at bool
	switch parts := strings.Split(f.Path, "/"); {
	case len(parts) == 1:
		at = true // fleet, tenants
	case parts[0] == "fleet":
		at = len(parts) == 2 && placeOf(parts[1], platformPlaces) != nil
	case len(parts) == 2:
		at = f.Irregular != "" && fleet.ValidateName(parts[1]) == nil
	default:
		at = len(parts) == 3 && placeOf(parts[2], tenantPlaces) != nil
	}
	if !at || p.Code == codeInvalidName {
		return p
	}
	entry := "file"
	if p.Code = codeMisplaced; f.Irregular != "" {
		p.Code, entry = codeIrregular, irregular(f)
	}
	p.Message = "a " + entry + " is in the place of the folder " + f.Path + "/"
	p.Fix = "remove the " + entry + ", and write the files themselves into the folder"
	return p
}

// PathOf returns the path of a declaration in the config repo, the inverse of Classify. It is empty
// for a key that has none.
func PathOf(k fleet.Key) string {
	switch k.Kind {
	case fleet.KindFleet:
		return "fleet/fleet.yaml"
	case fleet.KindAccess:
		return accessFile
	case fleet.KindTenantDefaults:
		return "tenants/" + string(k.Tenant) + "/" + defaultsFile
	case fleet.KindTenantNotifications:
		return "tenants/" + string(k.Tenant) + "/" + notificationsFile
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

// DuplicatePaths finds paths below `fleet/` and `tenants/` that differ only in case. Some
// filesystems take them for one file, so that a reviewer may see another file than Git holds: a
// review refuses each of them.
//
// The control plane reads Git's objects and no filesystem, and does not need this check: Classify
// accepts only paths in lower-case ASCII, hence at most one of the duplicates. If both were
// refused, anyone who can write a duplicate, in a folder such as tenants/Acme/ that has no owner,
// could block the declarations of others.
func DuplicatePaths(paths []string) []fleet.Problem {
	folded := make(map[string]string, len(paths)) // folded path or folder → its first spelling
	duplicates := map[string]string{}             // written path or folder → its duplicate
	for _, p := range slices.Sorted(slices.Values(paths)) {
		for end := 0; end < len(p); {
			next := strings.IndexByte(p[end:], '/')
			if next < 0 {
				end = len(p)
			} else {
				end += next
			}
			part := p[:end]
			end++
			f := fold(part)
			if first, ok := folded[f]; !ok {
				folded[f] = part
			} else if first != part {
				duplicates[first], duplicates[part] = part, first
			}
		}
	}
	if len(duplicates) == 0 {
		return nil
	}
	var problems []fleet.Problem
	for _, p := range slices.Sorted(slices.Values(paths)) {
		part, duplicate := duplicateOf(p, duplicates)
		if key, ours, _ := Classify(p); duplicate != "" && ours {
			problems = append(problems, fleet.Problem{Key: key, Path: p,
				Severity: fleet.SeverityError, Code: codePathCase,
				Message: quoted(part) + " and " + quoted(duplicate) + " differ only in case",
				Fix:     "keep one of them; some filesystems take them for one"})
		}
	}
	return problems
}

// fold returns the form that filesystems compare if they ignore case. It does not fold Unicode
// forms: only ASCII paths are declarations, so Classify refuses both.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

func duplicateOf(path string, duplicates map[string]string) (part, duplicate string) {
	for end := 0; end < len(path); end++ {
		next := strings.IndexByte(path[end:], '/')
		if next < 0 {
			break
		}
		end += next
		if t, ok := duplicates[path[:end]]; ok {
			return path[:end], t
		}
	}
	return path, duplicates[path]
}

// Classify returns the key that a path of the config repo declares. ours is false for every path
// outside `fleet/` and `tenants/`. A file below them that is no declaration gets a Problem, and a
// Key of KindFile named for its path (fileName), so that it never replaces a declaration with a
// similar path. A `*.sops.yaml` has Kind SealedSecret and the name "<folder>/<name>".
func Classify(path string) (key fleet.Key, ours bool, problem *fleet.Problem) {
	root, rest, inside := strings.Cut(path, "/")
	if root != "fleet" && root != "tenants" {
		if inside && (strings.EqualFold(root, "fleet") || strings.EqualFold(root, "tenants")) {
			return misplaced(path, codeMisplaced,
				fmt.Sprintf("the folder is named %s/ in lower case", strings.ToLower(root)),
				"rename the folder")
		}
		return fleet.Key{}, false, nil
	}
	if !inside {
		return misplaced(path, codeMisplaced,
			path+" is a folder of the config repo and cannot be a file", "remove the file")
	}
	if root == "fleet" {
		return classifyPlatform(path, rest)
	}
	return classifyTenant(path, rest)
}

func classifyPlatform(path, rest string) (fleet.Key, bool, *fleet.Problem) {
	if rest == "fleet.yaml" {
		return fleet.Key{Kind: fleet.KindFleet, Name: "fleet"}, true, nil
	}
	if path == accessFile {
		return fleet.AccessKey(), true, nil
	}
	folder, file, _ := strings.Cut(rest, "/")
	return classifyFile(path, "", folder, file, platformPlaces)
}

func classifyTenant(path, rest string) (fleet.Key, bool, *fleet.Problem) {
	tenant, rest, inside := strings.Cut(rest, "/")
	folder, file, _ := strings.Cut(rest, "/")
	if !inside {
		return misplaced(path, codeMisplaced, "no declaration belongs directly into tenants/",
			"move it to tenants/<tenant>/deployments/ or remove it")
	}
	if err := fleet.ValidateName(tenant); err != nil {
		return misplaced(path, codeInvalidName, "the tenant's folder: "+err.Error(),
			"rename the folder as its tenant is named in fleet/tenants/")
	}
	if rest == defaultsFile {
		return fleet.Key{Kind: fleet.KindTenantDefaults, Tenant: fleet.TenantName(tenant),
			Name: fleet.TenantDefaultsName}, true, nil
	}
	if rest == notificationsFile {
		return fleet.Key{Kind: fleet.KindTenantNotifications, Tenant: fleet.TenantName(tenant),
			Name: fleet.TenantNotificationsName}, true, nil
	}
	return classifyFile(path, tenant, folder, file, tenantPlaces)
}

func classifyFile(path, tenant, folder, file string, places []place) (fleet.Key, bool,
	*fleet.Problem) {
	at := placeOf(folder, places)
	switch {
	case at == nil || file == "":
		return misplaced(path, codeMisplaced, "no declaration belongs here",
			whereTo(folder, tenant, places))
	case strings.Contains(file, "/"):
		return misplaced(path, codeMisplaced, "declarations cannot be in folders below "+folder+"/",
			"move the file up")
	}
	if sealed, ok := strings.CutSuffix(file, sealedSuffix); ok {
		return classifySealed(path, tenant, folder, sealed)
	}
	name, ok := strings.CutSuffix(file, ".yaml")
	if !ok {
		return misplaced(path, codeWrongExtension, "declarations end in .yaml", renameTo(file))
	}
	if err := fleet.ValidateName(name); err != nil {
		return misplaced(path, codeInvalidName, err.Error(),
			"rename the file and its metadata.name")
	}
	return fleet.Key{Kind: at.kind, Tenant: fleet.TenantName(tenant), Name: name}, true, nil
}

func placeOf(folder string, places []place) *place {
	for i := range places {
		if places[i].folder == folder {
			return &places[i]
		}
	}
	return nil
}

func whereTo(folder, tenant string, places []place) string {
	known := make([]string, 0, len(places))
	for _, p := range places {
		known = append(known, p.folder)
	}
	root := "fleet/"
	if tenant != "" {
		root = "tenants/" + tenant + "/"
	}
	if meant := fleet.Closest(folder, known); meant != "" {
		return "did you mean " + root + meant + "/?"
	}
	return "declarations belong in " + root + "{" + strings.Join(known, ",") +
		"}/<name>.yaml; keep other files outside fleet/ and tenants/"
}

func classifySealed(path, tenant, folder, name string) (fleet.Key, bool, *fleet.Problem) {
	if tenant == "" || folder != "environments" && folder != "credentials" {
		return misplaced(path, codeMisplaced,
			"an encrypted file belongs beside the environment or credential that it serves",
			"move it to tenants/<tenant>/environments/ or tenants/<tenant>/credentials/")
	}
	if err := fleet.ValidateName(name); err != nil {
		return misplaced(path, codeInvalidName, err.Error(),
			"rename the file as credentialsRef.name names it")
	}
	return fleet.Key{Kind: fleet.KindSealedSecret, Tenant: fleet.TenantName(tenant),
		Name: folder + "/" + name}, true, nil
}

// misplaced returns the result for a file that is no declaration. The key has a tenant if the path
// names a valid one, so that the tenant sees the problem.
func misplaced(path, code, message, fix string) (fleet.Key, bool, *fleet.Problem) {
	key := fleet.Key{Kind: fleet.KindFile, Name: fileName(path)}
	if rest, ok := strings.CutPrefix(path, "tenants/"); ok {
		if tenant, _, ok := strings.Cut(rest, "/"); ok && fleet.ValidateName(tenant) == nil {
			key.Tenant = fleet.TenantName(tenant)
		}
	}
	return key, true, &fleet.Problem{Key: key, Path: path, Severity: fleet.SeverityError,
		Code: code, Message: message, Fix: fix}
}

// maxFileName limits the bytes of the path of a file that is no declaration. Git has no limit, but
// stores of names do.
const maxFileName = 512

// fileName returns the path. A path that is too long or invalid UTF-8 is cut and gets a hash behind
// "//", which no path has.
func fileName(path string) string {
	if len(path) <= maxFileName && utf8.ValidString(path) && strings.IndexByte(path, 0) < 0 {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	begin := strings.ReplaceAll(path[:min(len(path), maxFileName/2)], "\x00", "")
	return strings.ToValidUTF8(begin, "") + "//" + hex.EncodeToString(sum[:16])
}

func renameTo(file string) string {
	if strings.HasSuffix(file, ".yml") {
		return "rename it to end in .yaml"
	}
	return "remove the file, or keep it outside fleet/ and tenants/"
}
