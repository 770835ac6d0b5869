//go:build !linux

package stack

func enterMounts() error { return errPrivilege }

func bind(string, string, bool) error { return errPrivilege }
