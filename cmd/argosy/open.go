package main

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"argosy.dev/argosy/api/client"
)

// openCommand opens the page of the control plane in the person's browser.
func openCommand(a *app) *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "open [KIND NAME]",
		Short: "Open the page of the control plane, or of one object, in a browser",
		Example: "  argosy open\n" +
			"  argosy open application acme/checkout@prod-eu\n" +
			"  argosy open rollout acme/checkout --print",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactly("KIND", "NAME")(cmd, args)
		},
		ValidArgsFunction: a.completeKinds(func(r resource) bool {
			return pageOf[r.plural] != nil
		}),
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the URL, and open nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, err := a.target()
		if target.Server == "" {
			return err // a token is not needed: the browser has its own session
		}
		server, err := client.CheckServer(target.Server)
		if err != nil {
			return err
		}
		if len(args) == 2 {
			parts, err := partsOfPage(args[0], args[1])
			if err != nil {
				return err
			}
			for i, p := range parts {
				parts[i] = url.PathEscape(p)
			}
			server = server.JoinPath(parts...)
		}
		if err := a.printLine("%s", server); err != nil || printOnly {
			return err
		}
		program, before := browser()
		if err := exec.CommandContext(cmd.Context(), program,
			append(before, server.String())...).Run(); err != nil {
			return fmt.Errorf("failed to start a browser by %s: %w; open the URL yourself, or set "+
				"BROWSER", program, err)
		}
		return nil
	}
	return cmd
}

// browser returns the program that opens a URL on this system, and its arguments before the URL:
// $BROWSER, or what the system has for that.
func browser() (program string, before []string) {
	if own := strings.Fields(os.Getenv("BROWSER")); len(own) > 0 {
		return own[0], own[1:]
	}
	switch runtime.GOOS {
	case "darwin":
		return "open", nil
	case "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	}
	return "xdg-open", nil
}

// pageOf returns the parts of the path of an object's page, by kind.
var pageOf = map[string]func(name string) ([]string, error){
	"applications": func(name string) ([]string, error) {
		id, err := applicationID(name)
		return []string{"tenants", string(id.Tenant), "applications", string(id.Deployment),
			string(id.Environment)}, err
	},
	"environments": func(name string) ([]string, error) {
		tenant, short, err := twoParts("environment", name)
		return []string{"tenants", string(tenant), "environments", short}, err
	},
	"rollouts": func(name string) ([]string, error) {
		tenant, short, err := twoParts("deployment", name)
		return []string{"tenants", string(tenant), "rollouts", short}, err
	},
	"tenants": func(name string) ([]string, error) { return []string{"tenants", name}, nil },
	"engines": func(name string) ([]string, error) { return []string{"engines", name}, nil },
	"pulls":   func(name string) ([]string, error) { return []string{"pulls", name}, nil },
}

func partsOfPage(word, name string) ([]string, error) {
	kind, err := findResource(word)
	if err != nil {
		return nil, err
	}
	page := pageOf[kind.plural]
	if page == nil {
		return nil, fmt.Errorf("%s have no page each: run `argosy open`, or `argosy get %s`",
			kind.plural, kind.plural)
	}
	return page(name)
}
