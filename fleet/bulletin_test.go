package fleet_test

import (
	"testing"
	"time"

	"argosy.dev/argosy/fleet"
)

func TestABulletinNamesTheVersionsThatLackItsFix(t *testing.T) {
	b := fleet.Bulletin{FixedIn: []string{"3.4.9", "3.5.8", "3.7.0"}}
	for version, lacks := range map[string]bool{
		"v3.5.7": true, "3.5.8": false, "v3.5.10+c0ffee": false, "v3.5.8-rc1": false,
		"3.4.8": true, "3.4.10": false,
		"2.14.21": true, // too old for a fix
		"3.6.4":   true, // between versions with a fix
		"3.8.0":   false, "4.0.0": false,
		"": false, "unknown": false,
	} {
		if b.Lacks(version) != lacks {
			t.Errorf("%q lacks the fix: %t", version, !lacks)
		}
	}
	if (fleet.Bulletin{}).Lacks("3.5.7") {
		t.Error("a bulletin without a release has a fix to lack")
	}
}

func TestASecurityReleaseSoaksShorter(t *testing.T) {
	f := fleet.FleetSpec{Bulletins: []fleet.Bulletin{{FixedIn: []string{"3.5.8"}}}}
	hour, minute := fleet.Duration(time.Hour), fleet.Duration(time.Minute)
	for _, c := range []struct {
		version              string
		soak, security, want fleet.Duration
	}{
		{"3.5.8", hour, minute, minute}, {"3.5.7", hour, minute, hour}, {"3.5.8", hour, 0, hour},
		{"3.5.8", minute, hour, minute},
	} {
		if got := f.SoakOf(fleet.Ring{Version: c.version, Soak: c.soak,
			SecuritySoak: c.security}); got != c.want {
			t.Errorf("%s soaks %v, want %v", c.version, time.Duration(got), time.Duration(c.want))
		}
	}
}
