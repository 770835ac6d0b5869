package reviews

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReviewedPaths(t *testing.T) {
	const victim, evil, own = "tenants/victim/deployments/a.yaml",
		"tenants/evil/deployments/b.yaml", "fleet/fleet.yaml"
	type files = map[string]string
	shown := func(of ...files) []map[string]string { return of }
	for name, c := range map[string]struct {
		commits []Commit
		want    files
	}{
		"a merge commit or squash has what the pull request showed": {
			[]Commit{{Changed: files{evil: "2", victim: "2"}, Shown: shown(files{evil: "2"})}},
			files{evil: "2"},
		},
		"criss-cross merges bring content that the pull request did not show": {
			[]Commit{
				{Changed: files{"tenants/evil/x": "1"}, Shown: shown(files{"tenants/evil/x": "1"})},
				{Changed: files{"fleet/tenants/evil.yaml": "e"}, Shown: shown(files{})}},
			files{"tenants/evil/x": "1"},
		},
		"a rebase is judged by what its head showed": {
			[]Commit{{Changed: files{evil: "1"}}, {Changed: files{evil: "2"}},
				{Changed: files{own: "9"}, Shown: shown(files{evil: "2", own: "9"})}},
			files{evil: "2", own: "9"},
		},
		"a rebase that replays what a merge had undone": {
			[]Commit{
				{Changed: files{victim: "bad"}},
				{Changed: files{evil: "2"}, Shown: shown(files{evil: "2"})}}, files{evil: "2"},
		},
		"a rebase that leaves other content than its head showed": {
			[]Commit{
				{Changed: files{evil: "1"}},
				{Changed: files{evil: "3"}, Shown: shown(files{evil: "2"})}}, files{},
		},
		"two pull requests in a group of the merge queue": {
			[]Commit{{Changed: files{evil: "1"}, Shown: shown(files{evil: "1"})},
				{Changed: files{victim: "1"}, Shown: shown(files{victim: "1"})}},
			files{evil: "1", victim: "1"},
		},
		"two pull requests merged as one commit": {
			[]Commit{
				{Changed: files{evil: "1", victim: "1", own: "1"},
					Shown: shown(files{evil: "1"}, files{victim: "1"})}},
			files{evil: "1", victim: "1"},
		},
		"a later unreviewed commit replaces a reviewed one": {
			[]Commit{{Changed: files{evil: "1"}, Shown: shown(files{evil: "1"})},
				{Changed: files{evil: "2"}}}, files{},
		},
		"a later reviewed commit replaces an unreviewed one": {
			[]Commit{
				{Changed: files{victim: "bad"}},
				{Changed: files{victim: "2"}, Shown: shown(files{victim: "2"})}},
			files{victim: "2"},
		},
		"a revert through a pull request": {
			[]Commit{{Changed: files{victim: "2"}, Shown: shown(files{victim: "2"})},
				{Changed: files{victim: "1"}, Shown: shown(files{victim: "1"})}},
			files{victim: "1"},
		},
		"an unreviewed revert": {
			[]Commit{{Changed: files{victim: "2"}, Shown: shown(files{victim: "2"})},
				{Changed: files{victim: "1"}}}, files{},
		},
		"a deletion, and content where a deletion was shown": {
			[]Commit{
				{Changed: files{evil: "", victim: "3"}, Shown: shown(files{evil: "", victim: ""})}},
			files{evil: ""},
		},
		"a rename": {
			[]Commit{{Changed: files{evil: "", own: "1"}, Shown: shown(files{evil: "", own: "1"})}},
			files{evil: "", own: "1"},
		},
		"a pull request that shows what the branch has already": {
			[]Commit{{Shown: shown(files{victim: "1"})}}, files{victim: "1"},
		},
		"forged statuses: merged without consent": {
			[]Commit{{Changed: files{victim: "1"}}}, files{},
		},
		"pushed by a trusted account, and by another one after it": {
			[]Commit{{Changed: files{victim: "1", own: "1"}, Trusted: true},
				{Changed: files{victim: "2"}}}, files{own: "1"},
		},
		"nothing": {nil, files{}},
	} {
		got, trusted := Paths(c.commits)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if want := strings.HasPrefix(name, "pushed by a trusted"); want != trusted[own] ||
			want != (len(trusted) == 1) {
			t.Errorf("%s: trusted %v", name, trusted)
		}
	}
}
