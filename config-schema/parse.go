package configschema

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a value of the parsed file with its place in the text.
type node = *yaml.Node

const scalarNode = yaml.ScalarNode

// parse reads the one document of a file and refuses what makes YAML mean more than it shows. nil:
// nothing can be decoded; it was told why.
func (d *decoder) parse(b []byte) node {
	if line := directive(b); line > 0 {
		d.lineProblem(line, 1, codeYAMLFeature, "directives (%YAML, %TAG) are not read",
			"remove the line")
		return nil
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(b))
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && emptyDocument(&doc) {
		if d.inValues {
			d.fileProblem(codeEmptyFile, "the text holds no value",
				"write key: value, or remove the field")
		} else {
			d.fileProblem(codeEmptyFile, "the file holds no declaration",
				"write the declaration, or remove the file")
		}
		return nil
	}
	if err == nil {
		err = dec.Decode(&second)
		if err == nil {
			message, fix := "the file holds several documents",
				"put each declaration into its own file"
			if d.inValues {
				message, fix = "the text holds several documents",
					"remove the line --- and write all values as one map"
			}
			d.lineProblem(max(second.Line, 1), 1, codeYAMLFeature, message, fix)
			return nil
		}
	}
	if !errors.Is(err, io.EOF) {
		d.syntax(b, err)
		return nil
	}
	root := doc.Content[0]
	d.bangs = loneBangs(b)
	if !d.plainYAML(root, 1) {
		return nil
	}
	return root
}

func emptyDocument(doc node) bool {
	return len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode &&
		doc.Content[0].Tag == "!!null" && doc.Content[0].Value == ""
}

// directive is the line of a %directive, or 0. A '%' can begin no line of a block's content, which
// is indented.
func directive(b []byte) int {
	if bytes.HasPrefix(b, []byte("%")) {
		return 1
	}
	if i := bytes.Index(b, []byte("\n%")); i >= 0 {
		return bytes.Count(b[:i], []byte("\n")) + 2
	}
	return 0
}

// plainYAML reports whether the tree holds only maps with text keys, lists and untagged scalars,
// and is not too deep. It is checked on the tree, where an alias is one node whatever it would
// expand to.
func (d *decoder) plainYAML(n node, depth int) bool {
	if depth > maxDepth {
		d.lineProblem(n.Line, n.Column, codeTooDeep, "maps and lists are nested deeper than "+
			strconv.Itoa(maxDepth), d.flatten())
		return false
	}
	if feature := d.featureOf(n); feature != "" {
		d.lineProblem(n.Line, n.Column, codeYAMLFeature, feature+" are not read",
			"write the value itself")
		return false
	}
	ok := true
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if c.Kind != yaml.ScalarNode {
				d.lineProblem(c.Line, c.Column, codeYAMLFeature,
					"maps and lists as keys are not read", "write a plain word as the key")
				ok = false
				continue
			}
			if c.Tag == "!!merge" {
				d.lineProblem(c.Line, c.Column, codeYAMLFeature, "merge keys are not read",
					"write the fields themselves")
				ok = false
				continue
			}
		}
		ok = d.plainYAML(c, depth+1) && ok
	}
	return ok
}

// featureOf names the feature of YAML that a node uses and declarations do not have, or "". A lone
// "!" is a tag that the tree does not show: it is found by where the node begins, for no untagged
// value begins with it.
func (d *decoder) featureOf(n node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return "aliases (*name)"
	case n.Anchor != "":
		return "anchors (&name)"
	case n.Style&yaml.TaggedStyle != 0, d.bangs[position{n.Line, n.Column}]:
		return "tags (!name)"
	}
	return ""
}

type position struct{ line, column int }

// loneBangs are the places of a text where a "!" stands alone. nil for nearly every file.
func loneBangs(text []byte) map[position]bool {
	if !bytes.Contains(text, []byte("!")) {
		return nil
	}
	places, line := map[position]bool{}, 1
	for l := range bytes.Lines(text) {
		column, before := 1, ' '
		for i, r := range string(l) {
			if r == '!' && strings.ContainsRune(" \t[{,", before) &&
				(i+1 == len(l) || strings.IndexByte(" \t\r\n[]{},", l[i+1]) >= 0) {
				places[position{line, column}] = true
			}
			before = r
			column++
		}
		line++
	}
	return places
}

// syntaxHelp turns the parser's words into what to do.
var syntaxHelp = []struct{ words, message, fix string }{
	{"mapping values are not allowed", "a ':' stands where none may",
		"put the value in quotes, or mend the indentation"},
	{"cannot start any token", "a value begins with a tab or with a character that YAML reserves",
		"indent with blanks; put a value that begins with @, `, % or | in quotes"},
	{"tab character", "a tab is used for indentation", "indent with blanks"},
	{"could not find expected ':'", "a key has no ':'", "write key: value"},
	{"did not find expected key", "the indentation is wrong, or a quote or bracket is not closed",
		"indent the fields of one map alike; the mistake is in the block that begins here"},
	{"did not find expected '-' indicator", "the entries of a list are not indented alike",
		"put each '-' into the same column"},
	{"did not find expected ',' or", "a '[' or '{' is not closed, or a ',' is missing",
		"close it, or write the list over several lines"},
	{"unexpected end of stream", "a quote is not closed", "close it"},
	{"unknown anchor", "aliases (*name) are not read",
		"write the value itself; put a text that begins with '*' in quotes"},
	{"exceeded max depth", "maps and lists are nested too deep",
		"flatten the file; a declaration needs 8 levels"},
	{"unknown escape character",
		"a backslash in double quotes begins an escape that YAML does not know",
		"use single quotes"},
}

func (d *decoder) syntax(b []byte, err error) {
	text, line := strings.TrimPrefix(err.Error(), "yaml: "), 1
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, text = n, after
		}
	}
	if _, after, ok := strings.Cut(text, "unknown anchor '"); ok { // told without a line
		name, _, _ := strings.Cut(after, "'")
		line = bytes.Count(b[:max(bytes.Index(b, []byte("*"+name)), 0)], []byte("\n")) + 1
	}
	line = min(max(line, 1), bytes.Count(b, []byte("\n"))+1)
	code, message, fix := codeSyntax, "the file is not valid YAML",
		"look at this line and the one before it"
	if d.inValues {
		message = "the text is not valid YAML"
	}
	for _, h := range syntaxHelp {
		if strings.Contains(text, h.words) {
			message, fix = h.message, h.fix
			break
		}
	}
	switch {
	case strings.Contains(text, "unknown anchor"):
		code = codeYAMLFeature
	case strings.Contains(text, "exceeded max depth"):
		code, fix = codeTooDeep, d.flatten()
	}
	d.lineProblem(line, 1, code, message, fix)
}

func (d *decoder) flatten() string {
	if d.inValues {
		return "flatten the values; they may have " + strconv.Itoa(maxDepth) + " levels"
	}
	return "flatten the file; a declaration needs 8 levels"
}

// child is the value of a key, or nil.
func child(n node, key string) node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
