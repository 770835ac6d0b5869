package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/cmd/argosy/server"
	"argosy.dev/argosy/cmd/argosy/settings"
	"argosy.dev/argosy/fleet/printable"
)

func serveCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the control plane",
		Long: "Reads the config repo, writes to the engines, and serves the API and the page,\n" +
			"until it gets SIGTERM or Ctrl-C. Any number of replicas may share one database:\n" +
			"leases divide the work. `argosy schema settings` prints the schema of\n" +
			"argosy.yaml.",
		Example: "  argosy serve -f argosy.yaml",
		Args:    exactly(),
	}
	load := settingsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		v, err := server.New(cmd.Context(), s, s.Log.Logger(a.err), versionText())
		if err != nil {
			return err
		}
		return v.Run(cmd.Context())
	}
	return cmd
}

func migrateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Migrate the database's schema to this version",
		Long: "Migrations only add, so the previous version keeps working beside this one and\n" +
			"after a rollback. `argosy serve` does the same when it starts, unless\n" +
			"database.migrate is off: then run this first, with the same settings.",
		Example: "  argosy migrate -f argosy.yaml",
		Args:    exactly(),
	}
	load := settingsFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		version, err := server.Migrate(cmd.Context(), s.Database, s.Log.Logger(a.err))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "the schema is at version %d\n", version)
		return err
	}
	return cmd
}

func doctorCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check everything the control plane needs and report what to fix",
		Long: "Reads the settings, the database, the config repo, the rules that the Git host\n" +
			"enforces on its branch, the secrets and every engine that the config repo\n" +
			"declares, and writes to none of them.\n\n" +
			"  ok           as it should be\n" +
			"  warning      something to fix; Argosy works without\n" +
			"  blocking     Argosy does not work, or a promise does not hold: exit code 1\n" +
			"  not checked  Argosy's account may not read it; the permission is named",
		Example: "  argosy doctor -f argosy.yaml\n  argosy doctor -f argosy.yaml -o json",
		Args:    exactly(),
	}
	load := settingsFlag(cmd)
	out := addFormat(cmd, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		return a.examine(server.Doctor(cmd.Context(), s), out.value)
	}
	return cmd
}

// checked is one check of the doctor's in -o json.
type checked struct {
	Subject string       `json:"subject"`
	State   server.Level `json:"state"` // ok, warning, blocking, not checked
	Text    string       `json:"text"`
}

// examine prints the doctor's checks.
func (a *app) examine(checks []server.Check, format string) error {
	count, all := map[server.Level]int{}, []checked{}
	for _, c := range checks {
		one := checked{Subject: c.Subject, State: c.Level(), Text: c.Text()}
		count[one.State]++
		all = append(all, one)
		if format == "json" {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "%-11s  %-28s  %s\n", one.State,
			printable.Line(one.Subject), printable.Line(one.Text)); err != nil {
			return err
		}
	}
	if format == "json" {
		if err := writeJSON(a.out, all); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%d blocking, %s", count[server.LevelBlocking],
		plural(count[server.LevelWarning], "warning"))
	if n := count[server.LevelUnknown]; n > 0 {
		text += fmt.Sprintf(", %d not checked", n)
	}
	switch {
	case count[server.LevelBlocking] > 0:
		return findings{text}
	case count[server.LevelOK] < len(all):
		a.hint("%s", text)
	}
	return nil
}

func rebuildCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Drop the mirror; the next start rebuilds it from Git and the engines",
		Long: "The mirror is a cache: declarations are restored from Git, placements, holds and\n" +
			"stops from the objects on the engines, and nothing is written to any engine\n" +
			"meanwhile. The list of revisions starts empty. Decisions and history stay:\n" +
			"releases, stops, tokens, operations, the audit log, pull requests. Stop every\n" +
			"replica first.",
		Example: "  argosy rebuild -f argosy.yaml --yes",
		Args:    exactly(),
	}
	load := settingsFlag(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := load()
		if err != nil {
			return err
		}
		if !yes {
			return errors.New(
				"rebuild drops the mirror and the list of revisions; confirm with --yes")
		}
		if err := server.Reset(cmd.Context(), s.Database, s.Log.Logger(a.err)); err != nil {
			return err
		}
		a.hint("the mirror is empty; `argosy serve` rebuilds it")
		return nil
	}
	return cmd
}

// settingsFlag adds -f, and returns the function that reads the settings.
func settingsFlag(cmd *cobra.Command) func() (settings.Settings, error) {
	file := cmd.Flags().StringP("file", "f", "argosy.yaml", "settings of the control plane")
	return func() (settings.Settings, error) { return settings.Load(*file) }
}
