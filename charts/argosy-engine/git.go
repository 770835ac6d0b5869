// Package argosyengine provides the files that the chart mounts.
package argosyengine

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed files/git
var files embed.FS

// gitMount is the mount path of Git's settings in the repo-server.
const gitMount = "/app/config/argosy-git"

// Git returns Git's settings for the repo-server, by file name.
func Git() map[string]string {
	all := map[string]string{}
	for _, name := range []string{"gitconfig", "clones.gitconfig", "post-checkout"} {
		text, err := files.ReadFile("files/git/" + name)
		if err != nil {
			panic(err) // embedded
		}
		all[name] = string(text)
	}
	return all
}

// WriteGit writes Git's settings into dir, for a repo-server that runs outside a container, and
// returns the value of its GIT_CONFIG_GLOBAL.
func WriteGit(dir string) (string, error) {
	all, err := fs.Sub(files, "files/git")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	names, err := fs.Glob(all, "*")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		content, err := fs.ReadFile(all, name)
		if err != nil {
			return "", err
		}
		text := strings.ReplaceAll(string(content), gitMount, dir)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "gitconfig"), nil
}

// ControllerEnvironment limits, like the chart, the capacity of the application-controller that
// unresponsive clusters occupy.
var ControllerEnvironment = []string{
	"ARGOCD_K8S_TLS_HANDSHAKE_TIMEOUT=5s",
	"ARGOCD_K8S_TCP_TIMEOUT=30s",
	"ARGOCD_K8S_SERVER_SIDE_TIMEOUT=30s",
	"ARGOCD_CLUSTER_SYNC_RETRY_TIMEOUT_DURATION=3m",
	"ARGOCD_APPLICATION_CONTROLLER_STATUS_PROCESSORS=100",
	"ARGOCD_APPLICATION_CONTROLLER_OPERATION_PROCESSORS=50",
}
