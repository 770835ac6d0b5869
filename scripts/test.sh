#!/usr/bin/env bash
# Runs the tests, slow part by slow part, and tells how long each took.  scripts/test.sh [unit|e2e]
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
timings=()
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name" >&2
  "$@"
  timings+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}
report() {
  echo "== where the time went" >&2
  printf '%s\n' "${timings[@]}" >&2
}
trap report EXIT

step "parts" scripts/parts.sh
step "build" make --no-print-directory build
if [[ $what != e2e ]]; then
  mapfile -t unit < <(go list ./... | grep -v '/test/')
  step "the image's maker" go -C scripts/image test ./...
  step "unit, contract, PostgreSQL and API-server tests, with the race detector" go test -race -timeout 20m "${unit[@]}"
fi
if [[ $what != unit ]]; then
  step "end-to-end tests on real parts" go test -timeout 30m -p 1 ./test/...
fi
