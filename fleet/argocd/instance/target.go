package instance

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/ssa"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"argosy.dev/argosy/fleet"
)

// Errors that a person has to fix.
var (
	// ErrRefused: the API server refuses a write, for example because a right is missing.
	ErrRefused = errors.New("the cluster refuses it")
	// ErrSuperseded: a writer with a later epoch has begun.
	ErrSuperseded = errors.New("a later writer has taken over")
)

const (
	fieldManager   = "argosy-instance"
	requestTimeout = 30 * time.Second
	// Inventory is the ConfigMap with what Argosy has applied.
	Inventory = "argosy-instance"
)

// Target is the namespace of an instance on its cluster.
type Target struct {
	client    client.Client
	manager   *ssa.ResourceManager
	namespace string
	id        string // installationID
}

// Open prepares a target. Its first request may fail as any later one. Each write calls gate
// immediately before it is sent, and is not sent after an error.
func Open(config *rest.Config, namespace, installationID string, gate func() error) (*Target,
	error) {
	config = rest.CopyConfig(config)
	config.Timeout, config.UserAgent = requestTimeout, "argosy"
	config.WarningHandler = rest.NoWarnings{}
	config.QPS, config.Burst = -1, 0
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return gated{next, gate} })
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster of %s: %w", installationID, err)
	}
	return &Target{client: c, namespace: namespace, id: installationID,
		manager: ssa.NewResourceManager(c, nil, ssa.Owner{Field: fieldManager,
			Group: "argosy.dev"})}, nil
}

// gated is a transport that asks before each write.
type gated struct {
	next http.RoundTripper
	gate func() error
}

// RoundTrip sends a request unless the gate is closed to it. A dry run is no write.
func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") == "" {
		if err := g.gate(); err != nil {
			return nil, err
		}
	}
	return g.next.RoundTrip(r)
}

// Order is the version that an instance is to have.
type Order struct {
	Manifests *Manifests
	Digest    string              // of the manifests
	Size      *fleet.InstanceSize // nil: others set the resources and the number of shards
	Epoch     int64               // of the writer
}

// Result is what a step has found.
type Result struct {
	Changed []string // objects that were created, changed or deleted, as "Kind name"
	Waits   string   // why the instance does not run the version yet; "" if its Pods are ready
}

// inventory is the content of the ConfigMap.
type inventory struct {
	version string // of the ConfigMap; "" without one
	data    map[string]string
}

// Keys of the inventory.
const (
	keyDigest  = "digest"
	keyVersion = "version"
	keyEpoch   = "epoch"
	keyBase    = "settings"
	keyObjects = "objects"
	keySize    = "size"   // of the instance, as text; without one, Argosy has set none
	keyShards  = "shards" // set by Argosy
)

// Size returns the size that was applied last, as text; "" if Argosy has set none.
func (t *Target) Size(ctx context.Context) (string, error) {
	inv, err := t.inventory(ctx)
	return inv.data[keySize], err
}

// Version returns the version and the digest that were applied last; "" without an inventory.
func (t *Target) Version(ctx context.Context) (version, digest string, err error) {
	inv, err := t.inventory(ctx)
	return inv.data[keyVersion], inv.data[keyDigest], err
}

// Epoch returns the epoch of the last writer; 0 without an inventory.
func (t *Target) Epoch(ctx context.Context) (int64, error) {
	inv, err := t.inventory(ctx)
	epoch, _ := strconv.ParseInt(inv.data[keyEpoch], 10, 64)
	return epoch, err
}

