// Package jq checks jq path expressions of tenants, which Argo CD evaluates in its
// application-controller to delete ignored fields of a resource before it compares. It is the only
// package that imports the jq library, which is Argo CD's own.
//
// An expression passes if Argo CD can evaluate it in time and memory in proportion to the resource.
// Argo CD gives each evaluation one second (controller.ignore.normalizer.jq.timeout), but that
// limit interrupts neither a single built-in function nor an allocation, and the controller serves
// other tenants. Check therefore accepts listed constructs only:
//   - paths: ., .key, .[index], .[from:to], .[], select(...), the pipe, the comma, //, if, ?;
//   - in the conditions of select and if also comparisons, and, or, not and functions that neither
//     allocate more than they read nor evaluate without bound;
//   - a bounded number of steps, of alternatives by commas, and of iterations in conditions, since
//     each of the latter two multiplies the cost.
//
// It refuses everything else: .. (a resource may be 10,000 levels deep, and each place below costs
// its depth), definitions and variables (recursion), reduce, foreach, range, limit, arithmetic
// ("x" * 1e9), input, the environment, modules and time.
package jq

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/itchyny/gojq"
)

// MaxText is the greatest number of bytes of an expression.
const MaxText = 1024

const (
	maxSteps        = 64  // keys, indices and iterations of paths
	maxAlternatives = 64  // values that commas make of one
	maxPattern      = 128 // instructions of a regular expression
)

// Check returns the reason why an expression is refused, or nil.
func Check(expression string) error {
	if len(expression) > MaxText {
		return fmt.Errorf("the expression is %d bytes long; at most %d are allowed",
			len(expression), MaxText)
	}
	query, err := gojq.Parse(expression)
	if err != nil {
		return fmt.Errorf("the expression does not parse: %w", err)
	}
	c, err := path(query)
	if err != nil {
		return err
	}
	if err := c.bounded(); err != nil {
		return err
	}
	// Argo CD puts the text between the parentheses of del(...): a comment or a separator in it
	// would change the meaning.
	deletion, err := gojq.Parse("del(" + expression + ")")
	if err != nil || deletion.String() != "del("+query.String()+")" {
		return errors.New("the expression is not one path; comments are not allowed")
	}
	code, err := gojq.Compile(deletion)
	if err != nil {
		return fmt.Errorf("the expression does not compile: %w", err)
	}
	out, ok := code.Run(map[string]any{}).Next()
	failure, failed := out.(error)
	if failed && strings.HasPrefix(failure.Error(), "invalid path") {
		return fmt.Errorf("the expression is no path: %w", failure)
	}
	if _, object := out.(map[string]any); ok && !failed && !object {
		return errors.New("the expression removes the whole resource")
	}
	return nil
}

// cost bounds the evaluation of a query. A resource of n values has at most n places for each
// alternative, each of at most as many steps as the query has; an iteration in a condition can
// repeat all of them.
type cost struct{ alternatives, steps, iterations int }

var (
	one  = cost{alternatives: 1}
	step = cost{alternatives: 1, steps: 1}
)

func (c cost) then(d cost) cost {
	return cost{min(c.alternatives*d.alternatives, maxAlternatives+1), c.steps + d.steps,
		c.iterations + d.iterations}
}

// or is the cost of both queries over the same input.
func (c cost) or(d cost) cost {
	return cost{min(c.alternatives+d.alternatives, maxAlternatives+1), c.steps + d.steps,
		c.iterations + d.iterations}
}

func (c cost) bounded() error {
	switch {
	case c.steps > maxSteps:
		return fmt.Errorf("the expression has %d steps; at most %d are allowed", c.steps, maxSteps)
	case c.iterations > 1:
		return errors.New("the conditions of the expression iterate more than once; use any(...) " +
			"for all but one")
	case c.alternatives > maxAlternatives:
		return fmt.Errorf("the expression has more than %d alternatives", maxAlternatives)
	}
	return nil
}

func refused(what string) error {
	return fmt.Errorf("%s is not allowed in an ignored path: its cost has no bound in the size of "+
		"the resource, or it is no path", what)
}

// plain refuses the parts of a query that only programs have.
func plain(q *gojq.Query) error {
	switch {
	case q.Meta != nil || len(q.Imports) > 0:
		return refused("a module")
	case len(q.FuncDefs) > 0:
		return refused("def")
	case q.Term == nil && q.Right == nil:
		return errors.New("the expression is empty")
	}
	return nil
}

