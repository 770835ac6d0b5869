package policy

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/ext"

	"argosy.dev/argosy/fleet"
)

// Limits of an expression's form. A rule that needs more is several rules.
const (
	mostDepth   = 64   // of nested parentheses and calls
	mostText    = 4096 // characters
	mostNesting = 3    // loops within loops
)

// functions lists the functions of CEL's standard library that a rule may use: comparisons, and
// functions of texts and lists. It excludes dyn(), which would hide misspelt fields until an
// evaluation, and all functions of time.
var functions = []string{
	"!_", "-_", "@in", "@not_strictly_false", "_!=_", "_%_", "_&&_", "_*_", "_+_", "_-_", "_/_",
	"_<=_", "_<_", "_==_", "_>=_", "_>_", "_?_:_", "_[_]", "_||_",
	"contains", "endsWith", "int", "matches", "size", "startsWith", "string",
}

// provider gives the compiler the shapes. missed, if set, records unknown fields, so that explain
// can suggest the nearest.
type provider struct {
	types.Provider
	misses *[]miss
}

// miss is a field that a shape does not have.
type miss struct {
	shape *shape
	field string
}

// FindStructType returns a shape.
func (p provider) FindStructType(name string) (*types.Type, bool) {
	if s := shapes.byName[name]; s != nil {
		return types.NewTypeTypeWithParam(s.of), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames lists a shape's fields.
func (p provider) FindStructFieldNames(name string) ([]string, bool) {
	if s := shapes.byName[name]; s != nil {
		return s.names(), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType returns a shape's field.
func (p provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	s := shapes.byName[name]
	if s == nil {
		return p.Provider.FindStructFieldType(name, field)
	}
	if f := s.byName[field]; f != nil {
		return f.cel, true
	}
	if p.misses != nil {
		*p.misses = append(*p.misses, miss{s, field})
	}
	return nil, false
}

// variables lists those of a declaration of a kind, in the order of the documentation.
func variables(kind fleet.Kind) []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("declaration", shapes.kinds[kind].of),
		cel.Variable("tenant", shapes.tenant.of),
		cel.Variable("environments", types.NewListType(shapes.environment.of)),
		cel.Variable("applications", types.NewListType(shapes.application.of)),
		cel.Variable("path", types.StringType),
	}
}

var variableNames = []string{"declaration", "tenant", "environments", "applications", "path"}

// newEnv returns the environment in which expressions over declarations of a kind are compiled.
func newEnv(kind fleet.Kind, missed *[]miss) (*cel.Env, error) {
	used := make([]*env.Function, len(functions))
	for i, name := range functions {
		used[i] = &env.Function{Name: name}
	}
	options := []cel.EnvOption{
		cel.StdLib(cel.StdLibSubset(&env.LibrarySubset{IncludeFunctions: used})),
		cel.OptionalTypes(), ext.Bindings(),
		cel.ParserRecursionLimit(mostDepth), cel.ParserExpressionSizeLimit(mostText),
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateHomogeneousAggregateLiterals(),
			cel.ValidateComprehensionNestingLimit(mostNesting)),
		func(e *cel.Env) (*cel.Env, error) {
			return cel.CustomTypeProvider(provider{e.CELTypeProvider(), missed})(e)
		},
		cel.CustomTypeAdapter(adapter{}),
	}
	e, err := cel.NewCustomEnv(append(options, variables(kind)...)...)
	if err != nil {
		return nil, fmt.Errorf("policy: the environment of rules over a %s: %w", kind, err)
	}
	return e, nil
}

var (
	envsMu sync.Mutex
	envs   = map[fleet.Kind]*cel.Env{}
)

// envOf returns the environment of a kind, created once.
func envOf(kind fleet.Kind) (*cel.Env, error) {
	envsMu.Lock()
	defer envsMu.Unlock()
	if e := envs[kind]; e != nil {
		return e, nil
	}
	e, err := newEnv(kind, nil)
	if err != nil {
		return nil, err
	}
	envs[kind] = e
	return e, nil
}
