package main

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

const (
	matrixWidth  = 80 // columns of characters, after which environments continue below
	versionWidth = 20 // of a version; the rest is cut off
)

func matrixCommand(a *app) *cobra.Command {
	var filter view.Filter
	var tenant, environment, deployment, labels string
	var all bool
	limit := 0
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Show which version runs in which environment",
		Long: "A row is a deployment, a column an environment, from the first stage to the last. The\n" +
			"version is the tag of the deployment's image, else the target revision, else the commit\n" +
			"that runs. A * marks a version that most environments of the deployment do not run.",
		Example: "  argosy matrix --tenant acme\n" +
			"  argosy matrix -l team=payments\n" +
			"  argosy matrix --deployment checkout -A",
		Args: exactly(),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.Flags().StringVar(&tenant, "tenant", "", filterHelp["tenant"])
	cmd.Flags().StringVar(&environment, "environment", "", filterHelp["environment"])
	cmd.Flags().StringVar(&deployment, "deployment", "", filterHelp["deployment"])
	for _, name := range []string{"tenant", "environment", "deployment"} {
		a.completeFlag(cmd, name)
	}
	cmd.Flags().StringVarP(&labels, "selector", "l", "",
		"only deployments with these labels, as kubectl: team=a,tier in (prod,staging)")
	cmd.Flags().BoolVarP(&all, "all-tenants", "A", false,
		"of all tenants, although the context has a tenant")
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum number of deployments (0: all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if filter.Labels, err = fleet.ParseLabelSelector(labels); err != nil {
			return err
		}
		c, target, err := a.connectTo()
		if err != nil {
			return err
		}
		if tenant == "" && !all {
			tenant = target.Tenant
		}
		filter.Tenant, filter.Environment = fleet.TenantName(tenant),
			fleet.EnvironmentName(environment)
		filter.Deployment = fleet.DeploymentName(deployment)
		m, err := c.Matrix(cmd.Context(), filter, limit)
		if err != nil {
			return withFlags(err)
		}
		if done, err := a.structured(out, m); done {
			return err
		}
		if len(m.Rows) == 0 {
			a.hint("no deployments match; `argosy get deployments` lists them")
			return nil
		}
		return a.writeMatrix(m, tenant == "")
	}
	return cmd
}

// writeMatrix writes tables that fit into matrixWidth, one below the other, each with as many
// environments as fit.
func (a *app) writeMatrix(m view.Matrix, tenants bool) error {
	first := table.Table{Heads: []string{"DEPLOYMENT"}}
	for _, row := range m.Rows {
		name := string(row.Deployment)
		if tenants {
			name = string(row.Tenant) + "/" + name
		}
		first.Rows = append(first.Rows, []table.Value{table.Text(name)})
	}
	marked := false
	for at := 0; at == 0 || at < len(m.Environments); {
		t := table.Table{Heads: first.Heads}
		for _, row := range first.Rows {
			t.Rows = append(t.Rows, append([]table.Value{}, row...))
		}
		if at > 0 {
			if err := a.printLine(""); err != nil {
				return err
			}
		}
		width := widthOf(t.Heads[0], t.Rows, 0)
		for begin := at; at < len(m.Environments); at++ {
			values := make([][]table.Value, len(m.Rows))
			for i, row := range m.Rows {
				v := versionValue(row.Versions[at])
				marked = marked || row.Versions[at] != nil && row.Versions[at].Unusual
				values[i] = []table.Value{v}
			}
			head := strings.ToUpper(string(m.Environments[at]))
			if width += 2 + widthOf(head, values, 0); width > matrixWidth && at > begin {
				break
			}
			t.Heads = append(t.Heads[:len(t.Heads):len(t.Heads)], head)
			for i := range t.Rows {
				t.Rows[i] = append(t.Rows[i], values[i][0])
			}
		}
		if err := t.Write(a.out, a.colour()); err != nil {
			return err
		}
		if len(m.Environments) == 0 {
			break
		}
	}
	if marked {
		a.hint("* most environments of the deployment run another version")
	}
	if m.HiddenEnvironments > 0 {
		a.hint("%d more environments are not shown; use --tenant or --environment",
			m.HiddenEnvironments)
	}
	return nil
}

func widthOf(head string, rows [][]table.Value, column int) int {
	width := utf8.RuneCountInString(head)
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[column].Text))
	}
	return width
}

// versionValue is the version, with what is wrong about it.
func versionValue(v *view.MatrixVersion) table.Value {
	if v == nil {
		return table.Value{}
	}
	text := v.Version
	if utf8.RuneCountInString(text) > versionWidth {
		text = string([]rune(text)[:versionWidth-1]) + "…"
	}
	if text == "" {
		text = "?"
	}
	if v.Unusual {
		text += "*"
	}
	value := table.Value{Text: text, Tone: table.Plain}
	switch {
	case v.Apply == mirror.ApplyFailed || v.Apply == mirror.ApplyConflict:
		value.Text, value.Tone = text+" "+string(v.Apply), table.Bad
	case v.Health != mirror.HealthHealthy:
		value.Text, value.Tone = text+" "+string(v.Health), table.ToneOf(string(v.Health))
	case v.Sync != mirror.SyncSynced:
		value.Text, value.Tone = text+" "+string(v.Sync), table.ToneOf(string(v.Sync))
	}
	return value
}
