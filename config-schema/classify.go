package configschema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"

	"argosy.dev/argosy/fleet"
)

// A place is a folder of the config repo and the kind of declaration that each file in it holds.
type place struct {
	folder string // with "<tenant>" for any tenant's name
	kind   fleet.Kind
	later  string // not empty: the kind of a later version
}

var platformPlaces = []place{
	{folder: "engines", kind: fleet.KindEngine},
	{folder: "tenants", kind: fleet.KindTenant},
	{folder: "policies", kind: fleet.KindPolicy},
	{folder: "pools", later: "EnginePool"},
}

var tenantPlaces = []place{
	{folder: "environments", kind: fleet.KindManagedEnvironment},
	{folder: "deployments", kind: fleet.KindGitOpsDeployment},
	{folder: "credentials", kind: fleet.KindRepositoryCredential},
	{folder: "syncs", kind: fleet.KindSyncRun},
}

// sealedSuffix ends the name of an age-encrypted file.
const sealedSuffix = ".sops.yaml"

// Classify says what a path of the config repo declares. ours is false for everything outside
// `fleet/` and `tenants/`, which is ignored. A file below them that is no declaration comes with a
// Problem, and with a Key of KindFile named for its path (fileName), so that it never stands for
// the declaration it resembles. A `*.sops.yaml` gives Kind SealedSecret named "<folder>/<name>".
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
	return classifyFile(path, tenant, folder, file, tenantPlaces)
}

func classifyFile(path, tenant, folder, file string, places []place) (fleet.Key, bool,
	*fleet.Problem) {
	at := placeOf(folder, places)
	switch {
	case at == nil || file == "":
		return misplaced(path, codeMisplaced, "no declaration belongs here",
			whereTo(folder, tenant, places))
	case at.later != "":
		return misplaced(path, codeUnsupported,
			at.later+" is not supported by this version of Argosy",
			"remove the file until the version that supports it")
	case strings.Contains(file, "/"):
		return misplaced(path, codeMisplaced, "declarations do not stand in folders below "+folder+
			"/", "move the file up")
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

// atFolder is the problem of a file that is no declaration: where the repository's layout has a
// folder, it says what stands there instead.
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
	stands := "file"
	if p.Code = codeMisplaced; f.Irregular != "" {
		p.Code, stands = codeIrregular, irregular(f)
	}
	p.Message = "a " + stands + " stands where the folder " + f.Path + "/ belongs"
	p.Fix = "remove the " + stands + ", and write the files themselves into the folder"
	return p
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
		if p.later == "" {
			known = append(known, p.folder)
		}
	}
	root := "fleet/"
	if tenant != "" {
		root = "tenants/" + tenant + "/"
	}
	if meant := fleet.Closest(folder, known); meant != "" {
		return "did you mean " + root + meant + "/?"
	}
	return "declarations stand in " + root + "{" + strings.Join(known, ",") +
		"}/<name>.yaml; keep other files outside fleet/ and tenants/"
}

func renameTo(file string) string {
	if strings.HasSuffix(file, ".yml") {
		return "rename it to end in .yaml"
	}
	return "remove the file, or keep it outside fleet/ and tenants/"
}

// misplaced is the answer for a file that is no declaration. The tenant is told where the path
// names a valid one, so that it sees the problem.
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

// maxFileName is the most bytes of a path that names a file which is no declaration. Git knows no
// limit; what keeps names does.
const maxFileName = 512

// fileName is the path, or for one that is too long or not valid text its beginning and a hash,
// between them what no path has.
func fileName(path string) string {
	if len(path) <= maxFileName && utf8.ValidString(path) && strings.IndexByte(path, 0) < 0 {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	begin := strings.ReplaceAll(path[:min(len(path), maxFileName/2)], "\x00", "")
	return strings.ToValidUTF8(begin, "") + "//" + hex.EncodeToString(sum[:16])
}
