#!/usr/bin/env bash
# The main job, live, on real parts: builds what it needs (cached afterwards), starts it, and shows it. Ctrl-C ends all of it.
# ONCE=1 ends by itself, with exit code 0 only if every Application is Synced and Healthy.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/parts.sh git postgres lab argocd-2.14 argocd-3.2 redis kustomize helm
echo "building argosy (first time 2 to 4 min) ..." >&2
make --no-print-directory build
go build -ldflags="-s -w" -o .cache/bin/demo ./test/demo
exec .cache/bin/demo
