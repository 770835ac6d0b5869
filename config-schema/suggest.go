package configschema

import "strings"

// closest is the candidate that was probably meant: equal but for case, or few edits away. Empty: none is near. Ties go to the first.
func closest(written string, candidates []string) string {
	if len(written) > 64 {
		return ""
	}
	best, least := "", max(1, len(written)/3)+1
	for _, c := range candidates {
		if strings.EqualFold(c, written) {
			return c
		}
		if d := edits(strings.ToLower(written), strings.ToLower(c), least); d < least {
			best, least = c, d
		}
	}
	return best
}

// edits is the optimal string alignment distance of a and b (insert, delete, replace, swap neighbours), or limit when it is not less.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, last[j]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
