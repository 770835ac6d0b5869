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

// Cell is one object of the agent's own cluster that is read and replaced whole.
type Cell interface {
	// Load reads its values. The version is empty when there is no such object.
	Load(ctx context.Context) (values map[string][]byte, version string, err error)
	// Swap replaces the values if the object is still at that version; "" makes it if there is
	// none. Otherwise ErrMoved. The new version is returned.
	Swap(ctx context.Context, values map[string][]byte, version string) (string, error)
}

// ErrMoved says that another writer has changed the object since it was read.
var ErrMoved = errors.New("it was changed since it was read")

// attempts is how often a change is made anew on what another writer has left.
const attempts = 8

// change reads a cell, lets f change the values, and stores them, anew if another writer comes
// between. f reports whether there is anything to store; it may be called several times.
func change(ctx context.Context, cell Cell, f func(values map[string][]byte) (bool, error)) error {
	for range attempts {
		values, version, err := cell.Load(ctx)
		if err != nil {
			return err
		}
		values = maps.Clone(values)
		if values == nil {
			values = map[string][]byte{}
		}
		store, err := f(values)
		if err != nil || !store {
			return err
		}
		if _, err = cell.Swap(ctx, values, version); !errors.Is(err, ErrMoved) {
			return err
		}
	}
	return fmt.Errorf("%w, %d times in a row", ErrMoved, attempts)
}

// managedBy labels what the agent makes for itself, so that people see whose it is.
var managedBy = map[string]string{"app.kubernetes.io/managed-by": "argosy-agent"}

type secretCell struct {
	client          kubernetes.Interface
	namespace, name string
}

// SecretCell is a Secret. It needs get and update on it by name, and create on secrets of the
// namespace for the first time.
func SecretCell(client kubernetes.Interface, namespace, name string) Cell {
	return &secretCell{client, namespace, name}
}

func (c *secretCell) error(err error) error {
	return cellError("Secret", c.namespace, c.name, err)
}

func (c *secretCell) Load(ctx context.Context) (map[string][]byte, string, error) {
	s, err := c.client.CoreV1().Secrets(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", c.error(err)
	}
	return s.Data, s.ResourceVersion, nil
}

func (c *secretCell) Swap(ctx context.Context, values map[string][]byte, version string) (string,
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
		return "", c.error(ErrMoved)
	}
	s.Data = values // what others wrote beside it (labels, owners) stays
	s, err = all.Update(ctx, s, metav1.UpdateOptions{})
	return versionOf(s, c.error(err))
}

func versionOf(o metav1.Object, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return o.GetResourceVersion(), nil
}

type configMapCell struct {
	client          kubernetes.Interface
	namespace, name string
}

// ConfigMapCell is a ConfigMap. Values whose name ends in ".gz" are kept as binary data, all others
// are text. It needs the rights of SecretCell, on configmaps.
func ConfigMapCell(client kubernetes.Interface, namespace, name string) Cell {
	return &configMapCell{client, namespace, name}
}

func (c *configMapCell) error(err error) error {
	return cellError("ConfigMap", c.namespace, c.name, err)
}

func (c *configMapCell) Load(ctx context.Context) (map[string][]byte, string, error) {
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

func (c *configMapCell) Swap(ctx context.Context, values map[string][]byte, version string) (string,
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
		return "", c.error(ErrMoved)
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

// cellError says which object it is about and, where the API server refuses for want of a right,
// what to do.
func cellError(kind, namespace, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		err = ErrMoved // gone since it was read is a change too
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("%w; apply what `argosy agent manifest` prints", err)
	}
	return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
}
