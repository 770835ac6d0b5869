#!/usr/bin/env bash
# Fails on unformatted files, on files that do not belong into a repository, on banned words and on
# stale generated files.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(git ls-files -z '*.go' | xargs -0 gofmt -l)
if [[ -n $unformatted ]]; then
  printf 'not formatted (run gofmt -w):\n%s\n' "$unformatted" >&2
  exit 1
fi
# A build result that was added once stays in every clone. 1 MiB is more than any source here needs.
large=$(git ls-files -z | xargs -0 stat -c '%s %n' 2>/dev/null | awk '$1 > 1048576')
if [[ -n $large ]]; then
  printf 'larger than 1 MiB (bytes, file): is it a build result? Remove it from the commit:\n%s\n' "$large" >&2
  exit 1
fi
go test -vet=off ./test/words
# The page's libraries are npm's, byte for byte. Without npm their hashes in the lock are checked by a test of package api.
if command -v npm >/dev/null && npm ping >/dev/null 2>&1; then scripts/vendor-page.sh --check; fi
before=$(git status --porcelain | sort; git diff | sha256sum)
go generate ./...
after=$(git status --porcelain | sort; git diff | sha256sum)
if [[ $before != "$after" ]]; then
  echo "generated files are stale; run 'make generate' and commit what changed:" >&2
  git status --porcelain >&2
  exit 1
fi
