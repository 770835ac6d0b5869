#!/usr/bin/env bash
# Measures, on real parts, and prints ratios to floors of the same run.  scripts/bench.sh core|slow|placement|fleet|pulls|agents|page|rollout [options of test/bench]
# JSON with every sample goes to .cache/bench. A quick look: scripts/bench.sh core -n 500 -sizes 100,300,1000 -memory 1000 -flat 500 -blocks 2
# or scripts/bench.sh placement -place 3000 -blocks 2, or scripts/bench.sh agents -small
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?"usage: scripts/bench.sh core|slow|placement|fleet|pulls|agents|page|rollout [options]"}
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
slow)
  scripts/parts.sh git postgres lab argocd-3.5
  go build -ldflags="-s -w" -o .cache/bin/bench-argosy ./cmd/argosy
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  exec .cache/bin/bench -only slow "$@"
  ;;
placement | fleet)
  mkdir -p .cache/bin
  go -C test/argocd/v2 build -o "$PWD/.cache/bin/bench-sharding" ./sharding
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  if [[ $what = placement ]]; then
    exec .cache/bin/bench -only placement "$@"
  fi
  scripts/parts.sh git postgres
  failed=0
  .cache/bin/bench -only fleets "$@" || failed=$?
  printf '\nSmall fleets against the best of all assignments\n'
  go test -count 1 -run Optimum -v ./fleet/placement | sed -n 's/.*optimum_test.go:[0-9]*: //p; /FAIL/p' || failed=$?
  printf '\nThe drain of 200 Applications, one of which fails, at two budgets: engines in memory, a real PostgreSQL\n'
  go test -run '^$' -bench Drain -benchtime 1x -timeout 30m ./reconciler || failed=$?
  exit "$failed"
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
rollout)
  scripts/parts.sh git postgres lab argocd-3.5
  go build -ldflags="-s -w" -o .cache/bin/bench-argosy ./cmd/argosy
  go build -ldflags="-s -w" -o .cache/bin/bench ./test/bench
  exec .cache/bin/bench -only rollout "$@"
  ;;
page)
  scripts/parts.sh postgres chromium
  go build -ldflags="-s -w" -o .cache/bin/bench-page ./test/bench/page
  exec .cache/bin/bench-page "$@"
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
  echo "bench: \"$what\" is not measured; core, slow, placement, fleet, pulls, agents and rollout are" >&2
  exit 2
  ;;
esac
