package argocd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"argosy.dev/argosy/fleet"
	"argosy.dev/argosy/fleet/engine"
	"argosy.dev/argosy/fleet/mirror"
)

const (
	attempts     = 5 // of a write that conflicts with other writers
	deletingWait = 5 * time.Second
)

// Apply makes one object match its row. It sends one server-side apply if the object differs or is
// missing, and no request if it matches. The secret is the credential of a Cluster or Repository
// row. Outcome.State is ApplyApplied; ApplyConflict if another manager keeps changing the object;
// ApplyFailed if a cluster Secret lacks namespaces of its row (narrow); or ApplyPending while an
// older object of that name is being deleted. Errors are those of package engine.
func (e *Engine) Apply(ctx context.Context, row mirror.Row, secret fleet.Secret,
	lease mirror.Lease) (engine.Outcome, error) {
	if err := errors.Join(e.ready(), e.checkPublic(row.Key)); err != nil {
		return engine.Outcome{}, err
	}
	known := e.cache.get(row.Key)
	account, err := accountOf(row)
	if err != nil {
		return engine.Outcome{}, err
	}
	if account != nil {
		return e.applyToken(ctx, row, *account, secret, lease, known)
	}
	w, err := prepare(row, secret, lease)
	if err == nil {
		err = e.checkArtifacts(w)
	}
	if err != nil {
		return engine.Outcome{}, err
	}
	if row.Key.Kind == fleet.ObjectProject {
		e.notePause(w)
	}
	if err := e.reachable(row, w.object); err != nil {
		return engine.Outcome{}, err
	}
	return e.applyDesired(ctx, w, known)
}

// checkArtifacts refuses an Application of an OCI artifact, unless Argo CD is known not to take the
// artifact for a Git repository.
func (e *Engine) checkArtifacts(w *desired) error {
	url := artifactOf(w)
	if url == "" {
		return nil
	}
	version := ""
	if found := e.argoCD.Load(); found != nil {
		version = *found
	}
	able, known := fleet.DeploysArtifacts(version)
	subject := string(w.row.Key.Kind) + " " + w.row.Key.Name
	switch {
	case able:
		return nil
	case known:
		return fmt.Errorf("%s: %w: Argo CD %s deploys no OCI artifacts such as %s; upgrade it to "+
			"3.1 or later, or deploy from Git or a chart", subject, engine.ErrRefused,
			clip(version, 64), url)
	}
	return fmt.Errorf("%s: %w: Argo CD before 3.1 takes OCI artifacts such as %s for Git "+
		"repositories, and the version of this one is not known; let %s list statefulsets and "+
		"deployments in namespace %s, where the image or the label %s of the "+
		"application-controller names it", subject, engine.ErrRefused, url, preflight{e}.actor(),
		e.namespace, versionLabel)
}

// artifactOf returns the URL of the first OCI artifact that an Application deploys; "" for none.
func artifactOf(w *desired) string {
	if w.r != applications {
		return ""
	}
	spec := child(w.tree, "spec")
	sources, _ := spec["sources"].([]any)
	for _, s := range append([]any{spec["source"]}, sources...) {
		source, _ := s.(map[string]any)
		if url, _ := source["repoURL"].(string); strings.HasPrefix(url, "oci://") {
			return url
		}
	}
	return ""
}

// applyDesired decides and writes, again if other writers are faster.
func (e *Engine) applyDesired(ctx context.Context, w *desired, known *entry) (engine.Outcome,
	error) {
	row := w.row
	for range attempts {
		out, err := e.applyOnce(ctx, w, known)
		if codeOf(err) != http.StatusConflict {
			return out, e.explain(row.Key, err)
		}
		if known, err = e.refetch(ctx, row.Key); err != nil {
			return engine.Outcome{}, e.explain(row.Key, err)
		}
	}
	return engine.Outcome{},
		fmt.Errorf(
			"%s %s: other writers changed it %d times in a row during the write; it is retried",
			row.Key.Kind, row.Key.Name, attempts)
}

