package fleet

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of the text of a label selector.
const (
	maxSelector     = 1024 // bytes
	maxRequirements = 20
)

// ParseLabelSelector parses a selector in the form that kubectl reads: tier=prod, zone!=a, zone in
// (a, b), zone notin (a), team, !team. An empty text is no selector: nil.
func ParseLabelSelector(text string) (*LabelSelector, error) {
	if len(text) > maxSelector {
		return nil, fmt.Errorf("a label selector has at most %d bytes, not %d", maxSelector,
			len(text))
	}
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	parts, err := splitRequirements(text)
	if err != nil {
		return nil, err
	}
	s := &LabelSelector{}
	for _, part := range parts {
		r, err := parseRequirement(part)
		if err != nil {
			return nil, fmt.Errorf("label selector %q: %w", part, err)
		}
		if _, twice := s.MatchLabels[r.Key]; r.Operator != selectorEquals || twice {
			if r.Operator == selectorEquals {
				r.Operator = SelectorIn
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
			continue
		}
		if s.MatchLabels == nil {
			s.MatchLabels = map[string]string{}
		}
		s.MatchLabels[r.Key] = r.Values[0]
	}
	return s, nil
}

// selectorEquals is the operator of a requirement that becomes one of MatchLabels.
const selectorEquals SelectorOperator = "="

// splitRequirements splits at the commas outside of parentheses.
func splitRequirements(text string) (parts []string, err error) {
	open, start := false, 0
	for i, c := range text {
		switch {
		case c == '(' && !open:
			open = true
		case c == ')' && open:
			open = false
		case c == '(' || c == ')':
			return nil, fmt.Errorf("label selector %q: a parenthesis too many", text)
		case c == ',' && !open:
			parts, start = append(parts, strings.TrimSpace(text[start:i])), i+1
		}
	}
	if open {
		return nil, fmt.Errorf("label selector %q: a ) is missing", text)
	}
	parts = append(parts, strings.TrimSpace(text[start:]))
	if len(parts) > maxRequirements {
		return nil, fmt.Errorf("a label selector has at most %d requirements, not %d",
			maxRequirements, len(parts))
	}
	return parts, nil
}

func parseRequirement(part string) (LabelRequirement, error) {
	if key, ok := strings.CutPrefix(part, "!"); ok {
		key = strings.TrimSpace(key)
		return LabelRequirement{Key: key, Operator: SelectorDoesNotExist}, checkSelectorKey(key)
	}
	if set, ok := strings.CutSuffix(part, ")"); ok {
		return parseSet(set)
	}
	for _, form := range []struct {
		sign     string
		operator SelectorOperator
	}{{"!=", SelectorNotIn}, {"==", selectorEquals}, {"=", selectorEquals}} {
		if key, value, ok := strings.Cut(part, form.sign); ok {
			r := LabelRequirement{Key: strings.TrimSpace(key), Operator: form.operator,
				Values: []string{strings.TrimSpace(value)}}
			return r, errors.Join(checkSelectorKey(r.Key), checkSelectorValue(r.Values[0]))
		}
	}
	return LabelRequirement{Key: part, Operator: SelectorExists}, checkSelectorKey(part)
}

// parseSet parses "key in (a, b" and "key notin (a".
func parseSet(text string) (LabelRequirement, error) {
	head, list, ok := strings.Cut(text, "(")
	words := strings.Fields(head)
	if !ok || len(words) != 2 || words[1] != "in" && words[1] != "notin" {
		return LabelRequirement{}, errors.New("write `key in (a, b)` or `key notin (a, b)`")
	}
	r := LabelRequirement{Key: words[0], Operator: SelectorIn}
	if words[1] == "notin" {
		r.Operator = SelectorNotIn
	}
	for value := range strings.SplitSeq(list, ",") {
		value = strings.TrimSpace(value)
		if err := checkSelectorValue(value); err != nil {
			return r, err
		}
		r.Values = append(r.Values, value)
	}
	return r, checkSelectorKey(r.Key)
}

func checkSelectorKey(key string) error {
	name := key[strings.LastIndexByte(key, '/')+1:]
	if key == "" || name == "" || len(key) > 317 || !isLabelText(strings.Replace(key, "/", "", 1)) {
		return errors.New("a label's key holds a-z, A-Z, 0-9, '-', '_', '.' and at most one '/'")
	}
	return nil
}

func checkSelectorValue(value string) error {
	if len(value) > 63 || !isLabelText(value) {
		return errors.New("a label's value has at most 63 of a-z, A-Z, 0-9, '-', '_' and '.'")
	}
	return nil
}

func isLabelText(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}
