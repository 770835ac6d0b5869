package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is Linux' USER_HZ, which /proc counts CPU time in on every architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// CPU is what processes and their children, those that have ended included, have used.
func CPU(pids ...int) (time.Duration, error) {
	parents := map[int]int{}
	used := map[int]int64{}  // own ticks
	ended := map[int]int64{} // ticks of children that were waited for
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i-3], 10, 64); return n } // proc(5) counts from 1, and two came before
		parents[pid], used[pid], ended[pid] = int(number(4)), number(14)+number(15), number(16)+number(17)
	}
	var ticks int64
	for pid := range parents {
		for _, root := range pids {
			if descends(parents, pid, root) {
				ticks += used[pid] + ended[pid]
			}
		}
	}
	return time.Duration(ticks) * clockTick, nil
}

func descends(parents map[int]int, pid, root int) bool {
	for ; pid > 1; pid = parents[pid] {
		if pid == root {
			return true
		}
	}
	return false
}

// Memory is a process's resident set now and at its highest, in KiB.
func Memory(pid int) (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "VmRSS:":
			now, err = strconv.ParseFloat(fields[1], 64)
		case "VmHWM:":
			peak, err = strconv.ParseFloat(fields[1], 64)
		}
	}
	return now, peak, err
}
