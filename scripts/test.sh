#!/usr/bin/env bash
# Runs the tests and prints how long each group took.  scripts/test.sh [unit|e2e]
#
# The tests below test/ mostly wait for processes, so the other packages run beside them: first those
# without the race detector, then those with it. The slowest packages run last and alone: they start
# real servers under the race detector, and have limits of time. golangci vets all of them, so this
# does not.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}

# heavy prints the packages that start most servers under the race detector, the slowest first.
heavy() { go list ./reconciler ./reconciler/postgres ./fleet/argocd ./fleet/argocd/instance ./reconciler/gitrepo; }

# light prints the other packages whose goroutines share memory: all but these. Race mode compiles
# every dependency a second time and runs several times slower.
#   cmd, charts          start the goroutines of other packages; link 700 packages more
#   reconciler/secrets   one goroutine of its own; links the SDKs of five clouds, 800 packages
#   reconciler/plan, webhook/review, fleet/placement   pure functions with long property tests
light() {
  go list ./... | grep -v -E '/(test|cmd|charts)(/|$)|/reconciler/(secrets$|plan)|/webhook/review|/fleet/placement|/generate$' |
    grep -vxF -f <(heavy)
}

# unraced prints the other packages.
unraced() { go list ./... | grep -v '/test/' | grep -vxF -f <(heavy; light); go list ./test/words; }

# left_out runs the tests of files that the race detector leaves out for their imports.
left_out() {
  local files tests
  mapfile -t files < <(git grep -l '^//go:build !race' -- '*_test.go')
  tests=$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' "${files[@]}" | paste -sd '|')
  go test -vet=off -run "^($tests)\$" $(dirname "${files[@]}" | sort -u | sed 's|^|./|')
}

# systems prints the packages below test/, the slowest first.
systems() {
  local slow=(./test/e2e ./test/chaos ./test/e2e/helm ./test/stack)
  go list "${slow[@]}"
  go list ./test/... | grep -vxF -f <(go list "${slow[@]}" ./test/words)
}

# at_once prints how many packages of test/ may run at the same time: two if 12 GB are available.
at_once() { awk '/^MemAvailable/ { print ($2 > 12 * 1024 * 1024) ? 2 : 1 }' /proc/meminfo 2>/dev/null || echo 1; }

timings=()
pids=()
names=()
begin() {
  names+=("$1")
  shift
  (
    start=$SECONDS status=0
    "$@" || status=$?
    echo $((SECONDS - start)) $status >"$scratch/${#names[@]}"
  ) &
  pids+=($!)
}
scratch=$(mktemp -d)
finish() {
  rm -rf "$scratch"
  ((${#timings[@]})) && printf '== where the time went\n' >&2 && printf '%s\n' "${timings[@]}" >&2
  return 0
}
trap finish EXIT
trap 'kill "${pids[@]}" 2>/dev/null; exit 130' INT TERM

start=$SECONDS
scripts/parts.sh
timings+=("$(printf '%5d s  parts' $((SECONDS - start)))")
start=$SECONDS
make --no-print-directory build
timings+=("$(printf '%5d s  build' $((SECONDS - start)))")

if [[ $what != unit ]]; then
  mapfile -t packages < <(systems)
  begin "test/: real parts, end to end" go test -vet=off -timeout 60m -p "$(at_once)" "${packages[@]}"
fi
if [[ $what != e2e ]]; then
  mapfile -t packages < <(unraced)
  begin "packages without the race detector" go test -vet=off -timeout 30m "${packages[@]}"
  begin "tests that the race detector leaves out" left_out
  begin "the image's maker" go -C scripts/image test ./...
  wait "${pids[@]: -3}"
  mapfile -t packages < <(light)
  begin "packages with the race detector" go test -race -vet=off -timeout 30m "${packages[@]}"
  wait "${pids[@]}"
  mapfile -t packages < <(heavy)
  begin "the slowest packages with the race detector" go test -race -vet=off -timeout 30m "${packages[@]}"
fi
wait "${pids[@]}"
failed=0
for i in "${!names[@]}"; do
  result=ok
  read -r took status <"$scratch/$((i + 1))"
  ((status == 0)) || result=FAILED failed=1
  timings+=("$(printf '%5d s  %s: %s' "$took" "${names[i]}" "$result")")
done
exit $failed
