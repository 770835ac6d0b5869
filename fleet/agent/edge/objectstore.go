package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ObjectStore stores the values of one object on the agent's own cluster, with optimistic
// concurrency.
type ObjectStore interface {
	// Load reads the values. The version is empty if the object does not exist.
	Load(ctx context.Context) (values map[string][]byte, version string, err error)
	// Save replaces the values if the object still has this version, and creates the object for "".
	// It returns the new version, or ErrConflict.
	Save(ctx context.Context, values map[string][]byte, version string) (string, error)
}

// ErrConflict reports that another writer has changed the object since it was read.
var ErrConflict = errors.New("it has changed since it was read")

// attempts bounds the retries of an update after conflicts.
const attempts = 8

// updateObject reads the values, lets f change them, and saves them. After a conflict it starts
// again. f reports whether there is a change to save; updateObject may call it several times.
func updateObject(ctx context.Context, store ObjectStore,
	f func(values map[string][]byte) (bool, error)) error {
	for range attempts {
		values, version, err := store.Load(ctx)
		if err != nil {
			return err
		}
		values = maps.Clone(values)
		if values == nil {
			values = map[string][]byte{}
		}
		changed, err := f(values)
		if err != nil || !changed {
			return err
		}
		if _, err = store.Save(ctx, values, version); !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", ErrConflict, attempts)
}

// managedBy labels the objects that the agent creates for itself.
var managedBy = map[string]string{"app.kubernetes.io/managed-by": "argosy-agent"}

type secretStore struct {
	client          kubernetes.Interface
	namespace, name string
}

// SecretStore stores the values in a Secret. It needs get and update on this Secret, and create on
// secrets in the namespace.
func SecretStore(client kubernetes.Interface, namespace, name string) ObjectStore {
	return &secretStore{client, namespace, name}
}

func (c *secretStore) error(err error) error {
	return storeError("Secret", c.namespace, c.name, err)
}

func (c *secretStore) Load(ctx context.Context) (map[string][]byte, string, error) {
	s, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", c.error(err)
	}
	return s.Data, s.ResourceVersion, nil
}

func (c *secretStore) Save(ctx context.Context, values map[string][]byte, version string) (string,
	error) {
	all := c.client.CoreV1().Secrets(c.namespace)
	if version == "" {
		s, err := all.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace, Labels: managedBy},
			Data:       values}, metav1.CreateOptions{})
		return versionOf(s, c.error(err))
	}
	s, err := all.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return "", c.error(err)
	}
	if s.ResourceVersion != version {
		return "", c.error(ErrConflict)
	}
	s.Data = values // metadata of other writers (labels, owners) stays
	s, err = all.Update(ctx, s, metav1.UpdateOptions{})
	return versionOf(s, c.error(err))
}

func versionOf(o metav1.Object, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return o.GetResourceVersion(), nil
}

type configMapStore struct {
	client          kubernetes.Interface
	namespace, name string
}

// ConfigMapStore stores the values in a ConfigMap: those whose name ends in ".gz" as binary data,
// all others as text. It needs the rights of SecretStore, on configmaps.
func ConfigMapStore(client kubernetes.Interface, namespace, name string) ObjectStore {
	return &configMapStore{client, namespace, name}
}

func (c *configMapStore) error(err error) error {
	return storeError("ConfigMap", c.namespace, c.name, err)
}

func (c *configMapStore) Load(ctx context.Context) (map[string][]byte, string, error) {
	m, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", c.error(err)
	}
	values := make(map[string][]byte, len(m.Data)+len(m.BinaryData))
	for k, v := range m.Data {
		values[k] = []byte(v)
	}
	maps.Copy(values, m.BinaryData)
	return values, m.ResourceVersion, nil
}

func (c *configMapStore) Save(ctx context.Context, values map[string][]byte,
	version string) (string,
	error) {
	all := c.client.CoreV1().ConfigMaps(c.namespace)
	if version == "" {
		fresh := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace, Labels: managedBy}}
		fill(fresh, values)
		m, err := all.Create(ctx, fresh, metav1.CreateOptions{})
		return versionOf(m, c.error(err))
	}
	m, err := all.Get(ctx, c.name, metav1.GetOptions{})
	if err != nil {
		return "", c.error(err)
	}
	if m.ResourceVersion != version {
		return "", c.error(ErrConflict)
	}
	fill(m, values)
	m, err = all.Update(ctx, m, metav1.UpdateOptions{})
	return versionOf(m, c.error(err))
}

func fill(m *corev1.ConfigMap, values map[string][]byte) {
	m.Data, m.BinaryData = map[string]string{}, map[string][]byte{}
	for k, v := range values {
		if strings.HasSuffix(k, ".gz") {
			m.BinaryData[k] = v
		} else {
			m.Data[k] = string(v)
		}
	}
}

// storeError adds the object to an error and, if a right is missing, the next step.
func storeError(kind, namespace, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		err = ErrConflict // a deletion since the read is a conflict too
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w; apply the output of `argosy agent manifest`", err)
	}
	return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
}
