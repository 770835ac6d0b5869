package view

import (
	"errors"
	"time"

	"argosy.dev/argosy/fleet/access"
)

// Provider is an identity provider that people sign in with.
type Provider struct {
	Name  string `json:"name"`  // in the settings, e.g. corp
	Title string `json:"title"` // for people
}

// Attempt is one sign-in in a browser, which keeps it in a cookie until the provider sends the
// person back.
type Attempt struct {
	Provider string    `json:"p"`
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"` // of PKCE
	To       string    `json:"t"` // path to show afterwards
	At       time.Time `json:"a"`
}

// DeviceCode is one sign-in of a command line, which polls until the person has confirmed it.
type DeviceCode struct {
	Code      string    `json:"code" doc:"For the polls; it is a secret"`
	UserCode  string    `json:"userCode" doc:"The person enters it at the URL"`
	URL       string    `json:"url"`
	Complete  string    `json:"complete,omitempty" doc:"The URL with the code in it"`
	ExpiresAt time.Time `json:"expiresAt"`
	Interval  int       `json:"interval" doc:"Seconds between polls"`
}

// Proven is what a provider has proven of a person.
type Proven struct {
	Person  access.Person
	Refresh []byte // to ask again later; nil: the provider gives none
}

// Errors of sign-ins.
var (
	// ErrPending means that the person has not confirmed the code yet.
	ErrPending = errors.New("the code is not confirmed yet")
	// ErrSlowDown means the same, and that the polls are too frequent.
	ErrSlowDown = errors.New("the code is asked for too often")
	// ErrNoProvider means that no provider has the name.
	ErrNoProvider = errors.New("no identity provider has this name")
	// ErrProviderDown means that the provider does not answer, or not as it has to.
	ErrProviderDown = errors.New("the identity provider does not answer")
)

// SignInRefused is the refusal of a sign-in, by the provider or by a check of its answer.
type SignInRefused struct {
	Why  string // for the person
	Next string
}

func (r *SignInRefused) Error() string { return r.Why }
