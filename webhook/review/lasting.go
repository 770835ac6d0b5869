package review

import (
	"fmt"
	"regexp"
	"strings"

	"argosy.dev/argosy/fleet/forge"
)

var gitCommit = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)

// Lasting returns the title and the Markdown of the pull request that makes rollbacks lasting.
func Lasting(l forge.Lasting) (title, body string) {
	title = fmt.Sprintf("Keep %s in %d environments at earlier revisions", l.Deployment,
		len(l.Rollbacks))
	var b strings.Builder
	b.WriteString("A person rolled back what is listed here, and its automation is paused until Git " +
		"asks for another revision. Merge this pull request to declare the revisions that run now: " +
		"automation then goes on.\n\n| Environment | Revision | By | Note |\n|---|---|---|---|\n")
	for _, r := range l.Rollbacks {
		if len(l.Rollbacks) == 1 {
			title = fmt.Sprintf("Keep %s in %s at %s", l.Deployment, r.Environment,
				plain(shortened(r.Revision), 40))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(string(r.Environment)), code(r.Revision),
			code(r.By), code(r.Note))
	}
	b.WriteString("\nIs the fix ready? Then close this pull request and declare the fix. Argosy opens no " +
		"second one for the same rollbacks, and closes this one when they end otherwise.\n")
	return title, b.String()
}

// shortened shortens each commit of a list.
func shortened(revision string) string {
	all := strings.Split(revision, ",")
	for i, one := range all {
		if gitCommit.MatchString(one) {
			all[i] = one[:7]
		}
	}
	return strings.Join(all, ",")
}
