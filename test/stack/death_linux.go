package stack

import "syscall"

// setDeathSignal has the kernel end the child when its parent dies.
func setDeathSignal(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }
