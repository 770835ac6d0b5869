package stack

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// StartShifted starts a command whose wall clock is that many whole seconds ahead of this
// machine's, or behind it; its monotonic clock is the machine's. The program is the released one:
// before its first instruction, the page through which the kernel gives it the time (the vDSO, see
// vdso(7)) is overwritten in its memory alone. A child of it has the machine's clock.
func StartShifted(cmd *exec.Cmd, ahead time.Duration) error {
	// the thread that has started the program is the one that may write to it
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	setDeathSignal(cmd.SysProcAttr, syscall.SIGKILL)
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := setClock(cmd.Process.Pid, ahead); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("shift the clock of %s: %w", cmd.Path, err)
	}
	return nil
}

// setClock waits until the program has stopped before its first instruction, changes its clock and
// continues it.
func setClock(pid int, ahead time.Duration) error {
	var status syscall.WaitStatus
	_, err := syscall.Wait4(pid, &status, 0, nil)
	for errors.Is(err, syscall.EINTR) {
		_, err = syscall.Wait4(pid, &status, 0, nil)
	}
	if err != nil {
		return err
	}
	if !status.Stopped() {
		return errors.New("it has ended before it began")
	}
	if err := writeClock(pid, int32(ahead/time.Second)); err != nil {
		return err
	}
	return syscall.PtraceDetach(pid)
}

// writeClock puts another clock_gettime into the vDSO of a program.
func writeClock(pid int, ahead int32) error {
	base, err := vdsoOf(pid)
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	image := make([]byte, 1<<16)
	n, err := memory.ReadAt(image, int64(base)) // to the end of the mapping
	if n == 0 {
		return err
	}
	file, err := elf.NewFile(bytes.NewReader(image[:n]))
	if err != nil {
		return fmt.Errorf("vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			_, err := memory.WriteAt(clockCode(ahead), int64(base+s.Value))
			return err
		}
	}
	return errors.New("vDSO: it has no clock_gettime")
}

// clockCode is clock_gettime(clock %edi, *timespec %rsi): it asks the kernel, and moves the seconds
// of CLOCK_REALTIME.
func clockCode(ahead int32) []byte {
	code := []byte{
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0xb8, syscall.SYS_CLOCK_GETTIME, 0, 0, 0, // mov $SYS_clock_gettime, %eax
		0x0f, 0x05, // syscall
		0x85, 0xff, // test %edi, %edi
		0x75, 0x07, // jne past the addition
		0x48, 0x81, 0x06, // addq $ahead, (%rsi)
	}
	code = binary.LittleEndian.AppendUint32(code, uint32(ahead))
	return append(code, 0xc3) // ret
}

// atSysinfoEhdr is the type of the entry with the address of the vDSO (getauxval(3)).
const atSysinfoEhdr = 33

func vdsoOf(pid int) (uint64, error) {
	words, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	for from := bytes.NewReader(words); ; {
		var entry struct{ Type, Value uint64 }
		if err := binary.Read(from, binary.LittleEndian, &entry); errors.Is(err, io.EOF) {
			return 0, errors.New("it has no vDSO")
		} else if err != nil {
			return 0, err
		}
		if entry.Type == atSysinfoEhdr {
			return entry.Value, nil
		}
	}
}