// Apply takes a step: it writes each object that differs and deletes those of its inventory that
// the version does not have. It deletes no CustomResourceDefinition, Secret or Namespace, and
// recreates nothing. A step that failed or ended early is repeated.
func (t *Target) Apply(ctx context.Context, o Order) (r Result, err error) {
	if err := t.ensureNamespace(ctx); err != nil {
		return r, err
	}
	inv, err := t.inventory(ctx)
	if err != nil {
		return r, err
	}
	if epoch, _ := strconv.ParseInt(inv.data[keyEpoch], 10, 64); epoch > o.Epoch {
		return r, fmt.Errorf("%w: epoch %d is before %d", ErrSuperseded, o.Epoch, epoch)
	}
	shards := shardsOf(o, inv)
	settings := Settings{Namespace: t.namespace, InstallationID: t.id, Base: inv.data[keyBase],
		Size: o.Size, Shards: shards}
	if inv.version == "" {
		if settings.Base, err = t.base(ctx, settings); err != nil {
			return r, err
		}
	}
	stages, err := o.Manifests.Stages(settings)
	if err != nil {
		return r, err
	}
	before, err := decodeIDs(inv.data[keyObjects])
	if err != nil {
		return r, err
	}
	now := idsOf(stages.Objects)
	record := func(objects []id) error {
		text, err := json.Marshal(objects)
		if err != nil {
			return err
		}
		data := map[string]string{keyVersion: o.Manifests.Version, keyDigest: o.Digest,
			keyEpoch: strconv.FormatInt(o.Epoch, 10), keyBase: settings.Base,
			keyObjects: string(text)}
		if o.Size != nil {
			data[keySize] = o.Size.String()
		}
		if shards > 0 {
			data[keyShards] = strconv.Itoa(shards)
		}
		return t.record(ctx, &inv, data)
	}
	// recorded before the first object is written: no object is forgotten
	if err := record(union(before, now)); err != nil {
		return r, err
	}
	if r.Waits, err = t.end(ctx, shards); err != nil || r.Waits != "" {
		return r, err
	}
	if err := t.apply(ctx, stages, &r); err != nil {
		return r, err
	}
	for _, gone := range before {
		if !slices.Contains(now, gone) {
			if err := t.prune(ctx, gone, &r); err != nil {
				return r, err
			}
		}
	}
	if err := record(now); err != nil {
		return r, err
	}
	if r.Waits, err = t.scale(ctx, shards); err != nil || r.Waits != "" {
		return r, err
	}
	if r.Waits, err = t.waits(ctx, stages.Objects); err != nil || r.Waits != "" || o.Size != nil {
		return r, err
	}
	shards = 0 // it has one: others may set the number again
	return r, record(now)
}

func (t *Target) apply(ctx context.Context, s Stages, r *Result) error {
	for _, o := range s.Definitions {
		changed, err := t.define(ctx, o)
		if err != nil {
			return err
		}
		if changed != "" {
			r.Changed = append(r.Changed, changed)
		}
	}
	if err := t.ensureKey(ctx); err != nil {
		return err
	}
	for _, stage := range [][]*unstructured.Unstructured{s.Objects, s.Projects} {
		changes, err := t.manager.ApplyAll(ctx, stage, options())
		if err != nil {
			return refused(err, "apply Argo CD")
		}
		for _, entry := range changes.Entries {
			if entry.Action != ssa.UnchangedAction {
				r.Changed = append(r.Changed, entry.ObjMetadata.GroupKind.Kind+" "+
					entry.ObjMetadata.Name)
			}
		}
	}
	return nil
}

// options never recreate an object.
func options() ssa.ApplyOptions { return ssa.ApplyOptions{Force: false} }

func (t *Target) get(ctx context.Context, o *unstructured.Unstructured) (
	*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.GroupVersionKind())
	return live, t.client.Get(ctx, client.ObjectKeyFromObject(o), live)
}

func (t *Target) ensureNamespace(ctx context.Context) error {
	err := t.client.Get(ctx, client.ObjectKey{Name: t.namespace}, &corev1.Namespace{})
	if err == nil || apierrors.IsForbidden(err) { // then the first write shows whether it exists
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return refused(err, "get Namespace "+t.namespace)
	}
	err = t.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return refused(err, "create Namespace "+t.namespace)
}

// ensureKey creates the Secret that Argo CD requires. It never changes a key that exists.
func (t *Target) ensureKey(ctx context.Context) error {
	const secret, key = "argocd-secret", "server.secretkey"
	live := &corev1.Secret{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: secret}, live)
	switch {
	case apierrors.IsNotFound(err):
		err = t.client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: secret,
				Labels: map[string]string{"app.kubernetes.io/name": secret,
					"app.kubernetes.io/part-of": "argocd"}},
			StringData: map[string]string{key: rand.Text() + rand.Text()}})
	case err != nil:
	case len(live.Data[key]) == 0:
		before := live.DeepCopy()
		if live.Data == nil {
			live.Data = map[string][]byte{}
		}
		live.Data[key] = []byte(rand.Text() + rand.Text())
		err = t.client.Patch(ctx, live, client.MergeFromWithOptions(before,
			client.MergeFromWithOptimisticLock{}))
	}
	return refused(err, "create Secret "+secret)
}

// base returns the digest of the settings of an instance that Argosy has not applied: of ours, if
// its parameters are the same or if there is none yet, and otherwise "".
func (t *Target) base(ctx context.Context, s Settings) (string, error) {
	live := &corev1.ConfigMap{}
	err := t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: parameters}, live)
	if apierrors.IsNotFound(err) {
		return s.Digest(), nil
	}
	if err != nil {
		return "", refused(err, "get ConfigMap "+parameters)
	}
	for key, value := range configMaps[parameters] {
		if live.Data[key] != value {
			return "", nil
		}
	}
	return s.Digest(), nil
}

