#!/usr/bin/env bash
# Measures, on real parts, and prints ratios to floors of the same run.  scripts/bench.sh core [options of test/bench]
# JSON with every sample goes to .cache/bench. A quick look: scripts/bench.sh core -n 500 -sizes 100,300,1000 -memory 1000 -flat 500 -blocks 2
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?"usage: scripts/bench.sh core [options]"}
shift
if [[ $what != core ]]; then
  echo "bench: \"$what\" is not measured; core is" >&2
  exit 2
fi
scripts/parts.sh git postgres lab argocd-3.2
go build -o .cache/bin/bench-argosy ./cmd/argosy # its own: bin/argosy may be built anew while this runs
go build -o .cache/bin/bench ./test/bench
exec .cache/bin/bench "$@"
