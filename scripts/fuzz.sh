#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME (default 30s) each. A failing input stays in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | xargs -n1 dirname | sort -u | while read -r dir; do
  grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u | while read -r target; do
    echo "== $dir $target" >&2
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-30s}" "./$dir" </dev/null
  done
done