// path returns the cost of a query whose results are places in the resource.
func path(q *gojq.Query) (cost, error) {
	if err := plain(q); err != nil {
		return cost{}, err
	}
	if q.Term != nil {
		return pathTerm(q.Term)
	}
	switch q.Op {
	case gojq.OpPipe:
		return both(q, path, cost.then)
	case gojq.OpComma, gojq.OpAlt:
		return both(q, path, cost.or)
	}
	return cost{}, refused("operator " + q.Op.String())
}

func both(q *gojq.Query, judge func(*gojq.Query) (cost, error),
	combine func(a, b cost) cost) (cost, error) {
	left, err := judge(q.Left)
	if err != nil {
		return cost{}, err
	}
	right, err := judge(q.Right)
	return combine(left, right), err
}

func pathTerm(t *gojq.Term) (cost, error) {
	c, err := pathBase(t)
	for _, s := range t.SuffixList {
		if err != nil {
			return cost{}, err
		}
		var more cost
		more, err = suffix(s, false)
		c = c.then(more)
	}
	return c, err
}

func pathBase(t *gojq.Term) (cost, error) {
	switch t.Type {
	case gojq.TermTypeIdentity:
		return one, nil
	case gojq.TermTypeIndex:
		return index(t.Index)
	case gojq.TermTypeQuery:
		return path(t.Query)
	case gojq.TermTypeIf:
		return conditional(t.If, path)
	case gojq.TermTypeFunc:
		return pathFunc(t.Func)
	}
	return cost{}, refused(clip(t.String()))
}

func pathFunc(f *gojq.Func) (cost, error) {
	switch fmt.Sprintf("%s/%d", f.Name, len(f.Args)) {
	case "select/1":
		return value(f.Args[0])
	case "empty/0", "first/0", "last/0", "arrays/0", "objects/0", "iterables/0", "scalars/0",
		"strings/0", "numbers/0", "booleans/0", "nulls/0", "values/0":
		return one, nil
	case "first/1":
		return path(f.Args[0])
	}
	return cost{}, refused(nameOf(f))
}

// suffix returns the cost of a suffix of a term. An iteration of a path descends, so that all its
// results together are no larger than its input; one of a condition repeats the condition's input.
func suffix(s *gojq.Suffix, condition bool) (cost, error) {
	switch {
	case s.Bind != nil:
		return cost{}, refused("a variable")
	case s.Index != nil:
		return index(s.Index)
	case s.Iter && condition:
		return cost{alternatives: 1, iterations: 1}, nil
	case s.Iter:
		return step, nil
	}
	return one, nil
}

func index(i *gojq.Index) (cost, error) {
	if i.Str != nil && len(i.Str.Queries) > 0 {
		return cost{}, refused("a text with an interpolation")
	}
	c := step
	for _, q := range []*gojq.Query{i.Start, i.End} {
		if q == nil {
			continue
		}
		n, err := literals(q)
		if err != nil {
			return cost{}, fmt.Errorf("in an index: %w", err)
		}
		c = c.then(cost{alternatives: n})
	}
	return c, nil
}

func conditional(i *gojq.If, branch func(*gojq.Query) (cost, error)) (cost, error) {
	c, err := value(i.Cond)
	if err != nil {
		return cost{}, err
	}
	branches := []*gojq.Query{i.Then}
	for _, e := range i.Elif {
		more, err := value(e.Cond)
		if err != nil {
			return cost{}, err
		}
		c, branches = c.or(more), append(branches, e.Then)
	}
	if i.Else != nil {
		branches = append(branches, i.Else)
	}
	var all cost
	for _, b := range branches {
		more, err := branch(b)
		if err != nil {
			return cost{}, err
		}
		all = all.or(more)
	}
	return c.then(all), nil
}

// value returns the cost of a query in a condition.
func value(q *gojq.Query) (cost, error) {
	if err := plain(q); err != nil {
		return cost{}, err
	}
	if q.Term != nil {
		return valueTerm(q.Term)
	}
	switch q.Op {
	case gojq.OpComma, gojq.OpAlt:
		return both(q, value, cost.or)
	case gojq.OpPipe, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe, gojq.OpAnd,
		gojq.OpOr:
		return both(q, value, cost.then)
	}
	return cost{}, refused("operator " + q.Op.String())
}

