package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/checkout"
	"argosy.dev/argosy/cmd/argosy/server"
	"argosy.dev/argosy/cmd/argosy/table"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/argocd/instance"
	"argosy.dev/argosy/fleet/mirror"
	"argosy.dev/argosy/fleet/view"
)

func ringsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rings",
		Short: "Decide about the upgrades of Argo CD, ring by ring",
		Example: "  argosy get rings\n  argosy rings pause stable --reason 'incident 42'\n" +
			"  argosy rings differences canary\n  argosy rings digest argocd/3.5.7",
		Args: exactly("COMMAND"),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("name a command: pause, resume, return, differences, approve or digest")
		},
	}
	cmd.AddCommand(
		ringCommand(a, "pause", "Begin to change no further engine of a ring",
			"Engines under way go on. The pause survives restarts, and ends with\n"+
				"`argosy rings resume`.", "paused", "end it with `argosy rings resume %s`"),
		ringCommand(a, "resume", "Let a ring go on that is paused, halted or returned",
			"The engines of a halted ring begin again with the declared version.", "resumed",
			"`argosy describe ring %s` shows its progress"),
		ringCommand(a, "return", "Halt a ring, and give its engines their last version again",
			"It returns the engines whose gates have not passed and whose last version Argosy\n"+
				"has installed. CustomResourceDefinitions stay. Declare an earlier version in\n"+
				"fleet/fleet.yaml to return a ring that is Done.", "returned",
			"`argosy rings resume %s` begins again"),
		ringDifferencesCommand(a), ringApproveCommand(a), ringDigestCommand(a))
	return cmd
}

func ringCommand(a *app, verb, short, long, done, hint string) *cobra.Command {
	d := mirror.RingDecision{}
	cmd := &cobra.Command{
		Use: verb + " RING", Short: short, Long: long, Args: exactly("RING"),
		Example: "  argosy rings " + verb + " canary --reason 'incident 42'",
	}
	cmd.Flags().StringVar(&d.Reason, "reason", "", "reason, for the record")
	a.completeOne(cmd, "rings")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		d.Ring = args[0]
		r, err := c.DecideRing(cmd.Context(), verb, d)
		if err != nil {
			return err
		}
		err = a.printLine("%s ring %s", done, r.Name)
		a.hint(hint, r.Name)
		return err
	}
	return cmd
}

func ringDigestCommand(a *app) *cobra.Command {
	var caFile string
	cmd := &cobra.Command{
		Use: "digest SOURCE", Short: "Print the digest of Argo CD's manifests",
		Long: "SOURCE is a directory, the https:// URL of a file .yaml or .tar.gz, or the oci://\n" +
			"reference of an artifact. The digest is the SHA-256 of a list with one line for each\n" +
			"file, in the order of the paths' bytes: its SHA-256, two spaces, its path. This\n" +
			"prints the same for a directory without argosy:\n\n" +
			"  cd DIR && find . -type f -printf '%P\\0' | LC_ALL=C sort -z |\n" +
			"    xargs -0 sha256sum | sha256sum",
		Example: "  argosy rings digest argocd/3.5.7\n" +
			"  argosy rings digest https://git.example.com/files/argocd-3.5.7.tar.gz\n" +
			"  argosy rings digest oci://ghcr.io/acme/argo-cd:3.5.7",
		Args: exactly("SOURCE"),
	}
	cmd.Flags().StringVar(&caFile, "ca-file", "", "trust the certificates of this file too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		files, err := manifestsAt(cmd.Context(), args[0], caFile)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("%s has no files", args[0])
		}
		return a.printLine("%s", fleet.ManifestsDigest(files))
	}
	return cmd
}

func manifestsAt(ctx context.Context, argument, caFile string) (map[string][]byte, error) {
	m := fleet.ManifestsAt(argument)
	if m.Directory != "" {
		return checkout.Folder(m.Directory, ".")
	}
	d, err := server.Downloader(caFile)
	if err != nil {
		return nil, err
	}
	return d.Files(ctx, m)
}

