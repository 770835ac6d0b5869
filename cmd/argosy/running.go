package main

import "github.com/spf13/cobra"

// running are the commands that run the control plane.
func (a *app) running() []*cobra.Command {
	return nil
}
