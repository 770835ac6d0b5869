package configschema

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"argosy.dev/argosy/fleet"
)

// blank refuses null, "" and empty collections, except where an empty one has a meaning.
func (d *decoder) blank(v *value, n node) bool {
	null := n.Tag == "!!null"
	if !null && (n.Kind == yaml.ScalarNode && strings.TrimSpace(n.Value) != "" ||
		n.Kind != yaml.ScalarNode && len(n.Content) > 0) {
		return false
	}
	if v.empty && !null && (n.Kind == yaml.ScalarNode) == (v.shape == shapeText) {
		return false
	}
	written := map[bool]string{true: "null", false: `""`}[null]
	switch n.Kind {
	case yaml.SequenceNode:
		written = "[]"
	case yaml.MappingNode:
		written = "{}"
	}
	fix := "write " + v.kindOfValue() + "; a blank never means a default"
	if d.optional {
		fix = "leave the field out, or write " + v.kindOfValue() + "; a blank never means a default"
	}
	d.problem(n, codeBlank, d.subject()+" is blank ("+written+")", fix)
	return true
}

const (
	lower   = "abcdefghijklmnopqrstuvwxyz"
	upper   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
	alnum   = lower + upper + digits
	pathSet = alnum + "._@+=,/-"
)

func (d *decoder) integer(v *value, n node, into reflect.Value) bool {
	i, err := strconv.ParseInt(n.Value, 10, 64)
	if n.Style != 0 || err != nil || strconv.FormatInt(i, 10) != n.Value {
		if n.Style == 0 && only(n.Value, digits) && n.Value[0] != '0' {
			d.problem(n, codeOutOfRange, d.subject()+" is too large",
				fmt.Sprintf("write a number from %d to %d", v.least, v.most))
			return false
		}
		d.wrongType(v, n)
		return false
	}
	if i < v.least || i > v.most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %d; %d to %d are allowed", d.subject(), i,
			v.least, v.most), fmt.Sprintf("write a number from %d to %d", v.least, v.most))
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	into.SetInt(i)
	return true
}

func (d *decoder) boolean(v *value, n node, into reflect.Value) bool {
	if n.Style != 0 || n.Value != "true" && n.Value != "false" {
		d.wrongType(v, n)
		return false
	}
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	into.SetBool(n.Value == "true")
	return true
}

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
	case shapeObject, shapeMap:
		return "a map"
	case shapeList:
		return "a list"
	case shapeLabels:
		return "a map of " + v.entries()
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
	case shapeLabels, shapeMap:
		return "write {key: value}"
	}
	return "write one value"
}

func (v *value) names() []string {
	names := make([]string, len(v.fields))
	for i := range v.fields {
		names[i] = v.fields[i].name
	}
	return names
}

func (d *decoder) duration(v *value, n node, into reflect.Value) bool {
	if n.Style == 0 && n.Tag == "!!int" {
		d.problem(n, codeWrongType, d.subject()+" is a duration, and "+quoted(n.Value)+
			" has no unit", "write a unit: "+n.Value+"s, "+n.Value+"m or "+n.Value+"h")
		return false
	}
	if !d.plainString(n, d.subject()) {
		return false
	}
	t, err := time.ParseDuration(n.Value)
	if err != nil {
		d.problem(n, codeWrongType, quoted(n.Value)+" is no duration", "write it as 90s, 15m or 1h")
		return false
	}
	if least, most := time.Duration(v.least), time.Duration(v.most); t < least || t > most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %s; %s to %s are allowed", d.subject(), t,
			least, most), "write a duration from "+least.String()+" to "+most.String())
		return false
	}
	into.SetInt(int64(t))
	return true
}

