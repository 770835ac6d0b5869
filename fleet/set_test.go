package fleet

import (
	"strings"
	"testing"
)

func TestAVariableOfAnItemIsReplacedOnce(t *testing.T) {
	item := map[string]string{"name": "cart", "team-2": "a$", "nested": "${item.name}", "none": ""}
	for text, want := range map[string]string{
		"plain":                         "plain",
		"${item.name}":                  "cart",
		"a/${item.name}-${item.team-2}": "a/cart-a$",
		"$${item.name}":                 "${item.name}",
		"$$${item.name}":                "$${item.name}",
		"${item.nested}":                "${item.name}",
		"[${item.none}]":                "[]",
		"${environment.name}":           "${environment.name}",
		"${items.name}":                 "${items.name}",
	} {
		if got, err := ExpandItem(text, item); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"${item.nam}": `no field "nam"`, "${item}": "no variable", "${item.}": "no variable",
		"${item.a b}": "no variable", "x${item.name": "no variable",
		"${item.environment.name}": `no field "environment.name"`, "${item.a..b}": "no variable",
	} {
		if got, err := ExpandItem(text, item); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %q, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestOnlyThePathOfASetNamesTheSet(t *testing.T) {
	k := Key{Kind: KindGitOpsDeployment, Tenant: "acme", Name: "cart"}
	if set, is := SetOf(k, "tenants/acme/sets/shop.yaml"); !is || set != "shop" {
		t.Error(set, is)
	}
	for _, path := range []string{"", "tenants/acme/deployments/cart.yaml",
		"tenants/globex/sets/shop.yaml"} {
		if set, is := SetOf(k, path); is || set != "" {
			t.Errorf("%s is of set %q", path, set)
		}
	}
	k.Kind = KindSyncRun
	if set, is := SetOf(k, "tenants/acme/sets/shop.yaml"); is {
		t.Errorf("a SyncRun is of set %q", set)
	}
}

func FuzzExpandItem(f *testing.F) {
	f.Add("${item.name}", "cart")
	f.Add("$${item.name}${item.", "$")
	f.Fuzz(func(t *testing.T, text, value string) {
		got, err := ExpandItem(text, map[string]string{"name": value})
		if !strings.Contains(text, "${item") && (got != text || err != nil) {
			t.Errorf("%q without a variable is %q, %v", text, got, err)
		}
	})
}
