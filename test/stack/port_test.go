package stack

import "testing"

func TestAPortIsGivenOnce(t *testing.T) {
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	lock, ok := givenPorts.Load(port)
	if !ok {
		t.Fatal("the port has no lock")
	}
	if _, err := lockFile(lock.(interface{ Name() string }).Name()); err == nil {
		t.Error("the port's lock can be taken a second time")
	}
}