func (d *decoder) text(v *value, n node, into reflect.Value) bool {
	if !d.plainString(n, d.subject()) {
		return false
	}
	s := n.Value
	most := int(v.most)
	if most == 0 {
		most = maxText
	}
	if len(s) > most {
		d.problem(n, codeOutOfRange, fmt.Sprintf("%s is %d bytes long; at most %d are allowed",
			d.subject(), len(s), most), "shorten it")
		return false
	}
	if d.hides(n) {
		return false
	}
	switch {
	case v.words != nil:
		return d.word(v, n, into)
	case v.format != nil && s != "":
		checked := s
		if v.format.variables {
			if !d.knownVariables(n) {
				return false
			}
			checked = fleet.SampleVariables(s)
		}
		if err := v.format.check(checked); err != nil {
			d.problem(n, v.format.code, d.subject()+": "+err.Error(), "write "+v.format.what)
			return false
		}
	}
	into.SetString(s)
	return true
}

// knownVariables refuses a "${" that begins no variable, at its own column.
func (d *decoder) knownVariables(n node) bool {
	offset, found := fleet.CheckVariables(n.Value)
	if found == "" {
		return true
	}
	at := *n
	switch {
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		at.Column += len([]rune(n.Value[:offset])) + 1
	case n.Style == 0:
		at.Column += len([]rune(n.Value[:offset]))
	}
	d.problem(&at, codeUnknownVariable, d.subject()+": there is no variable "+quoted(found),
		"use one of "+fleet.VariableNames)
	return false
}

// hides reports a text in double quotes with an escape for a character that is not seen.
func (d *decoder) hides(n node) bool {
	if n.Style&yaml.DoubleQuotedStyle == 0 || !unseen(n.Value) {
		return false
	}
	d.problem(n, codeHiddenCharacter,
		d.subject()+" holds an escaped character that is not seen", "remove it")
	return true
}

// plainString refuses a text that some parser of YAML reads as another type: it is written in
// quotes.
func (d *decoder) plainString(n node, subject string) bool {
	if n.Style != 0 || n.Tag == "!!str" && !ambiguous(n.Value) {
		return true
	}
	what := map[string]string{"!!int": "a number", "!!float": "a number", "!!bool": "a boolean",
		"!!timestamp": "a date"}[n.Tag]
	if what == "" {
		what = "a boolean to some parsers"
	}
	d.problem(n, codeWrongType, fmt.Sprintf("%s is text, and %s without quotes is %s", subject,
		quoted(n.Value), what), "put it in quotes: "+quoted(n.Value))
	return false
}

func (d *decoder) word(v *value, n node, into reflect.Value) bool {
	for _, w := range v.words {
		if w == n.Value {
			into.SetString(w)
			return true
		}
	}
	code, fix := codeUnknownValue, "write "+strings.Join(v.words, " or ")
	if meant := fleet.Closest(n.Value, v.words); meant != "" && len(v.words) > 1 {
		fix = "did you mean " + meant + "?"
	}
	if fieldPath(d.steps) == "apiVersion" {
		code = codeWrongVersion
	}
	d.problem(n, code, d.subject()+" cannot be "+quoted(n.Value), fix)
	return false
}

// subject names the current node for a message: the last field of the path, with its index in a
// list.
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

// plainName returns a key for a message: unchanged if it is a plain word, otherwise quoted.
func plainName(s string) string {
	if s != "" && len(s) <= maxQuoted && only(s, alnum+"-_./") {
		return s
	}
	return quoted(s)
}

// quoted is a value as a message repeats it: on one line, in ASCII, and not long.
func quoted(s string) string {
	runes := []rune(s)
	if len(runes) > maxQuoted {
		return strconv.QuoteToASCII(string(runes[:maxQuoted])) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// asText writes a text so that every parser of YAML reads a text: in quotes where it could be a
// number, a boolean or a date.
func asText(s string) string {
	var n yaml.Node
	if !only(s, alnum+"-_./") || yaml.Unmarshal([]byte(s), &n) != nil || len(n.Content) != 1 ||
		n.Content[0].Tag != "!!str" || ambiguous(s) {
		return strconv.Quote(s)
	}
	return s
}

// only reports whether a text holds no other bytes than those of the set.
func only(s, set string) bool {
	for i := range len(s) {
		if strings.IndexByte(set, s[i]) < 0 {
			return false
		}
	}
	return true
}

// ambiguous reports whether YAML 1.1 reads the word as a boolean and YAML 1.2 as text.
func ambiguous(s string) bool {
	if len(s) > 3 {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off":
		return true
	}
	return false
}