// applyOnce carries out one decision.
func (e *Engine) applyOnce(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	switch w.decide(known) {
	case doNothing:
		return engine.Outcome{State: mirror.ApplyApplied}, nil
	case doCreate, doUpdate:
		if known != nil && known.move != "" {
			var err error
			if known, err = e.endMove(ctx, w, known); err != nil {
				return engine.Outcome{}, err
			}
		}
		return e.write(ctx, w, known)
	case doRestore:
		return e.restore(ctx, w, known)
	case doAdopt:
		return e.adopt(ctx, w)
	case isRenamed:
		return engine.Outcome{}, fmt.Errorf("%w: its object is %s, declared is %s, and an object "+
			"keeps its name; restore adopt, or release the Application first "+
			"(deletionPolicy: Release)", engine.ErrRefused, known.object, w.object)
	case isForeign:
		return engine.Outcome{},
			fmt.Errorf(
				"%w: it lacks our labels or carries another tenant's; delete or rename it on "+
					"the engine", engine.ErrForeign)
	case isArriving:
		return engine.Outcome{}, fmt.Errorf("%w: the engine that it leaves may still sync it. If "+
			"no move of it is under way, remove the Application there, then annotation %s of "+
			"this one", engine.ErrMove, annotationMove)
	case isFenced:
		return engine.Outcome{}, fmt.Errorf("%w: its epoch is %d, this lease's is %d",
			engine.ErrFenced, known.Epoch, w.epoch)
	default:
		return engine.Outcome{State: mirror.ApplyPending, RetryAfter: deletingWait,
			Message: "an older object of this name is being deleted; it is recreated when that " +
				"has ended"}, nil
	}
}

func (e *Engine) write(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	return e.writeUnless(ctx, w, known, nil)
}

// writeUnless is write with a precheck of the request.
func (e *Engine) writeUnless(ctx context.Context, w *desired, known *entry,
	precheck func() error) (engine.Outcome, error) {
	body, err := w.patch(known)
	if err != nil {
		return engine.Outcome{}, err
	}
	defer e.cache.expect(w.row.Key, stamp{w.epoch, w.applied})()
	var answer struct{ Metadata liveMetadata }
	err = e.mutate(ctx, w.row.Tenant, request{
		method: http.MethodPatch, path: e.places.path(w.r, w.object),
		contentType: applyPatch, accept: metadataOnly, body: body,
		// server-side apply is strict anyway
		query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}, "fieldValidation": {
			"Ignore"}}, precheck: precheck,
	}, &answer)
	if err != nil {
		return engine.Outcome{}, err
	}
	e.cache.learn(w.r, w.written(known, &answer.Metadata, e.name))
	return engine.Outcome{State: mirror.ApplyApplied, Changed: true}, nil
}

// mutate sends a write unless an emergency stop is in force at that moment, or a precheck of the
// request fails then.
func (e *Engine) mutate(ctx context.Context, tenant fleet.TenantName, r request, out any) error {
	stopped, further := e.unlessStopped(tenant), r.precheck
	r.precheck = func() error {
		if err := stopped(); err != nil || further == nil {
			return err
		}
		return further()
	}
	return e.client.do(ctx, r, out)
}

// unlessStopped returns the check of a tenant's emergency stop.
func (e *Engine) unlessStopped(tenant fleet.TenantName) func() error {
	return func() error {
		if e.options.Stopped(tenant) {
			return engine.ErrStopped
		}
		return nil
	}
}

// read reads one object from the API server, bypassing the cache; nil if it does not exist.
func (e *Engine) read(ctx context.Context, key fleet.ObjectKey) (*liveObject, error) {
	return e.readNamed(ctx, resourceOf(key.Kind), e.objectName(key))
}

func (e *Engine) readNamed(ctx context.Context, r *resource, name string) (*liveObject, error) {
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet, path: e.places.path(r, name)},
		&raw)
	if provesAbsence(err, r) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o, err := decodeLive(raw)
	if err == nil && o.Metadata.UID == "" {
		err = fmt.Errorf("%w: the response is not an object", engine.ErrUnreachable)
	}
	return o, err
}

