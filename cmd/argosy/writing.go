package main

import "github.com/spf13/cobra"

// writing are the commands that need no control plane.
func (a *app) writing() []*cobra.Command {
	return nil
}
