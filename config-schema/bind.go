package configschema

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
)

// bind ties a description to the type that it decodes into, field by field. A description that does
// not fit its type is a mistake in this package that no input can cause, and panics when the
// program starts.
func bind(v *value, t reflect.Type, at string) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if err := v.fits(t); err != nil {
		panic(fmt.Sprintf("configschema: %s: %v", at, err))
	}
	switch v.shape {
	case shapeList:
		bind(v.item, t.Elem(), at+"[]")
	case shapeObject:
		v.bound = t
		if t.NumField() != len(v.fields) {
			panic(fmt.Sprintf("configschema: %s: %d fields are described, %s has %d", at,
				len(v.fields), t, t.NumField()))
		}
		for i := range v.fields {
			f := &v.fields[i]
			f.index = indexOf(t, f.name, at)
			bind(&f.value, t.Field(f.index).Type, at+"."+f.name)
		}
	}
}

func (v *value) fits(t reflect.Type) error {
	fits := false
	switch v.shape {
	case shapeText:
		fits = t.Kind() == reflect.String
	case shapeInteger:
		fits = t.Kind() == reflect.Int
	case shapeBoolean:
		fits = t.Kind() == reflect.Bool
	case shapeDuration:
		fits = t == reflect.TypeFor[fleet.Duration]() &&
			t.ConvertibleTo(reflect.TypeFor[time.Duration]())
	case shapeObject:
		fits = t.Kind() == reflect.Struct
	case shapeList:
		fits = t.Kind() == reflect.Slice
	case shapeLabels:
		fits = t == reflect.TypeFor[map[string]string]()
	}
	if !fits {
		return fmt.Errorf("type %s does not hold the described shape", t)
	}
	return nil
}

func indexOf(t reflect.Type, name, at string) int {
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return i
		}
	}
	panic(fmt.Sprintf("configschema: %s: %s has no field %q", at, t, name))
}
