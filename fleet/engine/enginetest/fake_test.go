package enginetest

import (
	"testing"

	"argosy.dev/argosy/fleet/engine"
)

var _ engine.Engine = (*Fake)(nil)

func TestFakePassesTheConformanceSuite(t *testing.T) {
	Run(t, func(*testing.T) *Fixture { return NewFixture(NewServer()) })
}
