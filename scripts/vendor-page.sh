#!/usr/bin/env bash
# Fetches the page's libraries from npm at the versions of vendor.lock, and
# writes them into api/page/static/vendor with their licences.
#
#	scripts/vendor-page.sh          fetch, and write the lock's hashes
#	scripts/vendor-page.sh --check  fail if a committed file is not npm's
#
# To take another version, edit its line in vendor.lock first. npm verifies
# each package by the registry's signature of its integrity.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly vendor=$PWD/api/page/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch PACKAGE VERSION FILE: prints the folder with the package's content.
fetch() {
	local dir=$work/$1
	if [[ ! -d $dir ]]; then
		mkdir -p "$dir"
		(cd "$dir" && tar xzf "$(npm pack --silent "$1@$2")" --strip-components=1)
	fi
	printf '%s' "$dir"
}

while read -r package version path file _; do
	[[ -z $package || $package == \#* ]] && continue
	dir=$(fetch "$package" "$version")
	if [[ ${1:-} == --check ]]; then
		cmp "$dir/$path" "$vendor/$file" || { echo "$file is not that of $package@$version on npm" >&2; exit 1; }
	else
		install -m 644 "$dir/$path" "$vendor/$file"
	fi
	printf '%s %s %s %s %s\n' "$package" "$version" "$path" "$file" "$(sha256sum "$dir/$path" | cut -d' ' -f1)"
done <"$vendor/vendor.lock" >"$work/lock"
if [[ ${1:-} != --check ]]; then
	{ grep '^#' "$vendor/vendor.lock"; cat "$work/lock"; } >"$work/new"
	install -m 644 "$work/new" "$vendor/vendor.lock"
fi
