#!/usr/bin/env bash
# The main job, live, on real parts. Ctrl-C ends all of it. ONCE=1 ends by itself, with exit code 0
# only if every Application is Synced and Healthy.
#
# Argo CD, helm and kustomize are built while the control plane runs already: the demo calls
# scripts/parts.sh for them. Everything built is kept.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/parts.sh git postgres lab argocd-3.5-crds
echo "building argosy (first time 2 to 4 min) ..." >&2
make --no-print-directory build
go build -ldflags="-s -w" -o .cache/bin/demo ./test/demo
exec .cache/bin/demo
