#!/usr/bin/env bash
# Downloads Argo CD's published manifests to this chart's folder and verifies each against its SHA-256 in argocd.lock. They are not part of the
# repository.
#
#	argocd.sh v3.5.7                          from Argo CD's repository
#	argocd.sh v3.5.7 https://mirror/argo-cd   from a mirror that has <version>/manifests/...
#	argocd.sh v3.5.7 /some/folder             from a folder with namespace-install.yaml and crds/
#
# For a version that is not in the lock, review its manifests first and add their checksums.
set -euo pipefail
version=${1:?usage: argocd.sh VERSION [MIRROR or FOLDER]}
from=${2:-https://raw.githubusercontent.com/argoproj/argo-cd}
cd "$(dirname "$0")"
out=files/argocd/$version
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
found=0
while read -r sum at path; do
	[[ $at == "$version" ]] || continue
	found=1
	if [[ $from == http*://* ]]; then
		curl -fsSL --proto '=https,http' -o "$scratch/file" "$from/$version/manifests/$path"
	else
		cp "$from/$path" "$scratch/file"
	fi
	if ! printf '%s  %s\n' "$sum" "$scratch/file" | sha256sum --check --status; then
		echo "argocd.sh: $path of Argo CD $version from $from does not match argocd.lock; nothing was installed" >&2
		exit 1
	fi
	install -D -m 644 "$scratch/file" "$scratch/all/$path"
done <argocd.lock
if [[ $found == 0 ]]; then
	echo "argocd.sh: argocd.lock has no checksums for Argo CD $version; it has: $(awk '!/^#/ {print $2}' argocd.lock | sort -u | xargs)" >&2
	exit 1
fi
mkdir -p files/argocd
rm -rf "$out"
cp -R "$scratch/all" "$out"