func (t *Target) inventory(ctx context.Context) (inv inventory, err error) {
	live := &corev1.ConfigMap{}
	err = t.client.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: Inventory}, live)
	if apierrors.IsNotFound(err) {
		return inv, nil
	}
	return inventory{live.ResourceVersion, live.Data}, refused(err, "get ConfigMap "+Inventory)
}

// record writes the inventory if it differs. A concurrent writer makes it fail.
func (t *Target) record(ctx context.Context, inv *inventory, data map[string]string) error {
	same := inv.version != "" && len(data) == len(inv.data)
	for key, value := range data {
		same = same && inv.data[key] == value
	}
	if same {
		return nil
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: Inventory,
		ResourceVersion: inv.version, Labels: map[string]string{labelInstance: t.id}}, Data: data}
	var err error
	if inv.version == "" {
		err = t.client.Create(ctx, o, client.FieldOwner(fieldManager))
	} else {
		err = t.client.Update(ctx, o, client.FieldOwner(fieldManager))
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("%w: %w", ErrSuperseded, err)
	}
	if err != nil {
		return refused(err, "write ConfigMap "+Inventory)
	}
	*inv = inventory{o.ResourceVersion, data}
	return nil
}

// Release gives the instance back: it deletes the inventory and keeps everything else.
func (t *Target) Release(ctx context.Context, epoch int64) error {
	inv, err := t.inventory(ctx)
	if err != nil || inv.version == "" {
		return err
	}
	if last, _ := strconv.ParseInt(inv.data[keyEpoch], 10, 64); last > epoch {
		return fmt.Errorf("%w: epoch %d is before %d", ErrSuperseded, epoch, last)
	}
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: Inventory}}
	err = t.client.Delete(ctx, o, client.Preconditions{ResourceVersion: &inv.version})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return refused(err, "delete ConfigMap "+Inventory)
}

// id identifies an object of the namespace.
type id struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// prunable are the kinds of which an upgrade may delete objects. No Application, no credential and
// no setting of a person is one of them.
var prunable = []string{"ServiceAccount", "Role", "RoleBinding", "Service", "NetworkPolicy",
	"Deployment", "StatefulSet"}

func idsOf(objects []*unstructured.Unstructured) (all []id) {
	for _, o := range objects {
		all = append(all, id{o.GetAPIVersion(), o.GetKind(), o.GetName()})
	}
	slices.SortFunc(all, compareIDs)
	return all
}

func compareIDs(a, b id) int {
	return strings.Compare(a.Kind+"/"+a.Name+"/"+a.APIVersion, b.Kind+"/"+b.Name+"/"+b.APIVersion)
}

func union(a, b []id) []id {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compareIDs)
	return slices.Compact(all)
}

func decodeIDs(text string) (all []id, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("%w: ConfigMap %s lists no objects: %w; delete it, and Argosy takes "+
			"the instance over again", ErrRefused, Inventory, err)
	}
	return all, nil
}

// prune deletes an object that the version does not have and that is ours, with its UID and its
// resourceVersion.
func (t *Target) prune(ctx context.Context, gone id, r *Result) error {
	if !slices.Contains(prunable, gone.Kind) {
		return nil
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(gone.APIVersion)
	o.SetKind(gone.Kind)
	o.SetNamespace(t.namespace)
	o.SetName(gone.Name)
	live, err := t.get(ctx, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return refused(err, "get "+name(o))
	}
	if live.GetLabels()[labelInstance] != t.id {
		return nil
	}
	uid, version := live.GetUID(), live.GetResourceVersion()
	err = t.client.Delete(ctx, live, client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return refused(err, "delete "+name(o))
	}
	r.Changed = append(r.Changed, name(o))
	return nil
}

// waits returns the first workload whose Pods are not all of the present template and ready.
func (t *Target) waits(ctx context.Context, objects []*unstructured.Unstructured) (string, error) {
	for _, o := range objects {
		if _, ok := workloads[o.GetName()]; !ok || o.GetKind() != "Deployment" &&
			o.GetKind() != "StatefulSet" {
			continue
		}
		live, err := t.get(ctx, o)
		if err != nil {
			return "", refused(err, "get "+name(o))
		}
		s, err := status.Compute(live)
		if err != nil {
			return "", fmt.Errorf("status of %s: %w", name(o), err)
		}
		if s.Status != status.CurrentStatus {
			return name(o) + ": " + s.Message, nil
		}
	}
	return "", nil
}

// refused adds the subject to an error, and marks those that a person has to fix.
func refused(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
