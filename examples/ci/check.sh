#!/bin/sh
# Checks a pull request of a config repo in any CI, with the same messages and exit codes as a control plane.
#
#	sh check.sh BASE [HEAD]        e.g.  sh check.sh origin/main
#
# BASE is the target of the merge, HEAD its source (default: HEAD). Needs argosy and git on the PATH, and a clone whose
# history contains both. Writes to $ARGOSY_OUT (default: argosy-out):
#
#	problems.sarif  plan.sarif     for code scanning
#	plan.md                        for a comment or a job summary
#	plan.json                      for further processing
#
# Exit code 0: no error. 1: a declaration has an error. 2: the check itself failed.
set -u
base=${1:?"usage: check.sh BASE [HEAD]"}
head=${2:-HEAD}
out=${ARGOSY_OUT:-argosy-out}
mkdir -p "$out" || exit 2

argosy validate . -o sarif >"$out/problems.sarif"
[ $? -le 1 ] || exit 2
for format in sarif json markdown; do
	case $format in markdown) file=plan.md ;; *) file=plan.$format ;; esac
	# Exit code 1 means that there are changes, which is normal for a pull request.
	argosy plan --base "$base" --head "$head" -o $format >"$out/$file"
	[ $? -le 1 ] || exit 2
done
cat "$out/plan.md"
argosy validate .
