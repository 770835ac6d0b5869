package server

import "testing"

func TestAgentsTakeNoMoreOfTheStoreThanTheWorkersPoolHas(t *testing.T) {
	for connections := 4; connections <= 1000; connections++ {
		l := agentLimits(connections, 100, nil)
		if all := l.Reads + 2*l.Asks; all > connections || l.Reads == 0 || l.Asks == 0 {
			t.Errorf("%d connections: %d at a time", connections, all)
		}
	}
	if l := agentLimits(1, 100, nil); l.Reads != 1 || l.Asks != 1 {
		t.Errorf("of one connection: %+v", l)
	}
}
