package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/adoption"
	"argosy.dev/argosy/cmd/argosy/checkout"
	"argosy.dev/argosy/cmd/argosy/table"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd"
	"argosy.dev/argosy/fleet/argocd/original"
	"argosy.dev/argosy/fleet/policy"
	"argosy.dev/argosy/reconciler/plan"
)

// importFlags are the flags of `argosy import`.
type importFlags struct {
	from, into string

	kubeconfig, kubeContext, namespace string

	tenantBy string
	clusters []string
	options  adoption.Options
	batch    int
}

func importCommand(a *app) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --from PATH|--kubeconfig FILE --into DIR",
		Short: "Write a config repo from the Applications of a running Argo CD",
		Long: "Reads Applications, ApplicationSets, AppProjects and the Secrets of clusters and\n" +
			"repositories from manifests below PATH, or from the cluster of a kubeconfig, and\n" +
			"writes a config repo into DIR that validates. It reports for each object whether\n" +
			"it is exact, changed or refused, with each field that differs. It changes no\n" +
			"cluster and writes no credential: it prints the commands that create the Secrets.\n" +
			"It overwrites only files that it wrote itself and that are unchanged since.\n" +
			"With --adopt --batch N each run adds the deployments of N further Applications,\n" +
			"and reports how many are adopted, declared and left.\n" +
			"Exit code 1: an object was refused, a part of the source could not be read, or a\n" +
			"file stayed because it had changed.",
		Example: "  argosy import --from path/to/gitops-repo --into config-repo\n" +
			"  argosy import --from apps/ --into config-repo --default-tenant acme -o json\n" +
			"  argosy import --from apps/ --into config-repo --tenant-by label:team\n" +
			"  argosy import --kubeconfig ~/.kube/config --context prod --into config-repo\n" +
			"  argosy import --kubeconfig ~/.kube/config --into config-repo --adopt\n" +
			"  argosy import --kubeconfig ~/.kube/config --into config-repo --adopt --batch 20",
		Args: exactly(),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "file or folder of manifests")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster with the Argo CD")
	flags.StringVar(&f.kubeContext, "context", "", "context of the kubeconfig")
	flags.StringVar(&f.namespace, "namespace", "",
		"read only this namespace of the cluster (default: all)")
	flags.StringVar(&f.into, "into", "", "folder of the config repo")
	flags.StringVar(&f.tenantBy, "tenant-by", "project",
		"`RULE`: project, label:KEY, tenant:NAME for all of them, or a file of lines "+
			"'PATTERN: TENANT' for names of Applications and projects")
	flags.StringVar(&f.options.DefaultTenant, "default-tenant", "platform",
		"tenant of the project default")
	flags.StringVar(&f.options.PlatformTenant, "platform-tenant", "platform",
		"tenant of Applications in namespaces that no tenant may have beside others: Argo CD's "+
			"own, kube-* of its cluster, and those that several projects use (\"\": refuse them)")
	flags.StringVar(&f.options.Engine, "engine", "main",
		"name of the engine that the Argo CD becomes")
	flags.StringVar(&f.options.ArgoNamespace, "argocd-namespace", "",
		"namespace of the Argo CD (default: that of most Applications)")
	flags.StringVar(&f.options.Region, "region", "main", "region of the engine and environments")
	flags.StringSliceVar(&f.options.Owners, "owner", nil,
		"owner of tenants whose project names no group (default: group:<tenant>)")
	flags.StringSliceVar(&f.clusters, "cluster", nil,
		"NAME=URL of a cluster that destinations name and no Secret at hand describes")
	flags.StringToStringVar(&f.options.Annotations, "annotation", nil,
		"KEY=VALUE of an annotation of clusters that no Secret at hand describes, if "+
			"ApplicationSets take a repository or a chart from it")
	flags.StringSliceVar(&f.options.Only, "only", nil,
		"import only these: NAME, NAMESPACE/NAME or KIND/NAME; * matches any text")
	flags.BoolVar(&f.options.Adopt, "adopt", false,
		"take over the Applications themselves, with their names and history "+
			"(default: create new ones)")
	flags.IntVar(&f.batch, "batch", 0,
		"with --adopt: write the deployments of at most `N` Applications that the folder lacks "+
			"(default: all)")
	out := addFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.complete(); err != nil {
			return err
		}
		var in adoption.Input
		var unread []string
		var err error
		if f.from != "" {
			in, err = readManifests(f.from)
		} else {
			in, unread, err = readCluster(cmd.Context(), f, func(kind string, objects int) {
				a.hint("read %s of kind %s", plural(objects, "object"), kind)
			})
		}
		if err != nil {
			return err
		}
		return a.importInto(f, in, unread, out.value)
	}
	return cmd
}