// ringProblems returns the problems of the directories that the Fleet's rings name, and the sources
// that it has not read, since they are elsewhere.
func ringProblems(dir string, files []configschema.File) (problems []fleet.Problem,
	unread []string) {
	for _, f := range files {
		d := configschema.Decode(f).Declaration
		if d == nil || d.Fleet == nil {
			continue
		}
		for i, r := range d.Fleet.Rings {
			if source := r.Manifests.String(); r.Manifests.Directory == "" {
				if !slices.Contains(unread, source) {
					unread = append(unread, source)
				}
				continue
			}
			found, err := checkout.Folder(dir, r.Manifests.Directory)
			if errors.Is(err, fs.ErrNotExist) {
				found, err = nil, nil
			}
			if p := instance.Problem(d, i, found, err); p != nil {
				problems = append(problems, *p)
			}
		}
		configschema.Place(problems, func(string) []byte { return f.Bytes })
	}
	return problems, unread
}

var ringColumns = []column[mirror.Ring]{
	{head: "NAME", of: func(r mirror.Ring, _ time.Time) table.Value { return table.Text(r.Name) }},
	{head: "VERSION", of: func(r mirror.Ring, _ time.Time) table.Value {
		return table.Text(r.Version)
	}},
	{head: "STATE", of: func(r mirror.Ring, _ time.Time) table.Value { return ringState(r) }},
	{head: "ENGINES", of: func(r mirror.Ring, _ time.Time) table.Value {
		n := 0
		for _, i := range r.Engines {
			if (i.Digest == r.Digest || i.AgentOnly()) &&
				(i.AgentDigest == "" || i.AgentDigest == r.AgentDigest) &&
				i.State == mirror.InstanceRunning {
				n++
			}
		}
		return table.Text(fmt.Sprintf("%d/%d", n, len(r.Engines)))
	}},
	{head: "AGE", of: func(r mirror.Ring, now time.Time) table.Value { return age(r.Since, now) }},
	{head: "MESSAGE", of: func(r mirror.Ring, _ time.Time) table.Value {
		return table.Text(r.Message)
	}},
	{head: "DIGEST", wide: true, of: func(r mirror.Ring, _ time.Time) table.Value {
		return table.Text(r.Digest)
	}},
}

func ringState(r mirror.Ring) table.Value {
	v := table.Text(r.State)
	switch r.State {
	case mirror.RingDone:
		v.Tone = table.Good
	case mirror.RingHalted, mirror.RingUnavailable:
		v.Tone = table.Bad
	default:
		v.Tone = table.Busy
	}
	return v
}

var instanceColumns = []column[mirror.Instance]{
	{head: "ENGINE", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.Engine)
	}},
	{head: "VERSION", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.Version)
	}},
	{head: "STATE", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.State)
	}},
	{head: "AGENT", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.AgentVersion)
	}},
	{head: "DIFFERENT", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(shadowCounts(i.Shadow))
	}},
	{head: "BEFORE", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.GoodVersion)
	}},
	{head: "AGE", of: func(i mirror.Instance, now time.Time) table.Value {
		return age(i.Since, now)
	}},
	{head: "MESSAGE", of: func(i mirror.Instance, _ time.Time) table.Value {
		return table.Text(i.Message)
	}},
}

func describeRing(ctx context.Context, c *client.Client, name string) (description, error) {
	all, err := c.Rings(ctx, view.Filter{Name: name}, 0)
	if err != nil {
		return description{}, err
	}
	if len(all) == 0 {
		return description{}, fmt.Errorf("the Fleet has no ring %q in effect; `argosy get rings` "+
			"lists them", name)
	}
	r, now := all[0], time.Now()
	paused := ""
	if r.PausedAt != nil {
		paused = strings.TrimSpace("by " + r.PausedBy + " " + r.PauseReason)
	}
	return description{item: r, sections: []section{
		{facts: []table.Fact{
			{Name: "Ring", Value: table.Text(r.Name)},
			{Name: "Argo CD", Value: table.Text(r.Version)},
			{Name: "Manifests", Value: table.Text(r.Digest)},
			{Name: "Agents", Value: table.Text(strings.TrimSpace(r.AgentVersion + " " +
				r.AgentDigest))},
			{Name: "State", Value: ringState(r)},
			{Name: "Since", Value: age(r.Since, now)},
			{Name: "Message", Value: table.Text(r.Message)},
			{Name: "Paused", Value: table.Text(paused)},
		}},
		{title: "Engines", table: tabulate(r.Engines, instanceColumns, false, now)},
	}}, nil
}