func valueTerm(t *gojq.Term) (cost, error) {
	c, err := valueBase(t)
	for _, s := range t.SuffixList {
		if err != nil {
			return cost{}, err
		}
		var more cost
		more, err = suffix(s, true)
		c = c.then(more)
	}
	return c, err
}

func valueBase(t *gojq.Term) (cost, error) {
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse,
		gojq.TermTypeNumber:
		return one, nil
	case gojq.TermTypeString, gojq.TermTypeUnary, gojq.TermTypeArray:
		return one, literalTerm(t)
	case gojq.TermTypeIndex:
		return index(t.Index)
	case gojq.TermTypeQuery:
		return value(t.Query)
	case gojq.TermTypeIf:
		return conditional(t.If, value)
	case gojq.TermTypeFunc:
		return valueFunc(t.Func)
	}
	return cost{}, refused(clip(t.String()))
}

func valueFunc(f *gojq.Func) (cost, error) {
	switch fmt.Sprintf("%s/%d", f.Name, len(f.Args)) {
	case "not/0", "type/0", "length/0", "empty/0", "first/0", "last/0", "arrays/0", "objects/0",
		"iterables/0", "scalars/0", "strings/0", "numbers/0", "booleans/0", "nulls/0", "values/0",
		"ascii_downcase/0", "ascii_upcase/0":
		return one, nil
	case "select/1", "first/1":
		return value(f.Args[0])
	case "has/1", "startswith/1", "endswith/1", "ltrimstr/1", "rtrimstr/1", "contains/1",
		"inside/1":
		return one, literal(f.Args[0])
	case "IN/1":
		_, err := literals(f.Args[0])
		return one, err
	case "test/1":
		return one, pattern(f.Args[0])
	case "any/0", "all/0":
		return one, nil
	case "any/1", "all/1":
		return single(f.Args[0])
	case "any/2", "all/2":
		generated, err := single(f.Args[0])
		if err != nil {
			return cost{}, err
		}
		condition, err := single(f.Args[1])
		return generated.then(condition), err
	}
	return cost{}, refused(nameOf(f))
}

func nameOf(f *gojq.Func) string { return clip(fmt.Sprintf("%s/%d", f.Name, len(f.Args))) }

// single is the cost of an argument of any and all, which return one value: an iteration in it
// repeats nothing after it. A second one counts still, since it repeats the first.
func single(q *gojq.Query) (cost, error) {
	c, err := value(q)
	if err == nil && c.iterations > 0 {
		c.iterations--
	}
	return c, err
}

// literal accepts a query that does not depend on the resource.
func literal(q *gojq.Query) error {
	if err := plain(q); err != nil {
		return err
	}
	if q.Term == nil || len(q.Term.SuffixList) > 0 {
		return errors.New("only a text, a number or a list of them is allowed there")
	}
	return literalTerm(q.Term)
}

// literals accepts literals that are joined by commas, and returns their number.
func literals(q *gojq.Query) (int, error) {
	if q.Term == nil && q.Op == gojq.OpComma && len(q.FuncDefs) == 0 {
		left, err := literals(q.Left)
		if err != nil {
			return 0, err
		}
		right, err := literals(q.Right)
		return left + right, err
	}
	return 1, literal(q)
}

func literalTerm(t *gojq.Term) error {
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return nil
	case gojq.TermTypeString:
		if len(t.Str.Queries) == 0 {
			return nil
		}
		return refused("a text with an interpolation")
	case gojq.TermTypeUnary:
		if t.Unary.Term.Type == gojq.TermTypeNumber {
			return nil
		}
	case gojq.TermTypeArray:
		if t.Array.Query == nil {
			return nil
		}
		_, err := literals(t.Array.Query)
		return err
	}
	return errors.New("only a text, a number or a list of them is allowed there")
}

// pattern accepts a regular expression whose match costs little for each byte. A repetition with a
// count makes a short expression a large one.
func pattern(q *gojq.Query) error {
	if err := literal(q); err != nil {
		return err
	}
	if q.Term.Type != gojq.TermTypeString {
		return errors.New("test takes a text")
	}
	re, err := syntax.Parse(q.Term.Str.Str, syntax.Perl)
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	program, err := syntax.Compile(re.Simplify())
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	if n := len(program.Inst); n > maxPattern {
		return fmt.Errorf("the regular expression compiles to %d instructions; at most %d are "+
			"allowed: avoid repetitions with a count", n, maxPattern)
	}
	return nil
}

// clip shortens a part of an expression for a message.
func clip(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}
