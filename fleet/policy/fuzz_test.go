package policy

import (
	"strings"
	"testing"

	"argosy.dev/argosy/fleet"
)

// FuzzRule compiles any text for each kind, and evaluates it if it compiles.
func FuzzRule(f *testing.F) {
	for _, rule := range []string{
		`!applications.exists(a, a.environment.labels.tier == "prod" && a.source.targetRevision == "HEAD")`,
		`declaration.spec.source.kustomize.images.all(i, i.matches("^([^=]+=)?registry\\.example\\.com/"))`,
		`declaration.spec.namespaces.all(n, n.startsWith(tenant.name + "-"))`,
		`declaration.metadata.labels.map(k, declaration.metadata.labels[k]).exists_one(v, v in ["a", "b"])`,
		`cel.bind(s, tenant.name + tenant.name, cel.bind(t, s + s, size(t + t) > 3))`,
		`declaration.spec.?source.?helm[?"x"].orValue(optional.none()).hasValue()`,
		`has(declaration.spec.deployment) || environments[1 - 2].name == "\u00e9"`,
		"declaration.spec.hold ?\n  // why\n  path != '' : -1 < 2 % size([[1], []])",
		`Source{path: 'x'} == Source{}`, `google.protobuf.Struct{fields: {'a': 1}}.a == 1`,
		`"\xff" + b'a'`, `((((((((1))))))))`, `true && `, ``,
		strings.Repeat("(", 4000), strings.Repeat("!", 4000) + "true",
		strings.Repeat("path+", 600) + "path == ''", strings.Repeat("environments.all(e, ", 5),
		`"a".matches("((a{100}){100}){100}")`,
		strings.Repeat("cel.bind(x,path+path,cel.bind(path,x+x,", 6) + "size(path) > 1" +
			strings.Repeat("))", 6),
	} {
		f.Add(rule)
	}
	subjects := []*fleet.Subject{
		shop(), {Declaration: environment("prod", map[string]string{"tier": "prod"}, "acme-a"),
			Tenant: acme()},
		{Declaration: &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindSyncRun, Tenant: "acme",
			Name: "x"}, SyncRun: &fleet.SyncRunSpec{}}, Tenant: acme()},
		{Declaration: &fleet.Declaration{Key: fleet.Key{Kind: fleet.KindRepositoryCredential,
			Tenant: "acme", Name: "x"}, Credential: &fleet.CredentialSpec{}}, Tenant: acme()}}
	f.Fuzz(func(t *testing.T, rule string) {
		j := New()
		for _, s := range subjects {
			p := &fleet.PolicySpec{Kinds: []fleet.Kind{s.Declaration.Key.Kind}, Rule: rule,
				Message: "m", Field: rule}
			fine := true
			for _, fault := range Check(p) {
				fine = fine && fault.In != "rule"
				if fault.Message == "" || fault.Fix == "" ||
					strings.ContainsAny(fault.Message+fault.Fix, "\n\r") || fault.Line < 0 ||
					fault.Line > strings.Count(rule, "\n")+1 {
					t.Errorf("fault is not whole: %+v", fault)
				}
			}
			broken, err := j.Judge(p, s)
			if again, errAgain := j.Judge(p, s); again != broken ||
				(err == nil) != (errAgain == nil) {
				t.Errorf("%q, then %q", broken, again)
			}
			if !fine && err == nil {
				t.Error("a rule with faults judges")
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("several lines: %q", err)
			}
		}
	})
}
