package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/audit"
	"argosy.dev/argosy/fleet/view"
)

// maxEntry bounds a line of an export.
const maxEntry = 1 << 20

func auditCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "audit", Short: "Export the audit log, and verify its chain",
		Example: "  argosy get audit --actor 'token:acme/*' --since 24h\n" +
			"  argosy audit export --to audit.jsonl\n" +
			"  argosy audit verify audit.jsonl",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditExportCommand(a), auditVerifyCommand(a))
	return cmd
}

func auditExportCommand(a *app) *cobra.Command {
	var q query
	var to string
	var after int64
	cmd := &cobra.Command{
		Use: "export", Short: "Write sealed entries as JSON lines, in the order of the chain",
		Long: "Write sealed entries as JSON lines, in the order of the chain, with their hashes.\n" +
			"`argosy audit verify FILE` verifies the file without a control plane. With --to, it\n" +
			"goes on after the last entry of the file.",
		Example: "  argosy audit export > audit.jsonl\n" +
			"  argosy audit export --to audit.jsonl    # again later: adds what is new\n" +
			"  argosy audit export --tenant acme --since 30d",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := q.parse(time.Now()); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			out := a.out
			if to != "" {
				file, last, err := resume(to)
				if err != nil {
					return err
				}
				defer file.Close()
				out, after = file, max(after, last)
			}
			w := bufio.NewWriter(out)
			n := 0
			write := func(_ audit.Entry, raw []byte) error {
				n++
				_, err := w.Write(append(raw, '\n'))
				return err
			}
			err = c.ExportAudit(cmd.Context(), q.filter(), after, write)
			if err := errors.Join(withFlags(err), w.Flush()); err != nil {
				return err
			}
			a.hint("%d entries", n)
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "file to add to, after its last entry (default: stdout)")
	cmd.Flags().Int64Var(&after, "after", 0, "position of the last entry that you have")
	for _, name := range []string{"tenant", "since", "until"} {
		cmd.Flags().StringVar(q.flag(name), name, "", filterHelp[name])
	}
	a.completeFlag(cmd, "tenant")
	return cmd
}

// resume opens a file to add to, without a last line that was cut off, and returns the position of
// its last entry.
func resume(path string) (*os.File, int64, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, err
	}
	var last, end int64
	lines := bufio.NewReaderSize(file, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // a line without its end was cut off: it is written again
		}
		var e audit.Entry
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && e.Position <= last {
			err = errors.New("it is no export of the audit log")
		}
		if err != nil {
			return nil, 0, errors.Join(fmt.Errorf("%s: after entry %d: %w", path, last, err),
				file.Close())
		}
		last, end = e.Position, end+int64(len(line))
	}
	err = file.Truncate(end)
	if err == nil {
		_, err = file.Seek(end, io.SeekStart)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, last, nil
}

func auditVerifyCommand(a *app) *cobra.Command {
	var heads []string
	cmd := &cobra.Command{
		Use: "verify [FILE...]", Short: "Verify the chain of the audit log, or of exports of it",
		Long: "Verify the chain of the audit log, or of exports of it in the order of their\n" +
			"entries. Files need no control plane. It exits with 1 if the chain is broken.",
		Example: "  argosy audit verify\n" +
			"  argosy audit verify 2026.jsonl 2027.jsonl\n" +
			"  argosy audit verify --head 1742:5f0c…",
		RunE: func(cmd *cobra.Command, args []string) error {
			var v audit.Verifier
			for _, text := range heads {
				head, err := audit.ParseHead(text)
				if err != nil {
					return fmt.Errorf("--head: %w", err)
				}
				v.Know(head)
			}
			unsealed := int64(0)
			if len(args) == 0 {
				var err error
				if unsealed, err = a.verifyServed(cmd.Context(), &v); err != nil {
					return err
				}
			}
			for _, path := range args {
				if err := a.verifyFile(path, &v); err != nil {
					return err
				}
			}
			return a.verified(v.End(), unsealed)
		},
	}
	cmd.Flags().StringArrayVar(&heads, "head", nil,
		"POSITION:HASH that was noted before, such as in a replica's log (repeat it for several)")
	return cmd
}

