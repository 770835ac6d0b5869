package review

import (
	"slices"
	"strings"
	"testing"
	"unicode"

	"argosy.dev/argosy/fleet/forge"
)

func TestACommandIsTheFirstLine(t *testing.T) {
	for body, want := range map[string]string{
		"/argosy help":                               "help",
		"/argosy":                                    "",
		"/argosy  \t approve   1a2b3c4d ":            "approve 1a2b3c4d",
		"/argosy Approve 1A2B3C4\r\nlooks good":      "approve 1A2B3C4",
		"/argosy lock\nuntil monday":                 "lock",
		"/argosy plan\n> /argosy approve 1a2b3c4":    "plan",
		"/argosy \U0001f44d":                         "\U0001f44d",
		"/argosy approve " + strings.Repeat("1", 40): "approve " + strings.Repeat("1", 40),
	} {
		c, ok := ParseCommand(body)
		if got := strings.TrimSpace(c.Word + " " + strings.Join(c.Args, " ")); !ok || got != want {
			t.Errorf("%q: %q %v, want %q", body, got, ok, want)
		}
	}
}

func TestWhatIsNoCommand(t *testing.T) {
	for _, body := range []string{
		"", "argosy help", " /argosy help", "\n/argosy help", "> /argosy approve 1a2b3c4d",
		"```\n/argosy approve 1a2b3c4d\n```", "    /argosy lock", "`/argosy lock`",
		"<!--\n/argosy lock\n-->", "/argosyhold", "/Argosy hold", "/argosy-hold",
		"please /argosy lock", "- /argosy lock", "/argosy lock\x00", "/argosy \u202ehold",
		"/argosy ho\u200bld",
		"/argosy lock \xff", "/argosy\rhold", "/argosy " + strings.Repeat("x", 64<<10),
		"\ufeff/argosy lock",
	} {
		if c, ok := ParseCommand(body); ok {
			t.Errorf("%q is taken for %v", body[:min(len(body), 60)], c)
		}
	}
}

func FuzzParseCommand(f *testing.F) {
	for _, s := range []string{"/argosy help", "/argosy approve 1a2b3c4\r\nx", "> /argosy lock",
		"/argosy \x00", "```\n/argosy lock", "/argosy " + strings.Repeat("`", 600),
		"/argosy\tresume\n\n"} {
		f.Add(s)
	}
	facts, _ := purge(f)
	f.Fuzz(func(t *testing.T, body string) {
		c, ok := ParseCommand(body)
		if !ok {
			return
		}
		if !strings.HasPrefix(body, "/argosy") ||
			len(strings.Join(append(c.Args, c.Word), "")) > mostCommand {
			t.Fatalf("%q gave %+v", body, c)
		}
		for _, w := range append(c.Args, c.Word) {
			if strings.ContainsFunc(w, func(r rune) bool {
				return !unicode.IsPrint(r) ||
					r == ' '
			}) {
				t.Fatalf("%q gave the word %q", body, w)
			}
		}
		record, reply := Judge(c, forge.Clearance{By: mallet, Head: head, At: noon},
			RightsOf(mallet, facts), facts.Record)
		if record.Held != nil || record.Tested != nil || record.Cleared != nil ||
			len(record.Consents) > 0 {
			t.Fatalf("%q: a stranger did something: %+v", body, record)
		}
		if bad := misread("", strings.Join(each(strings.Split(reply, "\n"), prose),
			"\n")); bad != "" {
			t.Fatalf("%q: %s", body, bad)
		}
	})
}

func TestOnlyNewUneditedCommentsOfOthersAreCommands(t *testing.T) {
	comments := []forge.Comment{
		{ID: 5, Author: alice, Body: "/argosy lock", At: noon},
		{ID: 3, Author: alice, Body: "/argosy plan"},
		{ID: 9, Author: alice, Body: "/argosy unlock", Edited: true},
		{ID: 7, Author: alice, Body: "/argosy lock", Own: true},
		{ID: 6, Author: bob, Body: "/argosy help"},
	}
	commands, newest := Commands(
		comments, forge.PullRecord{Pull: forge.Pull{Head: head}, Commented: 4})
	if newest != 9 || len(commands) != 2 || commands[0].Word != "lock" ||
		commands[1].Word != "help" ||
		commands[0].By.By != alice || commands[0].By.Head != head ||
		!commands[0].By.At.Equal(noon) {
		t.Errorf("%d %+v", newest, commands)
	}
	if commands, newest := Commands(nil, forge.PullRecord{Commented: 4}); len(commands) != 0 ||
		newest != 4 {
		t.Error("no command was given", commands, newest)
	}
}

