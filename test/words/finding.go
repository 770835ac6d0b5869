package words

import (
	"fmt"
	"strings"
)

// Finding is one violation.
type Finding struct {
	Path    string
	Line    int
	Word    string // the banned word as written, or the name of the rule: "columns", "opening"
	Instead string
	Context string // the source line, for allow.txt and the reader
}

func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: write %s\n\t%s", f.Path, f.Line, f.Word, f.Instead, f.Context)
}

// Exception is one line of allow.txt: in the files below Path, Word may be used on lines that
// contain Part.
type Exception struct {
	Path, Word, Part, Reason string
}

// ParseExceptions reads lines of the form "path | word | part of the line | reason". A path ends
// with / for a folder, "*" matches every path or every line.
func ParseExceptions(text string) ([]Exception, error) {
	var all []Exception
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, " | ")
		if len(fields) != 4 || strings.TrimSpace(fields[3]) == "" {
			return nil, fmt.Errorf("allow.txt:%d: want path | word | part of the line | reason",
				i+1)
		}
		for j := range fields {
			fields[j] = strings.TrimSpace(fields[j])
		}
		all = append(all, Exception{fields[0], fields[1], fields[2], fields[3]})
	}
	return all, nil
}

func (e Exception) permits(f Finding) bool {
	path := e.Path == "*" || e.Path == f.Path || below(f.Path, e.Path)
	return path && (e.Word == "*" || strings.EqualFold(e.Word, f.Word)) &&
		(e.Part == "*" || strings.Contains(f.Context, e.Part))
}

// below reports whether a path is in a folder, which ends with /.
func below(path, folder string) bool {
	return strings.HasSuffix(folder, "/") && strings.HasPrefix(path, folder)
}

// Filter returns the findings that no exception permits, and the exceptions that permit none.
func Filter(all []Finding, exceptions []Exception) (left []Finding, unused []Exception) {
	used := make([]bool, len(exceptions))
	for _, f := range all {
		permitted := false
		for i, e := range exceptions {
			if e.permits(f) {
				used[i], permitted = true, true
			}
		}
		if !permitted {
			left = append(left, f)
		}
	}
	for i, e := range exceptions {
		if !used[i] {
			unused = append(unused, e)
		}
	}
	return left, unused
}
