// Package inspect turns what an Argo CD keeps of an Application's resources into the types that
// Argosy shows: the tree, manifests, differences, events, logs and past syncs (ADR 0084).
//
// Rules of this package:
//   - it sends no request: values in, values out, and readers for streams;
//   - no value of a Secret leaves it, whatever Argo CD has masked before (see mask.go);
//   - input is untrusted: every result keeps the bounds of package mirror, and no input makes a
//     function take more than a multiple of the input's size.
package inspect