// complete checks the flags and reads the ones with a form of their own.
func (f *importFlags) complete() error {
	if (f.from == "") == (f.kubeconfig == "") || f.into == "" {
		return errors.New(
			"name what to read with --from or --kubeconfig, and where to write with " +
				"--into")
	}
	if f.from != "" && f.kubeContext+f.namespace != "" {
		return errors.New("--context and --namespace belong to --kubeconfig")
	}
	f.options.Clusters = map[string]string{}
	for _, entry := range f.clusters {
		name, server, found := strings.Cut(entry, "=")
		if err := fleet.CheckServerURL(server); !found || name == "" || err != nil {
			return fmt.Errorf("--cluster %s: write NAME=https://host[:port]", entry)
		}
		f.options.Clusters[name] = server
	}
	names := []string{f.options.Engine, f.options.DefaultTenant}
	if f.options.PlatformTenant != "" {
		names = append(names, f.options.PlatformTenant)
	}
	for _, name := range names {
		if err := fleet.ValidateName(name); err != nil {
			return err
		}
	}
	if f.batch < 0 || f.batch > 0 && !f.options.Adopt {
		return errors.New("--batch needs --adopt and a number of Applications, such as 20")
	}
	for _, pattern := range f.options.Only {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("--only %s: %w", pattern, err)
		}
	}
	label, byLabel := strings.CutPrefix(f.tenantBy, "label:")
	switch {
	case f.tenantBy == "project":
	case strings.HasPrefix(f.tenantBy, "tenant:"):
		name := strings.TrimPrefix(f.tenantBy, "tenant:")
		if err := fleet.ValidateName(name); err != nil {
			return fmt.Errorf("--tenant-by: %w", err)
		}
		f.options.TenantBy.List = []adoption.TenantRule{{Pattern: "*", Tenant: name}}
	case byLabel && label != "":
		f.options.TenantBy.Label = label
	default:
		rules, err := tenantRules(f.tenantBy)
		if err != nil {
			return fmt.Errorf("--tenant-by: %w", err)
		}
		f.options.TenantBy.List = rules
	}
	return nil
}

// tenantRules reads a file of `PATTERN: TENANT` lines, in their order.
func tenantRules(file string) (rules []adoption.TenantRule, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for n, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		pattern, tenant, found := strings.Cut(line, ":")
		pattern, tenant = strings.Trim(strings.TrimSpace(pattern), `"'`), strings.TrimSpace(tenant)
		if _, err := path.Match(pattern, ""); !found || err != nil ||
			fleet.ValidateName(tenant) != nil {
			return nil, fmt.Errorf("%s:%d: write PATTERN: TENANT", file, n+1)
		}
		rules = append(rules, adoption.TenantRule{Pattern: pattern, Tenant: tenant})
	}
	return rules, nil
}

// maxManifests bounds the bytes of one file that is read.
const maxManifests = 16 << 20

// readManifests reads the originals of a file, or of every manifest below a folder. Paths are those
// of the Git repository that the folder is in.
func readManifests(from string) (in adoption.Input, err error) {
	info, err := os.Stat(from)
	if err != nil {
		return in, err
	}
	dir, only := from, ""
	if !info.IsDir() {
		dir, only = filepath.Dir(from), filepath.Base(from)
	}
	top, below, err := repositoryOf(dir)
	if err != nil {
		return in, err
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return in, err
	}
	tree := &adoption.Tree{Read: root.ReadFile}
	if _, err := root.Stat(".git"); err != nil { // a folder of a repository
		tree.Name = filepath.Base(root.Name())
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir():
			if name != "." {
				tree.Dirs = append(tree.Dirs, name)
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		tree.Files = append(tree.Files, name)
		inside := below == "." || strings.HasPrefix(name, below+"/")
		if only != "" {
			inside = name == path.Join(below, only)
		}
		if !inside || only == "" && !isManifest(name) {
			return nil
		}
		if info, err := entry.Info(); err != nil || info.Size() > maxManifests {
			return err
		}
		text, err := root.ReadFile(name)
		if err != nil {
			return err
		}
		found, refused := adoption.Read(name, text)
		in.Originals = append(in.Originals, found...)
		in.Refused = append(in.Refused, refused...)
		return nil
	})
	in.Tree = tree
	if err == nil && len(in.Originals) == 0 && len(in.Refused) == 0 {
		err = fmt.Errorf("%s: no manifest of Argo CD is in it", from)
	}
	return in, err
}

