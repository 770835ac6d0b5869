package words

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns = 100
	tabColumns = 4
)

var sqlWords = []string{
	"SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "CREATE", "ALTER", "DROP", "COPY", "LOCK",
	"SET",
	"NOTIFY", "FROM", "WHERE", "AND", "OR", "ORDER", "GROUP", "JOIN", "LEFT", "VALUES", "ON",
	"RETURNING", "TRUNCATE",
}

var (
	catalogue = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)Case_?[0-9]+`)
	message   = regexp.MustCompile(`[A-Za-z]{2,} [A-Za-z%]`)
	sql       = regexp.MustCompile(`^\s*(?:--[^\n]*\n\s*)*(?:` + strings.Join(sqlWords, "|") +
		`)\b`)
	directive = regexp.MustCompile(`^//(?:[a-z]+:|nolint|line |extern |export )`)
)

// Source checks a Go file: its names, comments, messages and columns.
func (g *Glossary) Source(file string, src []byte) ([]Finding, error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	c := &sourceCheck{Glossary: g, file: file, set: set, lines: strings.Split(string(src), "\n")}
	c.found = g.fileName(file)
	c.names(tree)
	for _, group := range tree.Comments {
		c.comment(group)
	}
	c.messages(tree)
	c.columns(tree)
	return c.found, nil
}

type sourceCheck struct {
	*Glossary
	file  string
	set   *token.FileSet
	lines []string
	found []Finding
}

func (c *sourceCheck) add(pos token.Pos, word, instead string) {
	line := c.set.Position(pos).Line
	c.found = append(c.found, Finding{c.file, line, word, instead, context(c.lines, line)})
}

func (c *sourceCheck) name(id *ast.Ident, banned map[string]string) {
	if id == nil || id.Name == "_" {
		return
	}
	for _, word := range camelWords(id.Name) {
		if instead, found := banned[word]; found {
			c.add(id.Pos(), word, instead)
		}
	}
}

// names checks every name that the file declares.
func (c *sourceCheck) names(tree *ast.File) {
	c.name(tree.Name, c.decl)
	depth := 0 // of function bodies
	var visit func(ast.Node) bool
	local := func() map[string]string {
		if depth > 0 {
			return c.Glossary.name
		}
		return c.decl
	}
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.name(n.Name, c.decl)
			if catalogue.MatchString(n.Name.Name) {
				c.add(n.Pos(), n.Name.Name, "a sentence that names the behaviour")
			}
			c.function(n.Recv, n.Type)
			if n.Body != nil {
				depth++
				ast.Inspect(n.Body, visit)
				depth--
			}
			return false
		case *ast.FuncLit:
			c.function(nil, n.Type)
			depth++
			ast.Inspect(n.Body, visit)
			depth--
			return false
		case *ast.FuncType:
			c.function(nil, n)
			return false
		case *ast.StructType:
			c.fields(n.Fields, c.decl)
		case *ast.InterfaceType:
			c.fields(n.Methods, c.decl)
		case *ast.TypeSpec:
			c.name(n.Name, c.decl)
		case *ast.ValueSpec:
			for _, id := range n.Names {
				c.name(id, local())
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, left := range n.Lhs {
					if id, ok := left.(*ast.Ident); ok {
						c.name(id, c.Glossary.name)
					}
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				for _, left := range []ast.Expr{n.Key, n.Value} {
					if id, ok := left.(*ast.Ident); ok {
						c.name(id, c.Glossary.name)
					}
				}
			}
		case *ast.LabeledStmt:
			c.name(n.Label, c.Glossary.name)
		}
		return true
	}
	ast.Inspect(tree, visit)
}

func (c *sourceCheck) function(receiver *ast.FieldList, signature *ast.FuncType) {
	lists := []*ast.FieldList{receiver, signature.TypeParams, signature.Params, signature.Results}
	for _, list := range lists {
		c.fields(list, c.Glossary.name)
	}
}

func (c *sourceCheck) fields(list *ast.FieldList, banned map[string]string) {
	if list == nil {
		return
	}
	for _, field := range list.List {
		for _, id := range field.Names {
			c.name(id, banned)
		}
	}
}

func (c *sourceCheck) comment(group *ast.CommentGroup) {
	var text []string
	for _, line := range group.List {
		for part := range strings.SplitSeq(line.Text, "\n") {
			if directive.MatchString(part) {
				part = ""
			}
			part = strings.TrimPrefix(strings.TrimPrefix(part, "//"), "/*")
			text = append(text, strings.TrimPrefix(strings.TrimSuffix(part, "*/"), " "))
		}
	}
	first := c.set.Position(group.Pos()).Line
	c.found = append(c.found, c.prose(c.file, first, strings.Join(text, "\n"), c.lines)...)
}

// messages checks the string literals that hold more than one word and no SQL.
func (c *sourceCheck) messages(tree *ast.File) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			text := strings.Trim(n.Value, "`\"")
			if n.Kind != token.STRING || !message.MatchString(text) || sql.MatchString(text) ||
				strings.HasPrefix(n.Value, "`json:") {
				return true
			}
			first := c.set.Position(n.Pos()).Line
			for _, m := range c.inText(n.Value) {
				word := n.Value[m[0]:m[1]]
				line := first + strings.Count(n.Value[:m[0]], "\n")
				c.found = append(c.found, Finding{
					Path: c.file, Line: line, Word: strings.Join(strings.Fields(word), " "),
					Instead: c.replacement(word), Context: context(c.lines, line),
				})
			}
		}
		return true
	})
}

// columns checks that code and comments end at the margin. The lines of a raw string, a line that a
// long string literal fills, a directive and a comment of one word are exempt.
func (c *sourceCheck) columns(tree *ast.File) {
	free := map[int]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		from, to := c.set.Position(literal.Pos()), c.set.Position(literal.End())
		if strings.HasPrefix(literal.Value, "`") && from.Line != to.Line {
			for line := from.Line; line <= to.Line; line++ {
				free[line] = true
			}
		} else if width(literal.Value) > 40 &&
			width(c.lines[from.Line-1][:to.Column-1]) > maxColumns-8 {
			free[from.Line] = true
		}
		return true
	})
	for i, line := range c.lines {
		if free[i+1] || width(line) <= maxColumns ||
			directive.MatchString(strings.TrimSpace(line)) ||
			unbroken(line) {
			continue
		}
		c.found = append(c.found, Finding{
			Path: c.file, Line: i + 1, Word: "columns",
			Instead: "at most 100 columns, a tab counted as 4", Context: context(c.lines, i+1),
		})
	}
}

// unbroken reports a comment of a single word, such as an address.
func unbroken(line string) bool {
	text, ok := strings.CutPrefix(strings.TrimSpace(line), "//")
	return ok && !strings.Contains(strings.TrimSpace(text), " ")
}

func width(line string) int {
	return utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
}
