package apitest

import (
	"reflect"
	"time"
)

// KeepAges moves every time of the content by the time that has passed since New or the last call,
// so that what was five minutes old still is, however long a test takes. Traces show times of the
// day, and stay.
func (s *Store) KeepAges() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	moved := ages{by: now.Sub(s.aged), seen: map[any]bool{}}
	s.aged = now
	traces := s.m.Traces
	s.m.Traces = nil
	moved.move(reflect.ValueOf(&s.m))
	s.m.Traces = traces
}

// ages moves the times of a value, each once.
type ages struct {
	by   time.Duration
	seen map[any]bool // pointers
}

func (a ages) move(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || a.seen[v.Interface()] {
			return
		}
		a.seen[v.Interface()] = true
		a.move(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			a.move(v.Index(i))
		}
	case reflect.Struct:
		if at, ok := v.Interface().(time.Time); ok {
			if v.CanSet() && !at.IsZero() {
				v.Set(reflect.ValueOf(at.Add(a.by)))
			}
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				a.move(v.Field(i))
			}
		}
	}
}
