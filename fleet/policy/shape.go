package policy

import (
	"reflect"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"

	"argosy.dev/argosy/fleet"
)

// shape is the type of an object as rules see it. Its fields are the json names of the domain's
// structs, which are the names in YAML.
type shape struct {
	name   string
	of     *types.Type
	fields []*field
	byName map[string]*field
}

type field struct {
	name  string
	of    *types.Type
	shape *shape // of an object, or of a list's objects; nil otherwise
	get   func(reflect.Value) any
	set   func(reflect.Value) bool
	cel   *types.FieldType
}

func newShape(name string, fields ...*field) *shape {
	s := &shape{name: name, of: types.NewObjectType(name), byName: map[string]*field{}}
	s.add(fields...)
	return s
}

func (s *shape) add(fields ...*field) {
	for _, f := range fields {
		s.fields, s.byName[f.name] = append(s.fields, f), f
		f.cel = &types.FieldType{Type: f.of,
			IsSet:   func(target any) bool { return f.set(target.(*object).v) },
			GetFrom: func(target any) (any, error) { return f.get(target.(*object).v), nil }}
	}
}

func (s *shape) names() []string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = f.name
	}
	return names
}

// shapeSet holds all shapes.
type shapeSet struct {
	byName map[string]*shape
	byType map[reflect.Type]*shape
	kinds  map[fleet.Kind]*shape // declarations
	tenant, environment,
	application *shape
}

// shapes are derived once from the types of the domain.
var shapes = newShapeSet()

func newShapeSet() *shapeSet {
	w := &shapeSet{byName: map[string]*shape{}, byType: map[reflect.Type]*shape{},
		kinds: map[fleet.Kind]*shape{}}
	w.tenant = w.named("Tenant", reflect.TypeFor[fleet.TenantSpec](),
		func(d *fleet.Declaration) any { return d.Tenant })
	w.environment = w.named("Environment", reflect.TypeFor[fleet.EnvironmentSpec](),
		func(d *fleet.Declaration) any { return d.Environment })
	w.application = w.keep(newShape("Application",
		objectField("environment", w.environment, func(v reflect.Value) reflect.Value {
			return reflect.ValueOf(target(v).Environment)
		}),
		textField("namespace", func(v reflect.Value) string { return target(v).Namespace }),
		objectField("source", w.reflected(reflect.TypeFor[fleet.Source]()),
			func(v reflect.Value) reflect.Value {
				return reflect.ValueOf(v.Interface().(*application).source).Elem()
			}),
		objectField("sync", w.reflected(reflect.TypeFor[fleet.Sync]()),
			func(v reflect.Value) reflect.Value { return reflect.ValueOf(&target(v).Sync).Elem() }),
		textField("deletionPolicy", func(v reflect.Value) string {
			return string(target(v).DeletionPolicy)
		}),
	))
	w.document(fleet.KindManagedEnvironment, reflect.TypeFor[fleet.EnvironmentSpec](),
		func(d *fleet.Declaration) any { return d.Environment })
	w.document(fleet.KindGitOpsDeployment, reflect.TypeFor[fleet.DeploymentSpec](),
		func(d *fleet.Declaration) any { return d.Deployment })
	w.document(fleet.KindRepositoryCredential, reflect.TypeFor[fleet.CredentialSpec](),
		func(d *fleet.Declaration) any { return d.Credential })
	w.document(fleet.KindSyncRun, reflect.TypeFor[fleet.SyncRunSpec](),
		func(d *fleet.Declaration) any { return d.SyncRun })
	w.document(fleet.KindTenantNotifications, reflect.TypeFor[fleet.NotificationSettings](),
		func(d *fleet.Declaration) any { return d.Notifications })
	return w
}

// document returns the shape of a declaration as in its file. spec returns the pointer that its
// kind sets.
func (w *shapeSet) document(kind fleet.Kind, t reflect.Type, spec func(*fleet.Declaration) any) {
	metadata := w.byName["Metadata"]
	if metadata == nil {
		metadata = w.keep(newShape("Metadata", nameAndLabels()...))
	}
	w.kinds[kind] = w.keep(newShape(string(kind),
		textField("apiVersion", func(reflect.Value) string { return fleet.APIVersion }),
		textField("kind", func(v reflect.Value) string { return string(declaration(v).Key.Kind) }),
		objectField("metadata", metadata, func(v reflect.Value) reflect.Value { return v }),
		objectField("spec", w.reflected(t), func(v reflect.Value) reflect.Value {
			return reflect.ValueOf(spec(declaration(v))).Elem()
		}),
	))
}

func (w *shapeSet) keep(s *shape) *shape {
	w.byName[s.name] = s
	return s
}

