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

func (d *decoder) duration(v *value, n node, into reflect.Value) bool {
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
	if i := strings.IndexFunc(s, unseen); n.Style&yaml.DoubleQuotedStyle != 0 && i >= 0 {
		d.problem(n, codeHiddenCharacter,
			d.subject()+" holds an escaped character that is not seen", "remove it")
		return false
	}
	switch {
	case v.words != nil:
		return d.word(v, n, into)
	case v.format != nil && s != "":
		if err := v.format.check(s); err != nil {
			d.problem(n, v.format.code, d.subject()+": "+err.Error(), "write "+v.format.what)
			return false
		}
	}
	into.SetString(s)
	return true
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
	if d.field() == "apiVersion" {
		code = codeWrongVersion
	}
	d.problem(n, code, d.subject()+" cannot be "+quoted(n.Value), fix)
	return false
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

// ambiguous tells the words that YAML 1.1 reads as booleans and YAML 1.2 as text.
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
