package configschema

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

func (d *decoder) wrongType(v *value, n node) {
	got := "a list"
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a map"
	case n.Kind == yaml.ScalarNode:
		got = quoted(n.Value)
	}
	d.problem(n, codeWrongType, d.subject()+" is "+v.kindOfValue()+", not "+got, v.howToWrite())
}

// kindOfValue names the shape for people.
func (v *value) kindOfValue() string {
	switch v.shape {
	case shapeInteger:
		return "a whole number"
	case shapeBoolean:
		return "a boolean"
	case shapeDuration:
		return "a duration"
	case shapeObject:
		return "a map"
	case shapeList:
		return "a list"
	case shapeLabels:
		return "a map of labels"
	}
	return "a text"
}

func (v *value) howToWrite() string {
	switch v.shape {
	case shapeInteger:
		return fmt.Sprintf(
			"write a number from %d to %d in decimal, without quotes, leading zeros or exponent",
			v.least, v.most)
	case shapeBoolean:
		return "write true or false, without quotes"
	case shapeDuration:
		return "write it as 90s, 15m or 1h"
	case shapeObject:
		if len(v.fields) == 0 {
			return "write {}"
		}
		return "write its fields below it: " + strings.Join(v.names(), ", ")
	case shapeList:
		return "write one entry per line after '- ', or [a, b]"
	case shapeLabels:
		return "write {key: value}"
	}
	return "write one value"
}

// subject names what the decoder is at, for a message: the last field of the path, with its place
// in a list.
func (d *decoder) subject() string {
	if len(d.steps) == 0 {
		return "the file"
	}
	s := d.steps[len(d.steps)-1]
	if s.index < 0 {
		return plainName(s.name)
	}
	if len(d.steps) > 1 {
		return fmt.Sprintf("entry %d of %s", s.index+1, plainName(d.steps[len(d.steps)-2].name))
	}
	return fmt.Sprintf("entry %d", s.index+1)
}

// plainName is a key as a message repeats it: as it is when it is a plain word, else quoted.
func plainName(s string) string {
	if s != "" && len(s) <= maxQuoted && only(s, alnum+"-_./") {
		return s
	}
	return quoted(s)
}
