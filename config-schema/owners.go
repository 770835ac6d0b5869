package configschema

import (
	"reflect"
	"strings"
)

// owners is a list of people, teams and groups.
func owners() value { return listOf(textOf(formatOwner)).atMost(100).checked(ownersOnce) }

// ownersOnce refuses an owner who stands twice but for case: forges know names in whatever case, so
// one person would count for two.
func ownersOnce(d *decoder, into reflect.Value, at node) {
	list := into.Interface().([]string)
	for i, o := range list {
		for j, before := range list[:i] {
			if o != before && strings.EqualFold(o, before) {
				d.steps = append(d.steps, step{"", i})
				d.problem(at.Content[i], codeDuplicateEntry,
					quoted(o)+" is named twice with different case; first as "+quoted(list[j]),
					"remove one of them")
				d.steps = d.steps[:len(d.steps)-1]
				break
			}
		}
	}
}
