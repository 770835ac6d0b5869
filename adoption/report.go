package adoption

import (
	"cmp"
	"slices"
	"strings"
)

// Status is the outcome of the import for one object.
type Status string

// Statuses. An exact object renders what the original has. A changed one differs as its differences
// state. A refused one is not written: it would behave otherwise, or cannot be declared.
const (
	Exact   Status = "exact"
	Changed Status = "changed"
	Refused Status = "refused"
)

// Difference is one field of the original that the import changes. To is nil if the field is lost,
// From if the import adds it.
type Difference struct {
	Path   string `json:"path"`
	From   any    `json:"from"`
	To     any    `json:"to"`
	Reason string `json:"reason,omitempty"`

	hard bool // the workload would behave otherwise
}

// Result is the outcome for one object.
type Result struct {
	Kind        string       `json:"kind"`
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	Status      Status       `json:"status"`
	Source      string       `json:"source,omitempty"` // file that the original is in
	File        string       `json:"file"`             // file of the config repo
	Differences []Difference `json:"differences"`
	Reason      string       `json:"reason"`
	Notes       []string     `json:"notes,omitempty"`
	Adopted     bool         `json:"adopted,omitempty"` // an Application that Argosy has adopted

	reasons []string // short, for the counts of the summary
}

// Mapping lists the identities that replace those of Argo CD, once for all objects.
type Mapping struct {
	Tenants      []TenantMapping      `json:"tenants"`
	Environments []EnvironmentMapping `json:"environments"`
}

// TenantMapping is the tenant of an AppProject.
type TenantMapping struct {
	Project string `json:"project"`
	Tenant  string `json:"tenant"`
}

// EnvironmentMapping is the environment of a tenant on a cluster.
type EnvironmentMapping struct {
	Cluster     string `json:"cluster"` // server, or name, of the destinations
	Tenant      string `json:"tenant"`
	Environment string `json:"environment"`
	By          string `json:"by"` // "engine", "agent" or the server's URL
}

// Counts are the numbers of one kind.
type Counts struct {
	Kind    string `json:"kind"`
	Exact   int    `json:"exact"`
	Changed int    `json:"changed"`
	Refused int    `json:"refused"`
}

// Reason counts the objects that are changed or refused for one reason.
type Reason struct {
	Status  Status `json:"status"`
	Reason  string `json:"reason"`
	Objects int    `json:"objects"`
}

// Report is the outcome of an import.
type Report struct {
	Summary  []Counts `json:"summary"`
	Reasons  []Reason `json:"reasons"`
	Mapping  Mapping  `json:"mapping"`
	Objects  []Result `json:"objects"`
	Commands []string `json:"commands"` // that create the Secrets, without their values
	Notes    []string `json:"notes"`
	// Unread names what could not be read, with the reason. If there is any, the report is not
	// complete.
	Unread []string `json:"unread"`
	// Adoption is the progress of an import with Adopt.
	Adoption *Progress `json:"adoption,omitempty"`
}

// Progress counts the Applications that the deployments of an import adopt.
type Progress struct {
	Adopted  int `json:"adopted"`  // by Argosy
	Declared int `json:"declared"` // in the folder, and not adopted yet
	Later    int `json:"later"`    // left to later batches
}

func compareResults(a, b Result) int {
	return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name), strings.Compare(a.Source, b.Source))
}

// refused counts the objects that are not written, and those that are written in part.
func (r *Report) refused() (n int) {
	for _, o := range r.Objects {
		if o.Status == Refused {
			n++
		}
		for _, d := range o.Differences {
			if d.hard {
				n++
			}
		}
	}
	return n
}

// finish sorts the report and counts.
func (r *Report) finish() {
	slices.SortFunc(r.Objects, compareResults)
	counts := map[string]*Counts{}
	reasons := map[Reason]int{}
	for i := range r.Objects {
		o := &r.Objects[i]
		if o.Differences == nil {
			o.Differences = []Difference{}
		}
		slices.SortStableFunc(o.Differences, func(a, b Difference) int {
			return strings.Compare(a.Path, b.Path)
		})
		c := counts[o.Kind]
		if c == nil {
			c = &Counts{Kind: o.Kind}
			counts[o.Kind] = c
		}
		switch o.Status {
		case Exact:
			c.Exact++
		case Changed:
			c.Changed++
		default:
			c.Refused++
		}
		for _, reason := range o.causes() {
			reasons[Reason{Status: o.Status, Reason: o.Kind + ": " + reason}]++
		}
	}
	r.Summary, r.Reasons = []Counts{}, []Reason{}
	for _, c := range counts {
		r.Summary = append(r.Summary, *c)
	}
	slices.SortFunc(r.Summary, func(a, b Counts) int { return strings.Compare(a.Kind, b.Kind) })
	for reason, n := range reasons {
		reason.Objects = n
		r.Reasons = append(r.Reasons, reason)
	}
	slices.SortFunc(r.Reasons, func(a, b Reason) int {
		return cmp.Or(b.Objects-a.Objects, strings.Compare(a.Reason, b.Reason),
			strings.Compare(string(a.Status), string(b.Status)))
	})
	for _, list := range []*[]string{&r.Commands, &r.Notes, &r.Unread} {
		if *list == nil {
			*list = []string{}
		}
	}
	if r.Mapping.Tenants == nil {
		r.Mapping.Tenants = []TenantMapping{}
	}
	if r.Mapping.Environments == nil {
		r.Mapping.Environments = []EnvironmentMapping{}
	}
}

// causes are the reasons of one object for the counts: of a refused one the hard ones alone.
func (o *Result) causes() []string {
	if o.Status == Exact {
		return nil
	}
	causes := slices.Clone(o.reasons)
	if o.Status == Changed && len(causes) > 0 {
		return causes
	}
	for _, d := range o.Differences {
		if o.Status == Refused && !d.hard {
			continue
		}
		causes = append(causes, general(d.Path))
	}
	if len(causes) == 0 && o.Reason != "" {
		cause, _, _ := strings.Cut(o.Reason, seeAlso+reference)
		causes = []string{cause}
	}
	slices.Sort(causes)
	return slices.Compact(causes)
}

// general is the path of a field without the places in lists and without keys below the values of a
// chart, so that equal causes have equal paths.
func general(path string) string {
	if before, _, found := strings.Cut(path, ".helm.values"); found {
		path = before + ".helm.values"
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] == '[' {
			end := strings.IndexByte(path[i:], ']')
			if end > 0 && strings.Trim(path[i+1:i+end], "0123456789") == "" {
				b.WriteString("[]")
				i += end
				continue
			}
		}
		b.WriteByte(path[i])
	}
	return b.String()
}
