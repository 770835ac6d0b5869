package stack

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAProgramsClockIsShiftedAndNoOther(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Hour, -2 * time.Hour, 0} {
		var out bytes.Buffer
		cmd := exec.Command("date", "+%s")
		cmd.Stdout = &out
		before := time.Now().Truncate(time.Second)
		if err := StartShifted(cmd, ahead); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if at := time.Unix(seconds, 0).Add(-ahead); at.Before(before) || at.After(time.Now()) {
			t.Errorf("%s ahead: it prints %s, at %s", ahead, time.Unix(seconds, 0), time.Now())
		}
	}
	if err := StartShifted(exec.Command("/nowhere"), time.Hour); err == nil {
		t.Error("nothing was started")
	}
}
