package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// quoted is a command in running text; typed is one on a line of its own, as a person would type
// it.
var (
	quoted = regexp.MustCompile("`(?:[A-Z_]+=\\S+ )*(?:bin/)?argosy ([a-z][^`]*)`")
	typed  = regexp.MustCompile(
		`(?m)^\s*(?:\S*\$ )?(?:[A-Z_]+=\S+ )*(?:bin/)?argosy ([a-z][^\n]*)$`)
	fenced = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	word   = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// TestEveryDocumentedCommandLineExists compares every command line in the docs, the charts, the
// examples and the demo with the existing commands and flags.
func TestEveryDocumentedCommandLineExists(t *testing.T) {
	root, n := root(&app{}), 0
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd("completion")
	for path, text := range readByPeople(t) {
		for _, line := range commandLines(path, text) {
			n++
			wrong := unknownPart(root, line, strings.HasSuffix(path, "CHANGELOG.md"))
			if wrong != "" {
				t.Errorf("%s: `argosy %s`: %s", path, line, wrong)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d command lines were found; there are more", n)
	}
}

// TestEveryCommandIsExplained walks all commands: each has an example, one at the top has a group
// in the help, and each is on a page of the docs.
func TestEveryCommandIsExplained(t *testing.T) {
	documented := map[string]bool{}
	top := root(&app{})
	for path, text := range readByPeople(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, line := range commandLines(path, text) {
			for cmd, _, err := top.Find(strings.Fields(line)); err == nil && cmd != nil; {
				documented[cmd.CommandPath()] = true
				cmd = cmd.Parent()
			}
		}
	}
	n := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			if c.Hidden {
				continue
			}
			n++
			if c.Short == "" || !strings.Contains(c.Example, "argosy ") {
				t.Errorf("%s has no description or no example", c.CommandPath())
			}
			if cmd == top && c.GroupID == "" && c.Name() != "version" {
				t.Errorf("%s is in no group of the help", c.CommandPath())
			}
			if !documented[c.CommandPath()] {
				t.Errorf("%s is on no page of the docs", c.CommandPath())
			}
			walk(c)
		}
	}
	walk(top)
	if n < 50 {
		t.Errorf("%d commands were found; there are more", n)
	}
}

// readByPeople are the texts, by path.
func readByPeople(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, from := range []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md",
		"docs", "charts", "examples", "test/demo", "cmd/argosy"} {
		err := filepath.WalkDir(filepath.Join("../..", from),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || strings.HasSuffix(path, "_test.go") {
					return err
				}
				switch filepath.Ext(path) {
				case ".md", ".txt", ".yaml", ".yml", ".go":
					b, err := os.ReadFile(path)
					texts[path] = string(b)
					return err
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

// commandLines returns the command lines of a text, without the program's name and without pipes,
// chained commands or comments.
func commandLines(path, text string) (lines []string) {
	var found [][]string
	found = append(found, quoted.FindAllStringSubmatch(text, -1)...)
	if filepath.Ext(path) == ".md" {
		for _, block := range fenced.FindAllStringSubmatch(text, -1) {
			found = append(found, typed.FindAllStringSubmatch(block[1], -1)...)
		}
	} else if !strings.HasPrefix(path, "../../charts/argosy-engine/files") {
		found = append(found, typed.FindAllStringSubmatch(text, -1)...)
	}
	for _, m := range found {
		line, _, _ := strings.Cut(m[1], " #")
		line, _, _ = strings.Cut(line, "  ") // an explanation in the next column
		line, _, _ = strings.Cut(line, "|")
		line, _, _ = strings.Cut(line, ">")
		line, _, _ = strings.Cut(line, "\\")
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// unknownPart returns the part of a command line that does not exist. A command with subcommands
// takes no other word. former allows former names of commands.
func unknownPart(root *cobra.Command, line string, former bool) string {
	var words, flags []string
	for _, w := range strings.Fields(line) {
		if strings.HasPrefix(w, "-") {
			flags = append(flags, w)
		} else if len(flags) == 0 {
			words = append(words, w)
		}
	}
	cmd, rest, err := root.Find(words)
	switch {
	case err != nil:
		return err.Error()
	case cmd.Hidden && former:
		return ""
	case cmd.Hidden:
		return cmd.Short
	}
	if cmd.HasAvailableSubCommands() && len(rest) > 0 {
		if word.MatchString(rest[0]) {
			return cmd.CommandPath() + " has no " + rest[0]
		}
		return "" // of whichever is put there
	}
	if len(rest) > 0 && word.MatchString(rest[0]) && cmd.Args != nil && cmd.Args(cmd, nil) == nil {
		if err := cmd.Args(cmd, rest); err != nil {
			return err.Error()
		}
	}
	for _, f := range flags {
		name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
		name = strings.Trim(name, "[]`,.…")
		if name == "" || name == "help" || name == "h" {
			continue
		}
		known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil
		if !strings.HasPrefix(f, "--") && len(name) == 1 {
			known = known || cmd.Flags().ShorthandLookup(name) != nil
		}
		if !known {
			return cmd.CommandPath() + " has no flag " + f
		}
	}
	return ""
}
