package fleet

import (
	"strings"
	"testing"
)

func TestClosestIsWhatWasProbablyMeant(t *testing.T) {
	long := strings.Repeat("a", 64)
	names := []EnvironmentName{"staging", "prod-eu", "prod-us", "a", EnvironmentName(long),
		EnvironmentName(long + strings.Repeat("b", 40))}
	for written, want := range map[string]EnvironmentName{
		"staging": "staging", "Staging": "staging", "stagign": "staging", "stagin": "staging",
		"sttaging": "staging", "stxgxng": "staging", "xxxging": "",
		"prod-e": "prod-eu", "prod-as": "prod-us", "prod-xx": "prod-eu", "b": "a", "bb": "",
		"": "a", "quite another": "",
		long[:63] + "x": EnvironmentName(long), long + "a": "", strings.Repeat("x", 64): "",
		strings.Repeat("\u0130", 32): "",
	} {
		if got := Closest(written, names); got != want {
			t.Errorf("%q is taken for %q, not %q", written, got, want)
		}
	}
	if got := Closest("staging", []EnvironmentName(nil)); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestClosestAllocatesNothing(t *testing.T) {
	names := make([]string, 1000)
	for i := range names {
		names[i] = strings.Repeat("deployment-", 1+i%5)
	}
	if n := testing.AllocsPerRun(10, func() { Closest("deployment-of-the-shop", names) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
