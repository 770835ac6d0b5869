package argocd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/argoproj/argo-cd/v2/pkg/apis/application/v1alpha1"
	"k8s.io/client-go/rest"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

// Argo CD authenticates at some clusters as a service account of the environment. Its token is
// bounded: Argosy requests it (TokenRequest), writes it into the cluster Secret and replaces it
// when two thirds of its life are over. The Secret's annotations have both times, so that a start
// without memory renews no sooner and no later.

const (
	// tokenLife is the requested life of a token. An API server may grant less. Argo CD reads a
	// whole cluster again when its token changes, so that a shorter one is no gain.
	tokenLife = 24 * time.Hour
	// shortestLife of a granted token; a shorter one would expire between two attempts
	shortestLife = 5 * time.Minute
	renewRetry   = time.Minute // after a failure while the token before still works
	narrowRetry  = time.Minute // of the review of namespaces that an account may not list
)

// tokenTimes are the times of a cluster Secret's token.
type tokenTimes struct{ renews, expires time.Time }

// tokenTimesOf reads annotations; nil if the object has no requested token. A malformed time counts
// as long past.
func tokenTimesOf(annotations map[string]string) *tokenTimes {
	if annotations[fleet.AccountAnnotation] == "" {
		return nil
	}
	var t tokenTimes
	for name, into := range map[string]*time.Time{annotationRenews: &t.renews,
		annotationExpires: &t.expires} {
		if at, err := time.Parse(time.RFC3339, annotations[name]); err == nil {
			*into = at
		}
	}
	return &t
}

func (t *tokenTimes) annotations() map[string]string {
	return map[string]string{annotationRenews: t.renews.UTC().Format(time.RFC3339),
		annotationExpires: t.expires.UTC().Format(time.RFC3339)}
}

// accountOf returns the service account whose token a row needs; nil if it needs none.
func accountOf(row mirror.Row) (*fleet.ServiceAccount, error) {
	if row.Key.Kind != fleet.ObjectCluster {
		return nil, nil
	}
	var manifest struct {
		Metadata struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(row.Manifest.Body, &manifest); err != nil {
		return nil, fmt.Errorf("%s %s: object is not JSON: %w", row.Key.Kind, row.Key.Name, err)
	}
	text := manifest.Metadata.Annotations[fleet.AccountAnnotation]
	if text == "" {
		return nil, nil
	}
	want := fleet.AccountOf(fleet.EnvironmentID{Tenant: row.Tenant, Name: row.Environment})
	if text != want.String() {
		return nil, fmt.Errorf("%s %s: its service account %s is not its environment's",
			row.Key.Kind, row.Key.Name, text)
	}
	return &want, nil
}

// applyToken is Apply for a cluster Secret with a token of a service account. It requests a token
// if the Secret has none for this row or is due. If that fails, the token before stays. A Secret
// that does not get what its account may not list (narrow) is ApplyFailed, and still renewed.
func (e *Engine) applyToken(ctx context.Context, row mirror.Row, account fleet.ServiceAccount,
	secret fleet.Secret, lease mirror.Lease, known *entry) (engine.Outcome, error) {
	why := ""
	if !known.hasToken(row, lease) {
		var err error
		if row, why, err = e.narrow(ctx, row, known); err != nil {
			return engine.Outcome{}, e.explain(row.Key, err)
		}
	}
	out, err := e.applyNarrowed(ctx, row, account, secret, lease, known)
	if err == nil && why != "" && out.State == mirror.ApplyApplied {
		out.State, out.RetryAfter = mirror.ApplyFailed, narrowRetry
		out.Message = strings.TrimPrefix(out.Message+"; "+why, "; ")
	}
	return out, err
}

func (e *Engine) applyNarrowed(ctx context.Context, row mirror.Row, account fleet.ServiceAccount,
	secret fleet.Secret, lease mirror.Lease, known *entry) (engine.Outcome, error) {
	now := e.options.Now()
	has := known.hasToken(row, lease)
	if has && now.Before(known.token.renews) {
		return engine.Outcome{State: mirror.ApplyApplied, Renew: known.token.renews.Sub(now)}, nil
	}
	token, times, err := e.requestToken(ctx, row, account, secret)
	if err != nil {
		err = fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
		if !has || errors.Is(err, engine.ErrStopped) || !now.Before(known.token.renews.Add(
			known.token.expires.Sub(known.token.renews)/2)) {
			return engine.Outcome{}, err
		}
		return engine.Outcome{State: mirror.ApplyApplied, Message: err.Error(), Kept: true,
			Renew: renewRetry}, nil
	}
	w, err := prepareWith(row, token, lease, times.annotations())
	if err != nil {
		return engine.Outcome{}, err
	}
	out, err := e.applyDesired(ctx, w, known)
	if err == nil && out.State == mirror.ApplyApplied {
		out.Renew = max(times.renews.Sub(now), renewRetry)
	}
	return out, err
}

// hasToken reports whether the known object is the row's, as we wrote it, with a token.
func (e *entry) hasToken(row mirror.Row, lease mirror.Lease) bool {
	return e != nil && e.token != nil && e.Ours && e.Tenant == row.Tenant && !e.Drifted &&
		!e.Deleting && e.Hash == row.Manifest.Hash && e.Epoch <= lease.Epoch
}

// issuer is where tokens of a cluster are requested.
type issuer struct {
	*client
	ca []byte // of the API server; empty: the system's
}

// issuerOf returns the connection to the engine for the engine's own cluster, and for a Cluster of
// the platform one with the platform's credential, which serves one request.
func (e *Engine) issuerOf(row mirror.Row, secret fleet.Secret) (issuer, error) {
	var manifest struct{ Data map[string]any }
	if err := json.Unmarshal(row.Manifest.Body, &manifest); err != nil {
		return issuer{}, fmt.Errorf("object is not JSON: %w", err)
	}
	key, err := dataValue(manifest.Data, "server")
	var config v1alpha1.ClusterConfig
	raw, configErr := dataValue(manifest.Data, "config")
	if err := errors.Join(err, configErr); err != nil || json.Unmarshal(raw, &config) != nil {
		return issuer{}, fmt.Errorf("the manifest of a cluster has no server or config")
	}
	server, _, _ := strings.Cut(string(key), "?")
	if server == fleet.InClusterServer {
		return issuer{e.client, e.ca}, nil
	}
	if err := fleet.CheckServerURL(server); err != nil {
		return issuer{}, fmt.Errorf("server %q: %w", server, err)
	}
	given, err := clusterCredential(secret, string(key))
	if err != nil {
		return issuer{}, fmt.Errorf("secret %s: %w", credentialName(row), err)
	}
	if len(config.CAData) > 0 {
		given.ca = config.CAData
	}
	transport, err := newTransport(&rest.Config{Host: server, BearerToken: given.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: given.ca, CertData: given.cert,
			KeyData: given.key}}, e.options)
	if err != nil {
		return issuer{}, unusable("it cannot be used for %s", server)
	}
	base, err := url.Parse(server)
	return issuer{&client{http: &http.Client{Transport: transport,
		CheckRedirect: noRedirect}, base: base, flow: newFlow(1, 1),
		timeout: e.options.Timeout, retries: 1}, given.ca}, err
}