// readCluster reads the originals of a live Argo CD. It changes nothing.
func readCluster(ctx context.Context, f importFlags, progress func(kind string,
	objects int)) (in adoption.Input, unread []string, err error) {
	config, err := original.Kubeconfig(f.kubeconfig, f.kubeContext)
	if err != nil {
		return in, nil, err
	}
	objects, unread, err := original.Read(ctx, config, f.namespace, progress)
	if err == nil && len(objects)+len(unread) == 0 {
		err = errors.New("the cluster has no object of Argo CD; correct --kubeconfig or --context")
		if f.namespace != "" {
			err = fmt.Errorf("namespace %s has no object of Argo CD; correct --namespace, or "+
				"leave it out to read all namespaces", f.namespace)
		}
	}
	for _, o := range objects {
		in.Originals = append(in.Originals, adoption.FromObject("", o)...)
	}
	in.Whole = f.namespace == ""
	return in, unread, err
}

func isManifest(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// repositoryOf is the Git work tree that a folder is in, and the folder's path in it; without one,
// the folder itself.
func repositoryOf(dir string) (top, below string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return "", "", err
	}
	for top = dir; ; top = filepath.Dir(top) {
		if _, err := os.Lstat(filepath.Join(top, ".git")); err == nil {
			below, err = filepath.Rel(top, dir)
			return top, filepath.ToSlash(below), err
		}
		if top == filepath.Dir(top) {
			return dir, ".", nil
		}
	}
}

// importInto imports, writes the files and prints the report.
func (a *app) importInto(f importFlags, in adoption.Input, unread []string, format string) error {
	in.Unread = unread
	var err error
	if in.Present, err = present(f.into); err != nil {
		return err
	}
	a.hint("read %s", plural(len(in.Originals)+len(in.Refused), "object"))
	outcome, err := adoption.Import(in, f.options, adoption.Tools{
		Normalize: func(object map[string]any, charts func(string) bool) (adoption.Normal, error) {
			n, err := original.Normalize(object, charts)
			return adoption.Normal{Spec: n.Spec, Unknown: n.Unknown}, err
		}, Render: renderApplications})
	if err != nil {
		return err
	}
	if len(f.options.Only) > 0 && len(outcome.Report.Objects) == 0 {
		return fmt.Errorf("--only %s: no object that was read has this name",
			strings.Join(f.options.Only, ","))
	}
	if f.options.Adopt {
		outcome.Files, outcome.Report.Adoption = nextBatch(outcome, f.into, f.batch)
	}
	written, err := writeImport(f.into, outcome.Files)
	if err != nil {
		return err
	}
	outcome.Report.Notes = append(outcome.Report.Notes, written.notes()...)
	problems, err := together(f.into, outcome.Files)
	if err != nil {
		return err
	}
	for _, p := range problems {
		outcome.Report.Notes = append(outcome.Report.Notes, "together with the files that were "+
			"there, the config repo does not validate: "+p.String())
	}
	if err := a.writeReport(outcome.Report, format); err != nil {
		return err
	}
	a.hint("wrote %s into %s", plural(written.changed, "file"), f.into)
	refused := 0
	for _, c := range outcome.Report.Summary {
		refused += c.Refused
	}
	switch {
	case len(unread) > 0:
		return findings{"a part of the cluster could not be read, so the import is not complete"}
	case len(written.kept) > 0:
		return findings{plural(len(written.kept), "file") +
			" kept, changed since the last import; see the notes"}
	case len(problems) > 0:
		return findings{"the config repo does not validate together with the files that were " +
			"there; see the notes"}
	case refused > 0:
		return findings{plural(refused, "object") + " refused; see the report"}
	}
	return nil
}

