#!/usr/bin/env bash
# Measures, on real parts, and prints ratios to floors of the same run.  scripts/bench.sh core|placement|pulls|agents [options of test/bench]
# JSON with every sample goes to .cache/bench. A quick look: scripts/bench.sh core -n 500 -sizes 100,300,1000 -memory 1000 -flat 500 -blocks 2
# or scripts/bench.sh placement -place 3000 -blocks 2, or scripts/bench.sh agents -small
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?"usage: scripts/bench.sh core|placement|pulls|agents [options]"}
shift
case $what in
core)
  scripts/parts.sh git postgres lab argocd-3.5
  go build -ldflags="-s -w" -o .cache/bin/bench-argosy ./cmd/argosy # its own: bin/argosy may be replaced while this runs
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  failed=0
  .cache/bin/bench "$@" || failed=$?
  printf '\nPostgreSQL: rows a second, as ratios to COPY and to single updates, and what reads cost\n'
  go test -run '^$' -bench . -benchtime 5x -timeout 30m ./reconciler/postgres || failed=$?
  exit "$failed"
  ;;
placement)
  mkdir -p .cache/bin
  go -C test/argocd/v2 build -o "$PWD/.cache/bin/bench-sharding" ./sharding
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  exec .cache/bin/bench -only placement "$@"
  ;;
pulls)
  scripts/parts.sh git postgres lab argocd-3.5
  go build -ldflags="-s -w" -o .cache/bin/bench-argosy ./cmd/argosy
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  failed=0
  .cache/bin/bench -only deliveries -sizes 100,100000 -memory 0 "$@" || failed=$?
  printf '\nThe plan of a pull request with one file, in a repo of 25,000: fetch, merge and read, beside git\n'
  go test -run '^$' -bench Pull -benchtime 20x -timeout 30m ./reconciler/gitrepo || failed=$?
  exit "$failed"
  ;;
agents)
  scripts/parts.sh postgres lab argocd-3.5
  go build -ldflags="-s -w" -o .cache/bin/bench-agents ./test/bench/agents
  failed=0
  .cache/bin/bench-agents ${SMALL:+-small} "$@" || failed=$?
  printf '\nWhat proving and checking a request costs, and sealing and opening a credential\n'
  go test -run '^$' -bench . ./fleet/agent || failed=$?
  exit "$failed"
  ;;
*)
  echo "bench: \"$what\" is not measured; core, placement, pulls and agents are" >&2
  exit 2
  ;;
esac
