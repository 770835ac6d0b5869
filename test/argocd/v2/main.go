// Command v2 is Argo CD 2.14 as the tests run it: the application controller, the repo-server and
// the helper by which Git asks for a password, all unchanged. Argo CD's own command links seven
// more components, a third of what it compiles.
package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	controller "github.com/argoproj/argo-cd/v2/cmd/argocd-application-controller/commands"
	askpass "github.com/argoproj/argo-cd/v2/cmd/argocd-git-ask-pass/commands"
	reposerver "github.com/argoproj/argo-cd/v2/cmd/argocd-repo-server/commands"
)

// components maps the name that the process is started by to its command.
var components = map[string]func() *cobra.Command{
	"argocd-application-controller": controller.NewCommand,
	"argocd-repo-server":            reposerver.NewCommand,
	"argocd-git-ask-pass":           askpass.NewCommand,
}

func main() {
	name := filepath.Base(os.Args[0])
	if set := os.Getenv("ARGOCD_BINARY_NAME"); set != "" {
		name = set
	}
	component, found := components[name]
	if !found {
		_, _ = os.Stderr.WriteString("this build of Argo CD has no " + name + "\n")
		os.Exit(2)
	}
	if err := component().Execute(); err != nil {
		os.Exit(1)
	}
}
