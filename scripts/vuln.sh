#!/usr/bin/env bash
# No package that the binary links has a known vulnerability. govulncheck asks $GOVULNDB, or https://vuln.go.dev. Without a database only the
# list in test/vuln/known is checked, with a warning; REQUIRE_VULNDB=1, as for a release, makes that an error.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.cache/bin/govulncheck
if [[ ! -x $bin || test/vuln/go.sum -nt $bin ]]; then
  mkdir -p .cache/bin
  (cd test/vuln && go build -o "../../$bin" golang.org/x/vuln/cmd/govulncheck)
  touch "$bin"
fi
"$bin" -db "file://$PWD/test/vuln/known" -scan package ./cmd/argosy
db=${GOVULNDB:-https://vuln.go.dev}
problem=$(mktemp)
trap 'rm -f "$problem"' EXIT
if "$bin" -db "$db" -scan package ./cmd/argosy 2>"$problem"; then
  exit 0
elif ! grep -q 'fetching vulnerabilities' "$problem"; then
  cat "$problem" >&2
  exit 1
fi
{
  echo "=============================================================================================="
  echo "NOT CHECKED: the vulnerability database $db cannot be reached. Only the"
  echo "$(find test/vuln/known -name '*.json' | wc -l) entries of test/vuln/known were checked, the latest of $(grep -ho '"modified": "[0-9-]*' test/vuln/known/*.json | sort | tail -1 | cut -d'"' -f4)."
  echo "Set GOVULNDB to a mirror or a folder (file:///...), or run scripts/vuln.sh where it can be reached."
  echo "=============================================================================================="
} >&2
[[ ${REQUIRE_VULNDB:-} != 1 ]]
