package fleet

import (
	"fmt"
	"time"
)

// Age formats a duration for a table: its largest unit alone, or the two largest while the first is
// small: 45s, 5m, 2h10m, 9h, 3d, 412d. A negative duration, from clocks that differ, is 0s.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 8*time.Hour && int(d.Minutes())%60 != 0:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
