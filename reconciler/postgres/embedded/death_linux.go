package embedded

import "syscall"

// dieWithParent has the kernel shut the server down when we are killed.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGINT }
