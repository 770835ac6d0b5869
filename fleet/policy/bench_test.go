package policy

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

const noHead = `!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")`

func BenchmarkJudge(b *testing.B) {
	for name, c := range map[string]struct {
		rule string
		s    *fleet.Subject
	}{
		"a field":            {`declaration.spec.source.targetRevision != "HEAD"`, shop()},
		"two applications":   {noHead, shop()},
		"fifty applications": {noHead, manyTargets(50, 1)},
		"over the limit": {
			`environments.all(a, environments.all(b, a.name != b.name || a.name == b.name))`,
			manyTargets(1000, 1)},
	} {
		b.Run(name, func(b *testing.B) {
			j, p := New(), &fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
				Rule: c.rule, Message: "m"}
			for b.Loop() {
				if _, err := j.Judge(p, c.s); err != nil && name != "over the limit" {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if faults := Check(&fleet.PolicySpec{Kinds: []fleet.Kind{fleet.KindGitOpsDeployment},
			Rule: noHead, Message: "m"}); len(faults) > 0 {
			b.Fatal(faults)
		}
	}
}