// judged is what a command of a person comes to.
func judged(f Facts, p forge.Person, line string) (forge.PullRecord, string) {
	c, _ := ParseCommand(line)
	return Judge(c, forge.Clearance{By: p, Head: f.Record.Head, At: noon}, RightsOf(p, f), f.Record)
}

func did(before, after forge.PullRecord) string {
	var what []string
	if len(after.Consents) != len(before.Consents) {
		what = append(what, "approved")
	}
	if (after.Held != nil) != (before.Held != nil) {
		what = append(what, "locked or unlocked")
	}
	if (after.Tested != nil) != (before.Tested != nil) {
		what = append(what, "tested")
	}
	if (after.Cleared != nil) != (before.Cleared != nil) {
		what = append(what, "cleared")
	}
	return strings.Join(what, ", ")
}

func TestWhoMayDoWhat(t *testing.T) {
	writer := forge.Person{ID: 40, Login: "wendy"}
	gina := forge.Person{ID: 21, Login: "gina"}
	commands := []string{"/argosy approve " + string(head), "/argosy lock",
		"/argosy approve-deletions " + string(head), "/argosy ok-to-test " + string(head)}
	for _, c := range []struct {
		who  forge.Person
		want []string
	}{
		{alice, []string{"approved", "locked or unlocked", "cleared", ""}},
		// the platform's owner owns nothing that the pull request touches
		{carol, []string{"", "locked or unlocked", "cleared", "tested"}},
		{writer, []string{"", "locked or unlocked", "", "tested"}},
		{gina, []string{"", "", "", ""}}, // another tenant's owner
		{mallet, []string{"", "", "", ""}},
		{forge.Person{ID: 0, Login: "alice"}, []string{"", "", "", ""}}, // a deleted account
		// a login that a stranger has taken
		{forge.Person{ID: 99, Login: "alice"}, []string{"", "", "", ""}},
	} {
		for i, line := range commands {
			f, _ := purge(t)
			f.Record.Fork = true
			f.Permissions = map[int64]forge.Permission{writer.ID: forge.PermissionWrite,
				mallet.ID: forge.PermissionRead}
			after, reply := judged(f, c.who, line)
			if got := did(f.Record, after); got != c.want[i] {
				t.Errorf("%v %s: %q, want %q (%s)", c.who, line, got, c.want[i], reply)
			}
			if after.Replies[len(after.Replies)-1] != reply || reply == "" {
				t.Errorf("the answer %q is not kept: %q", reply, after.Replies)
			}
		}
	}
}

func TestAWordIsBoundToTheHead(t *testing.T) {
	f, _ := bump(t)
	for line, want := range map[string]string{
		"/argosy approve " + string(head):                         "approved",
		"/argosy approve " + strings.ToUpper(string(head)):        "",
		"/argosy approve " + string(head[:39]):                    "",
		"/argosy approve 1a2b3c4":                                 "",
		"/argosy approve 1a2b3c4d":                                "",
		"/argosy approve":                                         "",
		"/argosy approve 0de50de5":                                "",
		"/argosy approve " + string(head) + " now":                "",
		"/argosy approve " + string(head) + "0":                   "",
		"/argosy approve " + string(head) + "\n/argosy lock":      "approved",
		"/argosy lock " + string(head):                            "",
		"/argosy approve `" + string(head) + "`":                  "",
		"/argosy approve-deletions " + string(head):               "", // there are none
		"/argosy ok-to-test " + string(head):                      "", // it is no fork
		"/argosy unlock":                                          "",
		"/argosy approve\u00a0" + string(head):                    "",
		"/argosy approve " + string(head[:8]) + string(older[8:]): "", // it begins alike
		"/argosy approve " + string(head[:39]) + "f":              "",
	} {
		after, reply := judged(f, alice, line)
		if got := did(f.Record, after); got != want {
			t.Errorf("%q: %q, want %q (%s)", line, got, want, reply)
		}
	}
	if _, reply := judged(f, alice, "/argosy approve 1a2b3c4d"); !strings.Contains(reply,
		"too short") || !strings.Contains(reply, "Write all 40: `/argosy approve "+string(head)+
		"`") {
		t.Error(reply)
	}
	fork, _ := bump(t)
	fork.Record.Fork = true
	fork.Permissions = map[int64]forge.Permission{mallet.ID: forge.PermissionWrite}
	if after, reply := judged(fork, mallet, "/argosy ok-to-test "+
		string(older)); after.Tested != nil || !strings.Contains(reply, "is not the head") {
		t.Errorf("another head was cleared: %s", reply)
	}
	if after, reply := judged(fork, mallet, "/argosy ok-to-test"); after.Tested != nil ||
		!strings.Contains(reply, "needs the commit") {
		t.Errorf("a head that no command named was cleared: %s", reply)
	}
}