// objectName returns the name of a key's object: the cache knows the adopted ones.
func (e *Engine) objectName(key fleet.ObjectKey) string {
	if known := e.cache.get(key); known != nil {
		return known.object
	}
	return key.Name
}

// objectOf returns a row's object (see places.object): the known one, else the declared one.
func (e *Engine) objectOf(row mirror.Row) string {
	if known := e.cache.get(row.Key); known != nil {
		return known.object
	}
	var manifest struct{ Metadata liveMetadata }
	if err := json.Unmarshal(row.Manifest.Body, &manifest); err == nil &&
		manifest.Metadata.Name != "" {
		return e.places.object(&manifest.Metadata)
	}
	return row.Key.Name
}

// provesAbsence reports whether a failed read proves that the object does not exist. A 404 of a
// server without this kind, or of a proxy, proves nothing.
func provesAbsence(err error, r *resource) bool {
	var s *statusError
	return errors.As(err, &s) && s.Code == http.StatusNotFound && s.Reason == "NotFound" &&
		s.named == r.plural
}

// refetch refreshes the cache's entry of one object with an uncached read; nil if the object does
// not exist.
func (e *Engine) refetch(ctx context.Context, key fleet.ObjectKey) (*entry, error) {
	o, err := e.read(ctx, key)
	if o == nil || err != nil {
		return nil, err
	}
	fresh := newEntry(e.name, e.places, resourceOf(key.Kind), o)
	if fresh.Key.Kind != key.Kind {
		fresh.Ours = false
	}
	if resourceOf(key.Kind) != secrets || fresh.Ours {
		e.cache.learn(resourceOf(key.Kind), fresh)
	}
	return fresh, nil
}

// ready returns why writes are forbidden now.
func (e *Engine) ready() error {
	if why := e.unfit.Load(); why != nil {
		return *why
	}
	if !e.fit.Load() {
		return fmt.Errorf("%w: engine %s has not passed its preflight yet", engine.ErrUnfit, e.name)
	}
	if !e.Synced() {
		return fmt.Errorf("%w: engine %s", engine.ErrUnknown, e.name)
	}
	return nil
}

