#!/bin/sh
# Checks a pull request against a config repo in any CI: the same words and exit codes as the pull request gets from a control plane.
#
#	sh check.sh BASE [HEAD]        e.g.  sh check.sh origin/main
#
# BASE is what the change is to be merged into, HEAD what is to be merged (default: HEAD). Needs argosy and git on the PATH, and a clone with
# enough history to have both. Leaves in $ARGOSY_OUT (default: argosy-out):
#
#	problems.sarif  plan.sarif     for code scanning
#	plan.md                        for a comment or a job summary
#	plan.json                      for whatever comes next
#
# Exit code 0: nothing is wrong. 1: a declaration is wrong. 2: it could not be checked.
set -u
base=${1:?"usage: check.sh BASE [HEAD]"}
head=${2:-HEAD}
out=${ARGOSY_OUT:-argosy-out}
mkdir -p "$out" || exit 2

argosy validate . -o sarif >"$out/problems.sarif"
[ $? -le 1 ] || exit 2
for format in sarif json markdown; do
	case $format in markdown) file=plan.md ;; *) file=plan.$format ;; esac
	# Exit code 1 says that there are changes, which is what a pull request is for.
	argosy plan --base "$base" --head "$head" -o $format >"$out/$file"
	[ $? -le 1 ] || exit 2
done
cat "$out/plan.md"
argosy validate .
