package policy

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"argosy.dev/argosy/fleet"
)

// object is a domain value as rules see it.
type object struct {
	shape *shape
	v     reflect.Value
}

var _ interface {
	ref.Val
	traits.FieldTester
	traits.Indexer
} = (*object)(nil)

// ConvertToNative fails: no value of a rule returns into the domain.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, unconvertible(o.shape.name, t)
}

// ConvertToType fails.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("%v", notA(o.shape.name, t))
}

// Equal is never true: compile rejects rules that compare objects as a whole.
func (o *object) Equal(ref.Val) ref.Val { return types.False }

// Type returns the shape's type.
func (o *object) Type() ref.Type { return o.shape.of }

// Value returns the object, the argument of FieldType.GetFrom.
func (o *object) Value() any { return o }

// Get returns a field's value by its name.
func (o *object) Get(name ref.Val) ref.Val {
	f := o.field(name)
	if f == nil {
		return types.NewErr("no such field: %v", name.Value())
	}
	return adapt(f.get(o.v))
}

// IsSet reports whether a field is set.
func (o *object) IsSet(name ref.Val) ref.Val {
	f := o.field(name)
	if f == nil {
		return types.NewErr("no such field: %v", name.Value())
	}
	return types.Bool(f.set(o.v))
}

func (o *object) field(name ref.Val) *field {
	text, _ := name.(types.String)
	return o.shape.byName[string(text)]
}

// labelsType is the type of labels for the compiler.
var labelsType = types.NewMapType(types.StringType, types.StringType)

// labels is a map in which every key exists: a missing label reads as "", which no label can be.
// has() and `in` distinguish them. It iterates in the order of the keys. It is no traits.Mapper,
// because a Mapper cannot be both.
type labels map[string]string

func newLabels(m map[string]string) labels { return m }

var _ interface {
	ref.Val
	traits.Container
	traits.FieldTester
	traits.Indexer
	traits.Iterable
	traits.Sizer
} = labels(nil)

// ConvertToNative fails, as for an object.
func (l labels) ConvertToNative(t reflect.Type) (any, error) {
	return nil, unconvertible("a map of labels", t)
}

// ConvertToType fails.
func (l labels) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("%v", notA("a map of labels", t))
}

// Equal is never true: compile rejects rules that compare maps as a whole.
func (l labels) Equal(ref.Val) ref.Val { return types.False }

// Type returns the map type.
func (l labels) Type() ref.Type { return types.MapType }

// Value returns the map.
func (l labels) Value() any { return l }

// Contains reports whether the label exists.
func (l labels) Contains(key ref.Val) ref.Val { return l.IsSet(key) }

// IsSet reports whether the label exists.
func (l labels) IsSet(key ref.Val) ref.Val {
	text, _ := key.(types.String)
	_, ok := l[string(text)]
	return types.Bool(ok)
}

// Get returns a label's value, "" if it is missing.
func (l labels) Get(key ref.Val) ref.Val {
	text, ok := key.(types.String)
	if !ok {
		return types.NewErr("a label's key is a text, not %v", key.Type().TypeName())
	}
	return types.String(l[string(text)])
}

// Iterator iterates over the keys in order.
func (l labels) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, slices.Sorted(maps.Keys(l))).Iterator()
}

// Size returns the number of labels.
func (l labels) Size() ref.Val { return types.Int(len(l)) }

// newList returns a list of texts or objects, each created at its first use.
func newList(v reflect.Value) ref.Val { return types.NewDynamicList(adapter{}, v.Interface()) }

// adapter converts domain values to CEL values.
type adapter struct{}

// NativeToValue never fails for a value of a shape.
func (adapter) NativeToValue(native any) ref.Val { return adapt(native) }

func adapt(native any) ref.Val {
	switch n := native.(type) {
	case ref.Val:
		return n
	case *fleet.Target:
		return &object{shapes.application, reflect.ValueOf(n)}
	case *fleet.Declaration:
		// the only lists of declarations are of environments
		return &object{shapes.environment, reflect.ValueOf(n)}
	case string, bool, int, []string:
		return types.DefaultTypeAdapter.NativeToValue(n)
	}
	v := reflect.ValueOf(native)
	switch s := shapes.byType[v.Type()]; {
	case s != nil:
		return &object{s, v}
	case v.Kind() == reflect.String:
		return types.String(v.String())
	default:
		return types.DefaultTypeAdapter.NativeToValue(native)
	}
}

func unconvertible(what string, t reflect.Type) error {
	return fmt.Errorf("%s cannot be made a %s", what, t)
}

func notA(what string, t ref.Type) error { return fmt.Errorf("%s is no %s", what, t.TypeName()) }
