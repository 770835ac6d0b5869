package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/wire"
	configschema "argosy.dev/argosy/config-schema"
	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/access"
)

// canCommand answers whether somebody may do something.
func canCommand(a *app) *cobra.Command {
	var repo string
	cmd := &cobra.Command{
		Use:   "can [PERSON] VERB THING",
		Short: "Show whether a person may do something, and which entry grants it",
		Long: "Shows whether you, or PERSON, may do VERB to THING, and the line of the file that grants\n" +
			"it. PERSON is an entry as files name people, or several separated by commas: somebody\n" +
			"with all of them. With --repo it answers by the files of a checkout, without a control\n" +
			"plane. The exit code is 1 if the answer is no. docs/roles.md lists verbs and things.",
		Example: "  argosy can sync application/acme/web@prod\n" +
			"  argosy can github:alice approve tenant/acme\n" +
			"  argosy can group:acme,group:on-call stop fleet --repo .",
		ValidArgsFunction: completeCan,
	}
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 && len(args) != 3 {
			return errors.New("can takes VERB THING, or PERSON VERB THING")
		}
		return nil
	}
	cmd.Flags().StringVar(&repo, "repo", "", "folder of a checkout of the config repo")
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		person := ""
		if len(args) == 3 {
			person, args = args[0], args[1:]
		}
		answer, err := a.can(cmd, repo, person, args[0], args[1])
		if err != nil {
			return err
		}
		if done, err := a.structured(out, answer); done {
			return errors.Join(err, refusal(answer))
		}
		at := ""
		if answer.Line > 0 {
			at = fmt.Sprintf(" at %s:%d", answer.Grant.Path, answer.Line)
		}
		word := "no"
		if answer.Allowed {
			word = "yes"
		}
		if err := a.printLine("%s: %s%s", word, answer.Why, at); err != nil {
			return err
		}
		return refusal(answer)
	}
	return cmd
}

// refusal is the exit code of a "no".
func refusal(a wire.Answer) error {
	if a.Allowed {
		return nil
	}
	return findings{}
}

func completeCan(_ *cobra.Command, args []string, begun string) ([]string,
	cobra.ShellCompDirective) {
	var words []string
	if len(args) < 2 {
		for _, v := range access.Verbs() {
			if strings.HasPrefix(string(v), begun) {
				words = append(words, string(v))
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) can(cmd *cobra.Command, repo, person, verb, thing string) (wire.Answer, error) {
	if repo != "" {
		return canOffline(repo, person, verb, thing)
	}
	c, err := a.connect()
	if err != nil {
		return wire.Answer{}, err
	}
	return c.Can(cmd.Context(), person, verb, thing)
}

// canOffline answers by the files of a checkout.
func canOffline(repo, entries, verb, text string) (wire.Answer, error) {
	if entries == "" {
		return wire.Answer{}, errors.New("with --repo, name the person: a checkout does not know who " +
			"you are")
	}
	person, err := access.PersonOf(strings.Split(entries, ",")...)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("%s: %w", entries, err)
	}
	thing, err := access.ParseThing(text)
	if err != nil {
		return wire.Answer{}, err
	}
	facts, files, err := accessFiles(repo)
	if err != nil {
		return wire.Answer{}, err
	}
	answer := wire.Answer{Subject: entries, Verb: verb, Thing: thing.String(),
		Decision: facts.Decide(person, access.Verb(verb), thing)}
	if content, ok := files[answer.Grant.Path]; ok {
		answer.Line, _ = configschema.Locate(content, answer.Grant.Field)
	}
	return answer, nil
}

// accessFiles reads the files of a checkout that give roles. A file with a problem is an error: its
// last good state is known to the control plane alone.
func accessFiles(repo string) (facts access.Facts, files map[string][]byte, err error) {
	paths, err := filepath.Glob(filepath.Join(repo, "fleet", "tenants", "*.yaml"))
	if err != nil {
		return facts, nil, err
	}
	paths = append(paths, filepath.Join(repo, "fleet", "access.yaml"))
	files = map[string][]byte{}
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue // without access.yaml, no person has a role of the platform
		}
		if err != nil {
			return facts, nil, err
		}
		name, err := filepath.Rel(repo, p)
		if err != nil {
			return facts, nil, err
		}
		name = filepath.ToSlash(name)
		doc := configschema.Decode(configschema.File{Path: name, Bytes: content})
		if i := slices.IndexFunc(doc.Problems, func(p fleet.Problem) bool {
			return p.Severity == fleet.SeverityError
		}); i >= 0 || doc.Declaration == nil {
			return facts, nil, fmt.Errorf("%s has a problem; run `argosy validate %s`", name, repo)
		}
		files[name] = content
		if doc.Declaration.Access != nil {
			facts.Access = doc.Declaration
		} else {
			facts.Tenants = append(facts.Tenants, doc.Declaration)
		}
	}
	if len(files) == 0 {
		return facts, nil, fmt.Errorf("%s holds no fleet/access.yaml and no file in fleet/tenants/: is "+
			"it a checkout of the config repo?", repo)
	}
	return facts, files, nil
}