// requestToken requests a token of a service account. The Secret also has the CA of the API server.
func (e *Engine) requestToken(ctx context.Context, row mirror.Row, account fleet.ServiceAccount,
	secret fleet.Secret) (fleet.Secret, *tokenTimes, error) {
	from, err := e.issuerOf(row, secret)
	if err != nil {
		return fleet.Secret{}, nil, err
	}
	if from.client != e.client {
		defer from.http.CloseIdleConnections()
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "authentication.k8s.io/v1",
		"kind": "TokenRequest", "spec": map[string]any{
			"expirationSeconds": int(tokenLife.Seconds())}})
	if err != nil {
		return fleet.Secret{}, nil, err
	}
	var answer struct {
		Status struct {
			Token               string
			ExpirationTimestamp time.Time
		}
	}
	err = from.do(ctx, request{precheck: e.unlessStopped(row.Tenant), method: http.MethodPost,
		path: "/api/v1/namespaces/" + url.PathEscape(account.Namespace) + "/serviceaccounts/" +
			url.PathEscape(account.Name) + "/token",
		contentType: plainJSON, body: body}, &answer)
	if err != nil {
		return fleet.Secret{}, nil, explainToken(account, err)
	}
	now, token := e.options.Now(), strings.TrimSpace(answer.Status.Token)
	life := min(answer.Status.ExpirationTimestamp.Sub(now), tokenLife)
	if err := checkText("the requested token", token, 16<<10); err != nil {
		return fleet.Secret{}, nil, err
	}
	if life < shortestLife {
		return fleet.Secret{}, nil, unusable("the API server grants tokens of service account %s "+
			"for %s; at least %s are needed", account, life.Round(time.Second), shortestLife)
	}
	// Between 60 % and 70 % of its life, so that tokens that were requested together are not
	// renewed together.
	return fleet.NewSecret(map[string][]byte{keyToken: []byte(token), keyCA: from.ca}),
		&tokenTimes{renews: now.Add(life*6/10 + rand.N(life/10)), expires: now.Add(life)}, nil
}

// explainToken states the next step of a refused request. It does not repeat the API server's
// message, which names the platform's identity.
func explainToken(account fleet.ServiceAccount, err error) error {
	switch codeOf(err) {
	case 0:
		return fmt.Errorf("token of service account %s: %w", account, err)
	case http.StatusNotFound:
		return unusable("service account %s does not exist on the cluster; the platform creates it",
			account)
	case http.StatusForbidden:
		return unusable("Argosy may not request tokens of service account %s; the platform grants "+
			"create on serviceaccounts/token in namespace %s of the cluster", account,
			account.Namespace)
	}
	return unusable("the API server answered %d to the request for a token of service account %s",
		codeOf(err), account)
}
