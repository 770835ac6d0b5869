//go:build unix && !linux

package embedded

import "syscall"

// dieWithParent does nothing where the kernel has no such signal: there the next start ends what
// was left.
func dieWithParent(*syscall.SysProcAttr) {}