func TestACommandIsAnsweredInTheFieldsOwnWords(t *testing.T) {
	f, _ := bump(t)
	for line, want := range map[string]string{
		"/argosy aprove 1a2b3c4d": "Did you mean `/argosy approve`?",
		"/argosy approve-del":     "Did you mean `/argosy approve-deletions`?",
		"/argosy ok":              "`/argosy help` lists",
		"/argosy HELP":            "`/argosy approve <sha>`: approve this head",
		"/argosy":                 "`/argosy lock`: keep",
		"/argosy approve":         "`/argosy approve " + string(head) + "`",
		"/argosy @everyone":       "there is no `/argosy @everyone`",
		"/argosy plan":            "`alice` asked for a new review",
		"/argosy hold":            "`/argosy hold` is called `/argosy lock` now",
		"/argosy resume":          "`/argosy resume` is called `/argosy unlock` now",
	} {
		_, reply := judged(f, alice, line)
		if !strings.Contains(reply, want) {
			t.Errorf("%q: %q, want %q", line, reply, want)
		}
	}
	if _, reply := judged(f, alice, "/argosy sing"); strings.Contains(reply, "mean") {
		t.Error("far from everything, and yet", reply)
	}
}

func TestARenamedCommandDoesNothing(t *testing.T) {
	f, _ := bump(t)
	if after, _ := judged(f, alice, "/argosy hold"); after.Held != nil {
		t.Error("hold locks")
	}
	f.Record, _ = judged(f, alice, "/argosy lock")
	if after, _ := judged(f, alice, "/argosy resume"); f.Record.Held == nil || after.Held == nil {
		t.Error("resume unlocks")
	}
}

func TestOnlyTheLastAnswersAreKept(t *testing.T) {
	f, _ := bump(t)
	kept := slices.Clone(f.Record.Replies)
	for range 8 {
		f.Record, _ = judged(f, alice, "/argosy lock")
	}
	if len(f.Record.Replies) != mostReplies || len(kept) != 0 {
		t.Errorf("%d answers", len(f.Record.Replies))
	}
}

func TestAClosedPullRequestIsLeftAlone(t *testing.T) {
	f, _ := bump(t)
	f.Record.State = forge.PullMerged
	if after, reply := judged(f, alice, "/argosy lock"); after.Held != nil ||
		!strings.Contains(reply, "merged") {
		t.Error(reply)
	}
}

func TestApprovingTwiceIsApprovingOnce(t *testing.T) {
	f, _ := bump(t)
	f.Record.Consents = []forge.Clearance{{By: alice, Head: older, At: noon},
		{By: bob, Head: head, At: noon}}
	before := slices.Clone(f.Record.Consents)
	after, _ := judged(f, alice, "/argosy approve "+string(head))
	if len(after.Consents) != 2 || !slices.Equal(ids(f.Record.Consents), ids(before)) {
		t.Errorf("%+v", after.Consents)
	}
}

func ids(c []forge.Clearance) []int64 {
	return each(c, func(c forge.Clearance) int64 { return c.By.ID })
}
