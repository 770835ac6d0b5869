package fleet

import (
	"reflect"
	"testing"
	"time"
)

// filled returns settings with every field set; n distinguishes two of them.
func filled(t *testing.T, n int) SyncSettings {
	t.Helper()
	var s SyncSettings
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString([]string{"manual", "orphan"}[n])
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
			if b := f.Elem(); b.Kind() == reflect.Bool {
				b.SetBool(n == 1)
			}
		default:
			t.Fatalf("field %s has the same value omitted and set", v.Type().Field(i).Name)
		}
	}
	return s
}

func TestSettingsAreInheritedFieldByField(t *testing.T) {
	own, other := filled(t, 0), filled(t, 1)
	if got := (SyncSettings{}).Or(other); !reflect.DeepEqual(got, other) {
		t.Errorf("omitted fields are not inherited: %+v", got)
	}
	if got := own.Or(other); !reflect.DeepEqual(got, own) {
		t.Errorf("a field of the deployment is lost: %+v", got)
	}
}

func TestFalseDiffersFromOmitted(t *testing.T) {
	yes, no := true, false
	defaults := SyncSettings{CreateNamespace: &yes, Validate: &no, ServerSideApply: &yes,
		ManagedNamespaceMetadata: &NamespaceMetadata{Labels: map[string]string{"team": "a"}}}
	got := SyncSettings{ServerSideApply: &no, Validate: &yes}.Resolved(defaults)
	want := Sync{Automated: true, Prune: true, SelfHeal: true, CreateNamespace: true,
		ManagedNamespaceMetadata: defaults.ManagedNamespaceMetadata}
	if got != want {
		t.Errorf("got %+v", got)
	}
	if got := (SyncSettings{CreateNamespace: &no}).Resolved(defaults); got.CreateNamespace ||
		got.ManagedNamespaceMetadata != nil {
		t.Errorf("metadata of a namespace that is not created: %+v", got)
	}
}

func TestARetryIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		retry *Retry
		good  bool
	}{
		"none":          {nil, true},
		"without end":   {&Retry{Limit: RetryForever}, true},
		"no repetition": {&Retry{}, true},
		"all fields": {&Retry{Limit: MaxRetries, Backoff: &Backoff{Duration: MinBackoff,
			Factor: MaxFactor, MaxDuration: MaxBackoff}}, true},
		"a negative limit": {&Retry{Limit: -2}, false},
		"a large limit":    {&Retry{Limit: MaxRetries + 1}, false},
		"a busy loop": {&Retry{Backoff: &Backoff{Duration: Duration(time.Millisecond)}},
			false},
		"a long wait": {&Retry{Backoff: &Backoff{MaxDuration: MaxBackoff + 1}}, false},
		"a factor":    {&Retry{Backoff: &Backoff{Factor: MaxFactor + 1}}, false},
	} {
		if err := c.retry.Check(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysOfNamespacesAreGrantedExactlyOrByDomain(t *testing.T) {
	grants := []string{"team", "pod-security.kubernetes.io/", "example.com/owner",
		"argocd.argoproj.io/", "kubernetes.io/", "*"}
	for key, want := range map[string]bool{
		"team":                               true,
		"pod-security.kubernetes.io/enforce": true,
		"example.com/owner":                  true,
		"istio-injection":                    false,
		"example.com/owners":                 false,
		"x.pod-security.kubernetes.io/a":     false,
		"pod-security.kubernetes.io/":        false,
		"pod-security.kubernetes.io/a/b":     false,
		"argocd.argoproj.io/managed-by":      false,
		"kubernetes.io/metadata.name":        false,
		"kubernetes.io/team":                 true,
		"":                                   false,
		"*":                                  false,
	} {
		if got := NamespaceKeyGranted(grants, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
	}
}