// named returns the shape of a declaration whose spec's fields are beside its name and labels.
func (w *shapeSet) named(name string, t reflect.Type, spec func(*fleet.Declaration) any) *shape {
	at := func(v reflect.Value) reflect.Value {
		return reflect.ValueOf(spec(declaration(v))).Elem()
	}
	return w.keep(newShape(name, append(nameAndLabels(), w.fieldsOf(t, at)...)...))
}

// reflected returns the shape of a struct of the domain.
func (w *shapeSet) reflected(t reflect.Type) *shape {
	if s := w.byType[t]; s != nil {
		return s
	}
	s := w.keep(newShape(t.Name()))
	w.byType[t] = s
	s.add(w.fieldsOf(t, func(v reflect.Value) reflect.Value { return v })...)
	return s
}

// fieldsOf returns the fields of a struct; at finds the struct in the object's value.
func (w *shapeSet) fieldsOf(t reflect.Type, at func(reflect.Value) reflect.Value) []*field {
	var fields []*field
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		f := &field{name: name}
		w.read(f, t.Field(i).Type, func(v reflect.Value) reflect.Value { return at(v).Field(i) })
		fields = append(fields, f)
	}
	return fields
}

// read sets a field's type and the conversion of its value to CEL.
func (w *shapeSet) read(f *field, t reflect.Type, at func(reflect.Value) reflect.Value) {
	f.set = func(v reflect.Value) bool { return !at(v).IsZero() }
	switch {
	case t.Kind() == reflect.String:
		f.of, f.get = types.StringType, func(v reflect.Value) any {
			return types.String(at(v).String())
		}
	case t.Kind() == reflect.Int:
		f.of, f.get = types.IntType, func(v reflect.Value) any { return types.Int(at(v).Int()) }
	case t == reflect.TypeFor[fleet.Duration]():
		f.of, f.get = types.DurationType, func(v reflect.Value) any {
			return types.Duration{Duration: time.Duration(at(v).Int())}
		}
	case t.Kind() == reflect.Bool:
		f.of, f.get = types.BoolType, func(v reflect.Value) any { return types.Bool(at(v).Bool()) }
	case t == reflect.TypeFor[*int]():
		f.of, f.get = types.IntType, func(v reflect.Value) any {
			if p := at(v); !p.IsNil() {
				return types.Int(p.Elem().Int())
			}
			return types.Int(0)
		}
	case t == reflect.TypeFor[*bool]():
		f.of, f.get = types.BoolType, func(v reflect.Value) any {
			p := at(v)
			return types.Bool(!p.IsNil() && p.Elem().Bool())
		}
	case t == reflect.TypeFor[map[string]string]():
		f.of, f.get = labelsType, func(v reflect.Value) any {
			return newLabels(at(v).Interface().(map[string]string))
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		f.of, f.get = types.NewListType(types.StringType), func(v reflect.Value) any {
			return newList(at(v))
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		f.shape = w.reflected(t.Elem())
		f.of, f.get = types.NewListType(f.shape.of), func(v reflect.Value) any {
			return newList(at(v))
		}
	case t.Kind() == reflect.Struct:
		f.shape = w.reflected(t)
		f.of, f.get = f.shape.of, func(v reflect.Value) any { return &object{f.shape, at(v)} }
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		f.shape = w.reflected(t.Elem())
		nothing := reflect.New(t.Elem()).Elem()
		f.of, f.get = f.shape.of, func(v reflect.Value) any {
			if p := at(v); !p.IsNil() {
				return &object{f.shape, p.Elem()}
			}
			return &object{f.shape, nothing}
		}
	default:
		// an error in the domain's types, found when the program starts
		panic("policy: a rule cannot see a field of type " + t.String())
	}
}

func declaration(v reflect.Value) *fleet.Declaration { return v.Interface().(*fleet.Declaration) }

// application is what rules see as one entry of applications: a target with one of its sources, so
// that a rule over a.source judges each of several.
type application struct {
	*fleet.Target
	source *fleet.Source
}

func target(v reflect.Value) *fleet.Target { return v.Interface().(*application).Target }

func nameAndLabels() []*field {
	return []*field{
		textField("name", func(v reflect.Value) string { return declaration(v).Key.Name }),
		{name: "labels", of: labelsType, set: func(v reflect.Value) bool {
			return len(declaration(v).Labels) > 0
		},
			get: func(v reflect.Value) any { return newLabels(declaration(v).Labels) }},
	}
}

func textField(name string, get func(reflect.Value) string) *field {
	return &field{name: name, of: types.StringType, get: func(v reflect.Value) any {
		return types.String(get(v))
	},
		set: func(v reflect.Value) bool { return get(v) != "" }}
}

func objectField(name string, s *shape, at func(reflect.Value) reflect.Value) *field {
	return &field{name: name, of: s.of, shape: s, get: func(v reflect.Value) any {
		return &object{s, at(v)}
	}, set: func(reflect.Value) bool { return true }}
}
