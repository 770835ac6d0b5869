package settings

import "errors"

// Agents is pull mode: clusters that dial out.
type Agents struct {
	Enabled         bool `yaml:"enabled,omitempty" doc:"Answer agents. They need listen.publicURL, which is the name that they prove themselves to." default:"true"`
	ConnectRate     int  `yaml:"connectRate,omitempty" doc:"Agents that may open a session with this replica in a second, 1 to 1000. The others wait in the order in which they came." default:"100"`
	LegacyTokenPath bool `yaml:"legacyTokenPath,omitempty" doc:"Also answer GET /api/v1/cluster/<token>/applications for clusters set up by hand. A token in a URL ends up in the logs of proxies: leave it off unless something still asks there." default:"false"`
}

func (a *Agents) check() error {
	if a.ConnectRate < 1 || a.ConnectRate > 1000 {
		return errors.New("agents.connectRate is to be 1 to 1000")
	}
	return nil
}