// verifyServed verifies what the control plane exports. A token of a tenant exports its own
// entries, whose chain is verified.
func (a *app) verifyServed(ctx context.Context, v *audit.Verifier) (unsealed int64, err error) {
	c, err := a.connect()
	if err != nil {
		return 0, err
	}
	state, err := c.AuditState(ctx)
	var refused *wire.Refusal
	if errors.As(err, &refused) && refused.NotAllowed() {
		state, err = audit.State{}, nil // of a tenant
	}
	if err != nil {
		return 0, err
	}
	if state.Head.Position > 0 {
		v.Know(state.Head)
		v.After(state.Anchor)
	}
	add := func(e audit.Entry, _ []byte) error {
		v.Add(e)
		return nil
	}
	return state.Unsealed, c.ExportAudit(ctx, view.Filter{}, 0, add)
}

func (a *app) verifyFile(path string, v *audit.Verifier) error {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEntry)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var e audit.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("%s: line %d is no entry of an export: %w", path, n, err)
		}
		v.Add(e)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// verified prints the report.
func (a *app) verified(r audit.Report, unsealed int64) error {
	for _, f := range r.Findings {
		if err := a.printLine("%s", f); err != nil {
			return err
		}
	}
	if r.More > 0 {
		a.hint("%d further findings", r.More)
	}
	if !r.OK() {
		return findings{"the chain of the audit log is broken"}
	}
	if r.Entries == 0 {
		a.hint("no sealed entries")
		return nil
	}
	of := ""
	if r.Tenant != "" {
		of = " of tenant " + string(r.Tenant)
	}
	if unsealed > 0 {
		a.hint("%d entries are not sealed yet", unsealed)
	}
	return a.printLine("%d entries%s verified, from %d to head %s", r.Entries, of,
		r.First.Position, r.Last)
}

// moment reads a time: RFC 3339, a date in UTC, or an age such as 90m, 24h or 30d.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	age, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int
		n, err = strconv.Atoi(days)
		age = time.Duration(n) * 24 * time.Hour
		if n > 36500 {
			err = errors.New("too long")
		}
	}
	if err != nil || age < 0 {
		return time.Time{}, fmt.Errorf(
			"%q is no time: write 2026-11-20T12:00:00Z, 2026-11-20, or an age such as 24h or 30d",
			text)
	}
	return now.Add(-age), nil
}

var auditColumns = []column[audit.Entry]{
	{head: "N", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(strconv.FormatInt(e.N, 10))
	}},
	{head: "AGE", of: func(e audit.Entry, now time.Time) table.Value { return age(e.At, now) }},
	{head: "ACTOR", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Actor)
	}},
	{head: "ACTION", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Action)
	}},
	{head: "SUBJECT", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Subject)
	}},
	{head: "TENANT", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Tenant)
	}},
	{head: "OUTCOME", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.State(e.Outcome)
	}},
	{head: "ENGINE", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Engine)
	}},
	{head: "REVISION", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Revision.Short())
	}},
	{head: "PULL", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		if e.Pull == 0 {
			return table.Value{}
		}
		return table.Text("#" + strconv.Itoa(e.Pull))
	}},
	{head: "OPERATION", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Operation)
	}},
	{head: "SEALED", wide: true, of: func(e audit.Entry, _ time.Time) table.Value {
		if e.Position == 0 {
			return table.Text("not yet")
		}
		return table.Text(strconv.FormatInt(e.Position, 10))
	}},
	{head: "DETAIL", of: func(e audit.Entry, _ time.Time) table.Value {
		return table.Text(e.Detail)
	}},
}

func entryNumber(e audit.Entry) string { return strconv.FormatInt(e.N, 10) }
