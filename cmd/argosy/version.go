package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/cobra"
)

// versionTime bounds the question for the control plane's version.
const versionTime = 5 * time.Second

// versions are those of the program and of the control plane that it is configured for.
type versions struct {
	Client buildVersion   `json:"client"`
	Server *serverVersion `json:"server,omitempty"`
}

type buildVersion struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

type serverVersion struct {
	URL     string `json:"url"`
	Version string `json:"version,omitempty"`
	Error   string `json:"error,omitempty"`
}

func versionCommand(a *app) *cobra.Command {
	var clientOnly bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the versions of this program and of the control plane",
		Example: "  argosy version\n  argosy version --client\n" +
			"  argosy version -o jsonpath='{.server.version}'", Args: exactly(),
	}
	out := addFormat(cmd, "table", "json", "yaml")
	cmd.Flags().BoolVar(&clientOnly, "client", false, "do not ask the control plane")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		v := versions{Client: buildVersion{Version: versionText(), Go: runtime.Version(),
			Platform: runtime.GOOS + "/" + runtime.GOARCH}}
		if !clientOnly {
			v.Server = a.serverVersion(cmd.Context())
		}
		if done, err := a.structured(out, v); done {
			return err
		}
		if _, err := fmt.Fprintf(a.out, "argosy %s %s %s\n", v.Client.Version, v.Client.Go,
			v.Client.Platform); err != nil || v.Server == nil {
			return err
		}
		if v.Server.Error != "" {
			a.hint("control plane %s: its version is unknown: %s", v.Server.URL, v.Server.Error)
			return nil
		}
		return a.printLine("control plane %s at %s", v.Server.Version, v.Server.URL)
	}
	return cmd
}

// serverVersion asks the control plane; nil if none is configured. It is no error that the control
// plane does not answer: the program's version is known without it.
func (a *app) serverVersion(ctx context.Context) *serverVersion {
	c, target, err := a.connectTo()
	if target.Server == "" {
		return nil
	}
	v := &serverVersion{URL: target.Server}
	if err != nil {
		v.Error = err.Error()
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	who, err := c.WhoAmI(ctx)
	if err != nil {
		v.Error = err.Error()
	}
	v.Version = who.Version
	return v
}
