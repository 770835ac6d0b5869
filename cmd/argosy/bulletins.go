package main

import (
	"strings"
	"time"

	"argosy.dev/argosy/cmd/argosy/table"
	"argosy.dev/argosy/fleet/view"
)

var bulletinColumns = []column[view.Bulletin]{
	{head: "NAME", of: func(b view.Bulletin, _ time.Time) table.Value {
		return table.Text(b.Name)
	}},
	{head: "SEVERITY", of: func(b view.Bulletin, _ time.Time) table.Value {
		return table.Text(b.Severity)
	}},
	{head: "FIXED IN", of: func(b view.Bulletin, _ time.Time) table.Value {
		return table.Text(strings.Join(b.FixedIn, ", "))
	}},
	{head: "LACKING", of: func(b view.Bulletin, _ time.Time) table.Value {
		var all []string
		for _, e := range b.Lacking {
			all = append(all, string(e.Engine)+" "+e.Version)
		}
		if len(all) == 0 {
			return table.Value{Text: "none", Tone: table.Good}
		}
		return table.Value{Text: strings.Join(all, ", "), Tone: table.Bad}
	}},
	{head: "UNKNOWN", of: func(b view.Bulletin, _ time.Time) table.Value {
		var all []string
		for _, e := range b.Unknown {
			all = append(all, string(e))
		}
		return table.Text(strings.Join(all, ", "))
	}},
	{head: "URL", wide: true, of: func(b view.Bulletin, _ time.Time) table.Value {
		return table.Text(b.URL)
	}},
}