// present returns the files of the config repo in dir; none if there is no config repo yet.
func present(dir string) ([]configschema.File, error) {
	for _, top := range checkout.Roots {
		if _, err := os.Lstat(filepath.Join(dir, top)); err == nil {
			return checkout.Read(dir)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, nil
}

// together returns the errors of the config repo if it has other files than those of the import,
// which validate by themselves.
func together(dir string, files []configschema.File) (problems []fleet.Problem, err error) {
	all, err := checkout.Read(dir)
	if err != nil {
		return nil, err
	}
	own := map[string][]byte{}
	for _, f := range files {
		own[f.Path] = f.Bytes
	}
	if !slices.ContainsFunc(all, func(f configschema.File) bool {
		return !bytes.Equal(own[f.Path], f.Bytes)
	}) {
		return nil, nil
	}
	for _, p := range configschema.Check(all) {
		if p.Severity == fleet.SeverityError && p.Code != configschema.CodeNotExpanded {
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// renderApplications plans the files offline and returns the Applications of every engine. An
// environment that no engine takes is a problem.
func renderApplications(files []configschema.File) ([]adoption.Rendered, []fleet.Problem, error) {
	p, err := plan.Offline(configschema.Inputs(files), "", policy.New().Judge, argocd.Renderer{})
	if err != nil {
		return nil, nil, err
	}
	var rendered []adoption.Rendered
	for _, r := range p.Rows {
		if r.Row.Key.Kind != fleet.ObjectApplication {
			continue
		}
		dec := json.NewDecoder(bytes.NewReader(r.Row.Manifest.Body))
		dec.UseNumber()
		var object map[string]any
		if err := dec.Decode(&object); err != nil {
			return nil, nil, err
		}
		rendered = append(rendered, adoption.Rendered{Tenant: r.Row.Tenant,
			Deployment: r.Row.Deployment, Environment: r.Row.Environment, Object: object})
	}
	problems := p.Problems
	for _, placed := range p.Placements {
		if placed.Engine == "" {
			problems = append(problems, fleet.Problem{Severity: fleet.SeverityError,
				Message: placed.Reason, Key: fleet.Key{Kind: fleet.KindManagedEnvironment,
					Tenant: placed.Environment.Tenant, Name: string(placed.Environment.Name)}})
		}
	}
	return rendered, problems, nil
}

// ledgerFile records what the last import wrote, so that the next one overwrites nothing else.
const ledgerFile = ".argosy-import.json"

// imported is what became of the files.
type imported struct {
	changed      int
	kept, former []string // changed by people; no longer imported
}

func (i imported) notes() (notes []string) {
	for _, f := range i.kept {
		notes = append(notes, f+": it changed since the last import and stays as it is")
	}
	for _, f := range i.former {
		notes = append(notes, f+": an earlier import wrote it, this one does not; it stays")
	}
	return notes
}

// writeImport writes the files that differ. It keeps every file that it did not write itself.
func writeImport(dir string, files []configschema.File) (done imported, err error) {
	ledger := map[string]string{}
	name := filepath.Join(dir, ledgerFile)
	if b, err := os.ReadFile(name); err == nil {
		if err := json.Unmarshal(b, &ledger); err != nil {
			return done, fmt.Errorf("%s: %w", name, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return done, err
	}
	next := map[string]string{}
	for _, f := range files {
		next[f.Path] = digest(f.Bytes)
		file := filepath.Join(dir, filepath.FromSlash(f.Path))
		have, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return done, err
			}
			if err := os.WriteFile(file, f.Bytes, 0o644); err != nil {
				return done, err
			}
			done.changed++
		case err != nil:
			return done, err
		case bytes.Equal(have, f.Bytes):
			// a person's edit stays a person's, also if the import writes the same
			next[f.Path] = cmp.Or(ledger[f.Path], next[f.Path])
		case ledger[f.Path] != digest(have):
			done.kept = append(done.kept, f.Path)
			next[f.Path] = cmp.Or(ledger[f.Path], "kept")
		default:
			text := f.Bytes
			if shared(f.Path) {
				if text, err = adoption.Merge(have, f.Bytes); err != nil {
					return done, fmt.Errorf("%s: %w", file, err)
				}
			}
			next[f.Path] = digest(text)
			if bytes.Equal(text, have) {
				continue
			}
			if err := replace(file, text); err != nil {
				return done, err
			}
			done.changed++
		}
	}
	for f, sum := range ledger {
		if _, ok := next[f]; ok {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(f))); err == nil {
			done.former = append(done.former, f)
			next[f] = sum
		}
	}
	slices.Sort(done.former)
	b, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return done, err
	}
	return done, os.WriteFile(name, append(b, '\n'), 0o644)
}

// shared reports whether imports of several parts write one declaration: the Fleet, an Engine, a
// Tenant or an environment. A deployment is that of the last import.
func shared(path string) bool {
	key, _, _ := configschema.Classify(path)
	switch key.Kind {
	case fleet.KindFleet, fleet.KindEngine, fleet.KindTenant, fleet.KindManagedEnvironment:
		return true
	}
	return false
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (a *app) writeReport(r adoption.Report, format string) error {
	if format == "json" {
		return writeJSON(a.out, r)
	}
	if err := r.WriteText(a.out); err != nil {
		return err
	}
	summary := table.Table{Heads: []string{"KIND", "EXACT", "CHANGED", "REFUSED"}}
	for _, c := range r.Summary {
		summary.Rows = append(summary.Rows, []table.Value{table.Text(c.Kind), table.Number(c.Exact),
			table.Number(c.Changed), table.Number(c.Refused)})
	}
	if err := a.printLine(""); err != nil {
		return err
	}
	if err := summary.Write(a.out, a.colour()); err != nil || r.Adoption == nil {
		return err
	}
	p := r.Adoption
	return errors.Join(a.printLine(""), a.printLine("Adoption: %s adopted, %d declared, %d left",
		plural(p.Adopted, "Application"), p.Declared, p.Later))
}
