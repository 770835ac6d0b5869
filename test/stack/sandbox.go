package stack

import "fmt"

// Sandbox is a Firewall with a view of the file system of its own: what a container's runtime gives
// to a Pod. A bind mount is visible in it alone, and ends with its last process.
type Sandbox struct{ *Firewall }

// NewSandbox needs Linux and root, as a container's runtime does.
func NewSandbox() (*Sandbox, error) {
	f, err := NewFirewall()
	if err != nil {
		return nil, err
	}
	f.inside(func() { err = enterMounts() })
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("mount namespace: %w", err)
	}
	return &Sandbox{f}, nil
}

// Bind shows at target what is at source, to the processes that are started
// later. Both are folders, or both are files, and are there.
func (s *Sandbox) Bind(source, target string, readOnly bool) (err error) {
	s.inside(func() { err = bind(source, target, readOnly) })
	if err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}
