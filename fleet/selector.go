package fleet

import (
	"maps"
	"slices"
	"strings"
)

// LabelSelector selects by labels as Kubernetes does: every label and every expression must match.
// An empty selector is refused, and matches nothing.
type LabelSelector struct {
	MatchLabels      map[string]string  `json:"matchLabels,omitempty"`
	MatchExpressions []LabelRequirement `json:"matchExpressions,omitempty"`
}

// LabelRequirement is one expression of a selector. In and NotIn have values, Exists and
// DoesNotExist have none.
type LabelRequirement struct {
	Key      string           `json:"key"`
	Operator SelectorOperator `json:"operator"`
	Values   []string         `json:"values,omitempty"`
}

// SelectorOperator compares one label with the values of a LabelRequirement.
type SelectorOperator string

// Operators. As in Kubernetes, NotIn and DoesNotExist match an object without the label.
const (
	SelectorIn           SelectorOperator = "In"
	SelectorNotIn        SelectorOperator = "NotIn"
	SelectorExists       SelectorOperator = "Exists"
	SelectorDoesNotExist SelectorOperator = "DoesNotExist"
)

// Matches reports whether labels satisfy the whole selector. A missing or empty selector matches
// nothing, and neither does an unknown operator.
func (s *LabelSelector) Matches(labels map[string]string) bool {
	if s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return !slices.ContainsFunc(s.MatchExpressions, func(r LabelRequirement) bool {
		return !r.matches(labels)
	})
}

func (r LabelRequirement) matches(labels map[string]string) bool {
	v, has := labels[r.Key]
	switch r.Operator {
	case SelectorIn:
		return has && slices.Contains(r.Values, v)
	case SelectorNotIn:
		return !has || !slices.Contains(r.Values, v)
	case SelectorExists:
		return has
	case SelectorDoesNotExist:
		return !has
	}
	return false
}

// Equal reports whether two selectors have the same labels and the same expressions in the same
// order.
func (s *LabelSelector) Equal(other *LabelSelector) bool {
	if s == nil || other == nil {
		return s == other
	}
	return maps.Equal(s.MatchLabels, other.MatchLabels) &&
		slices.EqualFunc(s.MatchExpressions, other.MatchExpressions,
			func(a, b LabelRequirement) bool {
				return a.Key == b.Key && a.Operator == b.Operator &&
					slices.Equal(a.Values, b.Values)
			})
}

// String is the selector in the form that kubectl reads, labels first: tier=prod, zone in (a, b).
func (s *LabelSelector) String() string {
	if s == nil {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		parts = append(parts, k+"="+s.MatchLabels[k])
	}
	for _, r := range s.MatchExpressions {
		switch values := " (" + strings.Join(r.Values, ", ") + ")"; r.Operator {
		case SelectorIn:
			parts = append(parts, r.Key+" in"+values)
		case SelectorNotIn:
			parts = append(parts, r.Key+" notin"+values)
		case SelectorExists:
			parts = append(parts, r.Key)
		case SelectorDoesNotExist:
			parts = append(parts, "!"+r.Key)
		}
	}
	return strings.Join(parts, ", ")
}
