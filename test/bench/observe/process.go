package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is Linux' USER_HZ, which /proc counts CPU time in on every architecture that Go runs
// on.
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
		// proc(5) counts from 1, and two came before
		number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i-3], 10, 64); return n }
		parents[pid], used[pid], ended[pid] = int(number(4)), number(14)+number(15),
			number(16)+number(17)
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

// OwnCPU is what this process and its children that have ended have used.
func OwnCPU() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			return 0, err
		}
		sum += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return sum, nil
}

func descends(parents map[int]int, pid, root int) bool {
	for ; pid > 1; pid = parents[pid] {
		if pid == root {
			return true
		}
	}
	return false
}

// Resident is a process's memory in KiB.
type Resident struct {
	Now, Peak float64 // resident set
	// of Now: pages of files, which are the program's own code and are shared by its replicas on a
	// machine
	Program float64
}

// Memory reads it.
func Memory(pid int) (Resident, error) {
	var r Resident
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return r, err
	}
	into := map[string]*float64{"VmRSS:": &r.Now, "VmHWM:": &r.Peak, "RssFile:": &r.Program}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || into[fields[0]] == nil {
			continue
		}
		if *into[fields[0]], err = strconv.ParseFloat(fields[1], 64); err != nil {
			return r, err
		}
	}
	return r, nil
}
