package fleet

import "strings"

// maxMeant is the length in bytes up to which a word gets a suggestion.
const maxMeant = 64

// Closest is the candidate that the author probably meant: equal except for case, or within an edit
// distance of a third of its length, and at least one. It is empty if no candidate is near. The
// first candidate wins a tie.
func Closest[T ~string](written string, candidates []T) T {
	lower := strings.ToLower(written)
	if max(len(written), len(lower)) > maxMeant {
		return ""
	}
	var best T
	least := max(1, len(written)/3) + 1
	for _, c := range candidates {
		if strings.EqualFold(string(c), written) {
			return c
		}
		if d := edits(lower, strings.ToLower(string(c)), least); d < least {
			best, least = c, d
		}
	}
	return best
}

// edits is the optimal string alignment distance of a and b (insert, delete, replace, swap
// neighbours), or limit when the distance is not less. a has at most maxMeant bytes, limit is at
// most a third more. It allocates nothing: there may be thousands of candidates.
func edits(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	var rows [3][maxMeant + maxMeant/3 + 2]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
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
	}
	return min(rows[len(a)%3][len(b)], limit)
}
