package policy

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"argosy.dev/argosy/fleet"
)

const (
	mostMessage = 300  // characters of a policy's message for one declaration
	mostKept    = 1000 // compiled expressions; beyond it the cache is emptied
	// patience backs up the cost limit, which normally ends an evaluation long before.
	patience = 10 * time.Second
)

// Judge evaluates policies over declarations. It caches compiled policies, and is safe for
// concurrent use.
type Judge struct {
	mu       sync.RWMutex
	programs map[expression]compiled
}

// compiled is a program, or the reason why there is none.
type compiled struct {
	program cel.Program
	err     error
}

// New returns a Judge with an empty cache.
func New() *Judge { return &Judge{programs: map[expression]compiled{}} }

// Judge returns the policy's message if the declaration violates it; "" if it satisfies it. An
// error means that the policy could not be evaluated: the rule fails on this declaration, or costs
// more than Most.
func (j *Judge) Judge(p *fleet.PolicySpec, s *fleet.Subject) (broken string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return j.judge(ctx, p, s)
}

func (j *Judge) judge(ctx context.Context, p *fleet.PolicySpec, s *fleet.Subject) (broken string,
	err error) {
	vars := &activation{s: s}
	kept, err := j.evaluate(ctx, expression{s.Declaration.Key.Kind, p.Rule, cel.BoolType}, vars)
	if err != nil || kept == types.True {
		return "", err
	}
	if p.MessageExpression == "" {
		return nonBlank(p.Message), nil
	}
	text, err := j.evaluate(ctx, expression{s.Declaration.Key.Kind, p.MessageExpression,
		cel.StringType}, vars)
	if err != nil {
		return fmt.Sprintf("its rule does not hold (messageExpression: %v)", err), nil
	}
	return nonBlank(text.Value().(string)), nil
}

// nonBlank returns a policy's message. It is never blank, because a blank message would mean no
// violation.
func nonBlank(text string) string {
	if text = oneLine(text); text == "" {
		return "its rule does not hold"
	}
	return text
}

func (j *Judge) evaluate(ctx context.Context, x expression, vars *activation) (ref.Val, error) {
	c := j.compiled(x)
	if c.err != nil {
		return nil, c.err
	}
	v, _, err := c.program.ContextEval(ctx, vars)
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, errors.New("it was interrupted")
	case err != nil:
		return nil, failure(err)
	}
	return v, nil
}

func (j *Judge) compiled(x expression) compiled {
	j.mu.RLock()
	c, ok := j.programs[x]
	j.mu.RUnlock()
	if ok {
		return c
	}
	program, mistakes := x.compile()
	c = compiled{program: program}
	if len(mistakes) > 0 {
		c.err = errors.New(mistakes[0].message)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.programs) >= mostKept {
		clear(j.programs)
	}
	j.programs[x] = c
	return c
}

// failure explains an evaluation's error.
func failure(err error) error {
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) && cancelled.Cause == interpreter.CostLimitExceeded {
		return fmt.Errorf("it costs more than %d for this declaration", Most)
	}
	return errors.New(oneLine(strings.TrimPrefix(err.Error(), "internal error: ")))
}

// activation provides a subject's variables, each created at its first use.
type activation struct {
	s                          *fleet.Subject
	environments, applications ref.Val
}

// ResolveName returns a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "declaration":
		return &object{shapes.kinds[a.s.Declaration.Key.Kind], reflect.ValueOf(a.s.Declaration)},
			true
	case "tenant":
		return &object{shapes.tenant, reflect.ValueOf(a.s.Tenant)}, true
	case "path":
		return types.String(a.s.Declaration.Path), true
	case "environments":
		if a.environments == nil {
			values := make([]ref.Val, len(a.s.Targets))
			for i, t := range a.s.Targets {
				values[i] = &object{shapes.environment, reflect.ValueOf(t.Environment)}
			}
			a.environments = types.NewRefValList(adapter{}, values)
		}
		return a.environments, true
	case "applications":
		if a.applications == nil {
			a.applications = a.eachSource()
		}
		return a.applications, true
	}
	return nil, false
}

// Parent returns nil.
func (a *activation) Parent() interpreter.Activation { return nil }

func (a *activation) eachSource() ref.Val {
	values := make([]ref.Val, 0, len(a.s.Targets))
	for i := range a.s.Targets {
		t := &a.s.Targets[i]
		for j := range t.Sources {
			app := &application{t, &t.Sources[j]}
			values = append(values, &object{shapes.application, reflect.ValueOf(app)})
		}
	}
	return types.NewRefValList(adapter{}, values)
}
