//go:build !linux

package stack

func enterNetwork() error { return errPrivilege }
