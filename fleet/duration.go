package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as text ("1h30m") in declarations and JSON.
type Duration time.Duration

// MarshalJSON writes the duration as Go writes it: "1h0m0s".
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// Short writes the duration as people do: "3m" and not "3m0s"; "" for 0.
func (d Duration) Short() string {
	if d == 0 {
		return ""
	}
	s := time.Duration(d).String()
	if short, ok := strings.CutSuffix(s, "m0s"); ok {
		s = short + "m"
	}
	if short, ok := strings.CutSuffix(s, "h0m"); ok {
		s = short + "h"
	}
	return s
}

// UnmarshalJSON reads what MarshalJSON writes.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is text such as \"1h\": %w", err)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: write it as \"90s\", \"15m\" or \"1h\"", s)
	}
	*d = Duration(v)
	return nil
}