// reachable rejects an Application in a further namespace that is not the tenant's, or that is not
// followed: the cache is the base of every decision.
func (e *Engine) reachable(row mirror.Row, object string) error {
	namespace, _ := fleet.SplitObject(object)
	if err := errors.Join(e.places.check(object, row.Tenant),
		e.namespaceError(namespace)); err != nil {
		return fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	return nil
}

// checkPublic rejects objects that are stored in a Secret if Secrets are off limits.
func (e *Engine) checkPublic(key fleet.ObjectKey) error {
	if e.options.Public && resourceOf(key.Kind) == secrets {
		return fmt.Errorf(
			"%s %s: %w: this agent writes no Secrets; install it without --no-secrets, or "+
				"declare no credential", key.Kind, key.Name, engine.ErrRefused)
	}
	return nil
}

// explain maps an API server's error to one of package engine. It does not repeat the server's
// message about a Secret, which may quote values.
func (e *Engine) explain(key fleet.ObjectKey, err error) error {
	if err == nil {
		return nil
	}
	subject := string(key.Kind) + " " + key.Name
	var s *statusError
	if !errors.As(err, &s) {
		return fmt.Errorf("%s: %w", subject, err)
	}
	message := s.Message
	if resourceOf(key.Kind) == secrets {
		message = "(not shown: it may quote the secret)"
	}
	namespace, _ := fleet.SplitObject(e.objectName(key))
	namespace = cmp.Or(namespace, e.namespace)
	sentinel, next := engine.ErrRefused, ""
	switch {
	case s.Code == http.StatusTooManyRequests || s.Code >= 500 &&
		s.Code != http.StatusInternalServerError:
		sentinel, next = engine.ErrUnreachable, "it is tried again"
	case s.Code == http.StatusRequestEntityTooLarge:
		sentinel = engine.ErrTooLarge
	case slices.Contains(s.Causes, "NamespaceTerminating"):
		next = fmt.Sprintf(
			"namespace %s is being deleted; decide whether to restore its Argo CD before "+
				"anything else is written", namespace)
	case s.Code == http.StatusForbidden:
		next = fmt.Sprintf("grant it to the control plane in namespace %s", namespace)
	case s.Code == http.StatusNotFound:
		next = fmt.Sprintf("is Argo CD installed in namespace %s?", namespace)
	}
	if next != "" {
		next = "; " + next
	}
	return fmt.Errorf("%s: %w: %d %s: %s%s", subject, sentinel, s.Code, s.Reason,
		clip(message, maxText/2), next)
}

// desired is a row that is ready to be written.
type desired struct {
	row     mirror.Row
	r       *resource
	object  string // see places.object: not the name of the key if it adopts one
	epoch   int64
	tree    map[string]any // the object with its credential, in canonical form
	content [sha256.Size]byte
	applied string // the hash annotation
}

// prepare adds the credential and hashes the content. Before any request it rejects rows that no
// engine accepts.
func prepare(row mirror.Row, secret fleet.Secret, lease mirror.Lease) (*desired, error) {
	return prepareWith(row, secret, lease, nil)
}

// prepareWith is prepare with further annotations.
func prepareWith(row mirror.Row, secret fleet.Secret, lease mirror.Lease,
	further map[string]string) (*desired, error) {
	tree, err := decodeTree(row.Manifest.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	w := &desired{row: row, r: resourceOf(row.Key.Kind), epoch: lease.Epoch, tree: tree}
	name, _ := child(tree, "metadata")["name"].(string)
	namespace, _ := child(tree, "metadata")["namespace"].(string)
	w.object = fleet.JoinObject(namespace, name)
	if w.object == "" || w.object != row.Key.Name && w.r != applications {
		return nil, fmt.Errorf("%s %s: its manifest is of %q", row.Key.Kind, row.Key.Name, w.object)
	}
	if len(further) > 0 {
		annotations := child(child(tree, "metadata"), "annotations")
		for k, v := range further {
			annotations[k] = v
		}
	}
	if w.r == secrets {
		data, _ := tree["data"].(map[string]any)
		if data == nil {
			return nil, fmt.Errorf("%s %s: its manifest has no data", row.Key.Kind, row.Key.Name)
		}
		if err := fill(row.Key.Kind, data, secret); err != nil {
			return nil, fmt.Errorf("%s %s: secret %s: %w", row.Key.Kind, row.Key.Name,
				credentialName(row), err)
		}
	}
	body, err := canonical(tree)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", row.Key.Kind, row.Key.Name, err)
	}
	if len(body) > maxObject {
		return nil, fmt.Errorf("%s %s: %w: %d bytes; an engine takes at most %d", row.Key.Kind,
			row.Key.Name, engine.ErrTooLarge, len(body), maxObject)
	}
	w.content = sha256.Sum256(body)
	w.applied = appliedHash(w.r, row.Manifest.Hash, w.content)
	return w, nil
}

func credentialName(row mirror.Row) string {
	if row.Credential == nil {
		return "(none declared)"
	}
	return row.Credential.Name
}

// patch returns the apply request. For a known object it has the UID and version as preconditions.
// Otherwise it requires that no object exists: no object has resourceVersion 1, so an apply with
// this version can only create.
func (w *desired) patch(known *entry) ([]byte, error) {
	meta, _ := w.tree["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	annotations, _ := meta["annotations"].(map[string]any)
	annotations = maps.Clone(annotations)
	if annotations == nil {
		annotations = map[string]any{}
	}
	annotations[annotationHash] = w.applied
	annotations[annotationEpoch] = strconv.FormatInt(w.epoch, 10)
	if w.row.Revision != "" {
		annotations[annotationRevision] = string(w.row.Revision)
	}
	meta["annotations"] = annotations
	meta["resourceVersion"] = "1"
	if known != nil {
		meta["uid"], meta["resourceVersion"] = known.UID, known.ResourceVersion
	}
	tree := maps.Clone(w.tree)
	tree["metadata"] = meta
	return json.Marshal(tree)
}

// written returns the cache's entry after a successful write.
func (w *desired) written(known *entry, m *liveMetadata, name fleet.EngineName) *entry {
	e := &entry{}
	if known != nil {
		*e = *known
	}
	labels, _ := w.tree["metadata"].(map[string]any)["labels"].(map[string]any)
	text := map[string]string{}
	for k, v := range labels {
		text[k], _ = v.(string)
	}
	e.id = identityOf(text)
	e.Live = engine.Live{
		Key: w.row.Key, UID: m.UID, ResourceVersion: m.ResourceVersion, Ours: true,
		Tenant: e.id.tenant, Environment: e.id.environment, Deployment: e.id.deployment,
		Engine:   name,
		Revision: w.row.Revision, Epoch: w.epoch, Hash: w.row.Manifest.Hash,
		Hold:    fleet.SyncRunName(m.Annotations[annotationHold]),
		Manager: e.Manager, Deleting: m.DeletionTimestamp != nil, Operating: e.Operating,
		Parked: e.Parked, Sync: e.Sync, Health: e.Health, Wave: w.row.Wave(),
	}
	e.content, e.applied, e.finalizers = w.content, w.applied, intern(m.Finalizers)
	e.object, e.before = w.object, m.Annotations[annotationBefore]
	e.token = tokenTimesOf(m.Annotations)
	e.namespaces = namespacesIn(child(w.tree, "data"))
	e.paused = m.Annotations[annotationAdoptionPaused]
	if w.r == applications {
		spec, _ := w.tree["spec"].(map[string]any)
		e.project, _ = spec["project"].(string)
		destination, _ := spec["destination"].(map[string]any)
		e.server, _ = destination["server"].(string)
		e.namespace, _ = destination["namespace"].(string)
		e.syncOptions = nil
		options, _ := child(spec, "syncPolicy")["syncOptions"].([]any)
		for _, o := range options {
			text, _ := o.(string)
			e.syncOptions = append(e.syncOptions, text)
		}
		e.sources = nil
		if sources, several := spec["sources"]; several {
			e.sources, _ = json.Marshal(sources) // a tree that was JSON before
		}
		if known == nil {
			e.contact = engine.Contact{
				Key: w.row.Key, UID: m.UID, Tenant: e.Tenant, Environment: e.Environment,
			}
			e.observation = mirror.Observation{Key: w.row.Key, UID: m.UID,
				ResourceVersion: m.ResourceVersion, Sync: mirror.SyncUnknown,
				Health: mirror.HealthUnknown}
		}
	}
	return e
}

// verdict is the action for one object.
type verdict int

const (
	doNothing verdict = iota
	doCreate
	doUpdate
	doRestore // another writer has changed it
	doAdopt   // take over an existing object of another name
	isRenamed // the object has another name
	isForeign
	isFenced
	isDeleting
	isArriving
)

// decide compares the row with the known object. It is pure.
func (w *desired) decide(known *entry) verdict {
	switch {
	case known == nil && w.object != w.row.Key.Name:
		return doAdopt
	case known == nil:
		return doCreate
	case !known.Ours || known.Tenant != w.row.Tenant:
		return isForeign
	case known.fenced(w.epoch):
		return isFenced
	case known.Deleting:
		return isDeleting
	case known.object != w.object:
		return isRenamed
	case known.Arriving && !strings.HasSuffix(known.move, moveAdopts):
		return isArriving
	case known.move != "":
		return doUpdate
	case known.Drifted:
		return doRestore
	case known.content == w.content && known.applied == w.applied:
		return doNothing
	}
	return doUpdate
}

// restore overwrites changes by other writers. The apply restores our own fields. Before it, a
// merge patch removes foreign additions (a second source, ignoreDifferences, a finalizer, an
// operation). Both have the read state as a precondition.
func (e *Engine) restore(ctx context.Context, w *desired, known *entry) (engine.Outcome, error) {
	wait, again := e.conflicts.check(w.row.Key, e.options.Now(), e.options.Conflict)
	if wait > 0 {
		return engine.Outcome{State: mirror.ApplyConflict, Message: conflictMessage(known),
			RetryAfter: wait}, nil
	}
	live, fresh, err := e.readWhole(ctx, w)
	if err != nil {
		return engine.Outcome{}, err
	}
	// meanwhile it was deleted, is terminating, belongs to a later lease, or is fixed
	if w.decide(fresh) != doRestore {
		return e.applyOnce(ctx, w, fresh)
	}
	if fresh, err = e.removeForeign(ctx, w, fresh, live); err != nil {
		return engine.Outcome{}, err
	}
	out, err := e.write(ctx, w, fresh)
	if err != nil {
		return out, err
	}
	// Only now: the API server rejects a write that races with the next status of Argo CD, and the
	// repeated attempt overwrites nothing for the second time.
	e.conflicts.overwritten(w.row.Key, e.options.Now(), e.options.Conflict)
	if again {
		out.State, out.Message, out.RetryAfter = mirror.ApplyConflict, conflictMessage(known),
			e.options.Conflict
	}
	return out, nil
}

func conflictMessage(known *entry) string {
	who := firstOf(known.foreignOperation, known.Manager,
		"an unknown writer, perhaps an admission webhook,")
	return fmt.Sprintf(
		"%s keeps changing it on the engine; it is overwritten at growing intervals: change the "+
			"declaration instead, or revoke its write access", who)
}

// readWhole reads the object, bypassing the cache, as a tree and as an entry; nil if it does not
// exist.
func (e *Engine) readWhole(ctx context.Context, w *desired) (map[string]any, *entry, error) {
	var raw json.RawMessage
	err := e.client.do(ctx, request{method: http.MethodGet,
		path: e.places.path(w.r, w.object)}, &raw)
	if provesAbsence(err, w.r) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	o, err := decodeLive(raw)
	if err != nil {
		return nil, nil, err
	}
	tree, err := decodeTree(raw)
	return tree, newEntry(e.name, e.places, w.r, o), err
}

// removeForeign removes the fields from a live object that the manifest does not have, and returns
// the entry after that. An object that has changed since the read causes a conflict, so that the
// decision is made again.
func (e *Engine) removeForeign(ctx context.Context, w *desired, read *entry,
	live map[string]any) (*entry,
	error) {
	patch := foreignFields(w.tree, live)
	if len(patch) == 0 {
		return read, nil
	}
	m, err := e.merge(ctx, w.row, patch, read)
	if err != nil {
		return nil, err
	}
	fresh := *read
	fresh.ResourceVersion, fresh.finalizers = m.ResourceVersion, m.Finalizers
	return &fresh, nil
}

// merge sends a merge patch with the known UID and version as preconditions.
func (e *Engine) merge(ctx context.Context, row mirror.Row, patch map[string]any,
	known *entry) (*liveMetadata, error) {
	return e.mergeUnless(ctx, row, patch, known, nil)
}

// mergeUnless is merge with a precheck of the request.
func (e *Engine) mergeUnless(ctx context.Context, row mirror.Row, patch map[string]any,
	known *entry, precheck func() error) (*liveMetadata, error) {
	meta, _ := patch["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		patch["metadata"] = meta
	}
	meta["uid"], meta["resourceVersion"] = known.UID, known.ResourceVersion
	body, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patch: %w", err)
	}
	var answer struct{ Metadata liveMetadata }
	err = e.mutate(ctx, row.Tenant, request{
		method: http.MethodPatch, path: e.places.path(resourceOf(row.Key.Kind), known.object),
		contentType: mergePatch, accept: metadataOnly, body: body,
		query: url.Values{"fieldManager": {fieldManager}}, precheck: precheck,
	}, &answer)
	return &answer.Metadata, err
}

// foreignFields returns the merge patch that removes the fields of live that wanted does not have,
// as far as they affect Argo CD: spec or data, our own labels and annotations, the cascade
// finalizer, and an operation that has not started. It is empty if there are none.
func foreignFields(wanted, live map[string]any) map[string]any {
	patch := map[string]any{}
	for _, part := range []string{"spec", "data"} {
		if p := surplus(child(wanted, part), child(live, part)); len(p) > 0 {
			patch[part] = p
		}
	}
	if p := foreignMetadata(child(wanted, "metadata"), child(live, "metadata")); len(p) > 0 {
		patch["metadata"] = p
	}
	if op := child(live, "operation"); len(op) > 0 &&
		isForeignOperation(op, child(live, "status")) {
		patch["operation"] = nil
	}
	return patch
}

func foreignMetadata(wanted, live map[string]any) map[string]any {
	patch := map[string]any{}
	for part, ours := range map[string]func(string) bool{"labels": isOwnLabel,
		"annotations": isStableAnnotation} {
		out := map[string]any{}
		for k := range child(live, part) {
			if _, should := child(wanted, part)[k]; ours(k) && !should {
				out[k] = nil
			}
		}
		if len(out) > 0 {
			patch[part] = out
		}
	}
	finalizers, _ := live["finalizers"].([]any)
	kept := []any{}
	for _, f := range finalizers {
		if text, _ := f.(string); !strings.HasPrefix(text, cascadeFinalizer) {
			kept = append(kept, f)
		}
	}
	if len(kept) < len(finalizers) {
		patch["finalizers"] = kept
	}
	return patch
}

// surplus maps the fields that only live has to null. It does not descend into lists, which the
// apply replaces as a whole.
func surplus(wanted, live map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range live {
		have, there := wanted[k]
		if !there {
			out[k] = nil
			continue
		}
		below, isMap := v.(map[string]any)
		if haveMap, both := have.(map[string]any); isMap && both {
			if p := surplus(haveMap, below); len(p) > 0 {
				out[k] = p
			}
		}
	}
	return out
}

func child(m map[string]any, k string) map[string]any {
	c, _ := m[k].(map[string]any)
	return c
}

// isForeignOperation reports whether an operation is neither ours nor Argo CD's own and has not
// started. A running operation continues: a half-finished one is worse than a finished one.
func isForeignOperation(operation, status map[string]any) bool {
	by := child(operation, "initiatedBy")
	automated, _ := by["automated"].(bool)
	phase, _ := child(status, "operationState")["phase"].(string)
	return by["username"] != operationUser && !automated && phase != "Running" &&
		phase != "Terminating"
}

// fieldConflict is an object with a field that another manager keeps changing. We overwrite the
// first change at once. A second change within the window is a conflict: it is reported, and
// overwritten after pauses that double, so that two writers do not chase each other.
type fieldConflict struct {
	last  time.Time // our last overwrite
	pause time.Duration
}

const maxConflictPause = 30 * time.Minute

// check returns 0 if a drift of the object may be overwritten now, and otherwise the remaining
// pause. again means that the object was overwritten shortly before.
func (q *fieldConflicts) check(key fleet.ObjectKey, now time.Time, window time.Duration) (
	wait time.Duration, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, conflicting := q.of[key]
	if !conflicting || now.Sub(known.last) > known.pause+window {
		return 0, false
	}
	return max(0, known.pause-now.Sub(known.last)), true
}

// overwritten records that a drift of the object was overwritten.
func (q *fieldConflicts) overwritten(key fleet.ObjectKey, now time.Time, window time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pause := window
	if known, is := q.of[key]; is && now.Sub(known.last) <= known.pause+window {
		pause = min(2*known.pause, maxConflictPause)
	}
	q.of[key] = fieldConflict{last: now, pause: pause}
}

// forget drops the history of an object after its deletion or a change of its row.
func (q *fieldConflicts) forget(key fleet.ObjectKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.of, key)
}
