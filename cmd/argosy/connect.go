package main

import (
	"errors"
	"fmt"

	"argosy.dev/argosy/api/client"
	"argosy.dev/argosy/cmd/argosy/contexts"
)

// connect is a client for the control plane that the flags, the environment or the context name, in
// this order. A context's token goes to that context's server only.
func (a *app) connect() (*client.Client, error) {
	target, err := a.target()
	if err != nil {
		return nil, err
	}
	return client.New(target.Server, target.Token, "argosy/"+versionText())
}

func (a *app) target() (contexts.Context, error) {
	given := contexts.Context{Server: first(a.server, a.getenv("ARGOSY_SERVER")),
		Token: first(a.token, a.getenv("ARGOSY_TOKEN"))}
	if given.Server != "" && given.Token != "" && a.context == "" {
		return given, nil
	}
	saved, err := a.saved()
	if err != nil {
		return saved, err
	}
	if given.Server == "" {
		given.Server = saved.Server
	}
	if given.Token == "" && given.Server == saved.Server {
		given.Token = saved.Token
	}
	switch {
	case given.Server == "":
		return given,
			errors.New(
				"no control plane is known; run `argosy login URL`, or set --server or " +
					"ARGOSY_SERVER")
	case given.Token == "":
		return given, notAllowed{
			fmt.Errorf("there is no token for %s; run `argosy login %s`, or set ARGOSY_TOKEN",
				given.Server, given.Server)}
	}
	return given, nil
}

// saved is the context that --context names, or the current one; an empty one when none is saved.
func (a *app) saved() (contexts.Context, error) {
	path, err := contexts.Path(a.getenv)
	if err != nil {
		if a.context == "" {
			return contexts.Context{}, nil
		}
		return contexts.Context{}, err
	}
	file, err := contexts.Load(path)
	if err != nil {
		return contexts.Context{}, err
	}
	found, ok := file.Find(a.context)
	if !ok && a.context != "" {
		return found,
			fmt.Errorf("context %q is not saved in %s; run `argosy login URL --context %s`",
				a.context, path, a.context)
	}
	return found, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
