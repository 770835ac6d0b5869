package policy

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"argosy.dev/argosy/fleet"
)

// expression is one CEL text over declarations of a kind.
type expression struct {
	kind fleet.Kind
	text string
	want *cel.Type // bool or string
}

// mistake is an error in an expression at a position; both count from 1, 0 is the whole.
type mistake struct {
	line, column int
	message, fix string
}

// compile compiles an expression, or returns its mistakes.
func (x expression) compile() (program cel.Program, mistakes []mistake) {
	defer func() {
		if recover() != nil { // a panic of the compiler, not of our code
			program, mistakes = nil,
				[]mistake{
					{message: "the expression cannot be compiled", fix: "write it in another way"}}
		}
	}()
	e, err := envOf(x.kind)
	if err != nil {
		return nil, []mistake{{message: err.Error(), fix: "report it: the fault is Argosy's"}}
	}
	tree, issues := e.Compile(x.text)
	if issues.Err() != nil {
		return nil, x.explain(issues.Errors())
	}
	if mistakes := x.review(tree.NativeRep(), tree.OutputType()); len(mistakes) > 0 {
		return nil, mistakes
	}
	if cost, err := e.EstimateCost(tree, estimator{}); err != nil || cost.Max > MostAtWorst {
		return nil,
			[]mistake{
				{
					message: fmt.Sprintf(
						"the expression costs up to %d over the largest declarations; %d is allowed", cost.Max, MostAtWorst),
					fix: "nest fewer loops, or use shorter texts"}}
	}
	program, err = e.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(Most),
		cel.InterruptCheckFrequency(100))
	if err != nil {
		return nil, []mistake{{message: err.Error(), fix: "fix the expression"}}
	}
	return program, nil
}

// review rejects expressions that compile but cannot mean what they seem to.
func (x expression) review(tree *ast.AST, result *cel.Type) []mistake {
	var found []mistake
	if !result.IsExactType(x.want) {
		found = append(found, mistake{message: fmt.Sprintf("the expression gives %s, not %s",
			typeName(result), typeName(x.want)), fix: howToBe(x.want)})
	}
	report := func(e ast.Expr, message, fix string) {
		at := tree.SourceInfo().GetStartLocation(e.ID())
		found = append(found, mistake{at.Line(), at.Column() + 1, message, fix})
	}
	ast.PreOrderVisit(tree.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.StructKind:
			report(e, "a rule cannot create objects",
				"use the fields of declaration, tenant, environments and applications")
		case ast.CallKind:
			if whole(tree, e.AsCall()) {
				report(e, "objects and maps are not compared as a whole",
					"compare their fields, or their labels one by one")
			}
		}
	}))
	return found
}

// whole reports whether a call compares objects or maps, which would never be equal.
func whole(tree *ast.AST, c ast.CallExpr) bool {
	args := c.Args()
	switch c.FunctionName() {
	case operators.Equals, operators.NotEquals:
	case operators.In:
		args = args[:1]
	default:
		return false
	}
	return slices.ContainsFunc(args, func(a ast.Expr) bool {
		return composite(tree.GetType(a.ID()))
	})
}

func composite(t *types.Type) bool {
	return t.Kind() == types.StructKind || t.Kind() == types.MapKind ||
		slices.ContainsFunc(t.Parameters(), composite)
}

func howToBe(want *cel.Type) string {
	if want == cel.BoolType {
		return "write what must hold of a declaration, e.g. " +
			"declaration.spec.source.targetRevision != \"HEAD\""
	}
	return "write a text, e.g. \"namespaces begin with \" + tenant.name + \"-\""
}

// place returns the position of a CEL error.
func place(at common.Location) (line, column int) {
	if at == nil || at.Line() < 1 || at.Column() < 0 {
		return 0, 0
	}
	return at.Line(), at.Column() + 1
}
