package applied

import (
	"testing"

	"argosy.dev/argosy/fleet"
)

// The memory of a version with one source for each Application.
const earlierMemory = `{"leaving":[{"application":{"tenant":"acme","deployment":"web",` +
	`"environment":"prod"},"key":{"engine":"eu-1","kind":"Application","name":"acme-web-prod"},` +
	`"repoURL":"https://git.example.com/acme/web"}]}`

func TestTheMemoryOfEarlierVersionsIsRead(t *testing.T) {
	m, err := readMemory([]byte(earlierMemory))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Terminating[0].RepoURLs; got != "https://git.example.com/acme/web" {
		t.Errorf("repositories %q", got)
	}
	if again, err := m.encode(); err != nil || string(again) != earlierMemory {
		t.Errorf("written again: %s, %v", again, err)
	}
}

func TestAnApplicationReadsEachOfItsRepositories(t *testing.T) {
	l := New().Layers
	id := fleet.ApplicationID{Tenant: "acme", Deployment: "web", Environment: "prod"}
	urls := fleet.RepoURLsOf([]fleet.Source{{RepoURL: "https://git.example.com/acme/web"},
		{RepoURL: "https://git.example.com/acme/values"},
		{RepoURL: "https://git.example.com/acme/web"}})
	n := 0
	for url := range urls.All() {
		n++
		if c := l.CountRead("eu-1", id, url, 1); !c.Used || !c.Listed || !c.UsedIn {
			t.Errorf("%s: %+v", url, c)
		}
	}
	if n != 2 {
		t.Errorf("%d repositories in %q", n, urls)
	}
}
