#!/usr/bin/env bash
# golangci-lint, built from its module at the version in test/lint/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.cache/bin/golangci-lint
if [[ ! -x $bin || test/lint/go.sum -nt $bin ]]; then
  echo "building golangci-lint (first time 3 to 5 min) ..." >&2
  start=$SECONDS
  mkdir -p .cache/bin
  (cd test/lint && go build -o "../../$bin" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
  touch "$bin"
  echo "golangci-lint built in $((SECONDS - start)) s" >&2
fi
start=$SECONDS
"$bin" run --allow-parallel-runners --timeout 20m ./... "$@"
echo "lint took $((SECONDS - start)) s" >&2
