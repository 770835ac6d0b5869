//go:build unix && !linux

package stack

import "syscall"

// setDeathSignal does nothing where the kernel has no such signal: there, a
// child outlives a parent that was killed, and only Stop ends it.
func setDeathSignal(*syscall.SysProcAttr, syscall.Signal) {}
