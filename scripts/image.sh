#!/usr/bin/env bash
# The image of argosy as an OCI layout in bin/image, without a container engine. The same commit and the same Go give the same digest.
#
#	PLATFORMS="linux/amd64 linux/arm64"   what is built (default: linux/amd64)
#	VERSION=1.2.3                         the version label (default: git describe)
#
# Binaries of images are built with CGO_ENABLED=0 and -trimpath, so that neither a loader nor this machine's paths are in them. Go keeps such
# builds apart from those of `make build`: the first one compiles everything once more, some five minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
platforms=${PLATFORMS:-linux/amd64}
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
revision=$(git rev-parse HEAD)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
args=()
for platform in $platforms; do
	[[ $platform == linux/* ]] || { echo "image: $platform: images are for linux/ARCH" >&2; exit 1; }
	binary=$scratch/${platform//\//-}
	echo "building argosy for $platform (static, -trimpath: not the cache of make build, minutes the first time) ..." >&2
	CGO_ENABLED=0 GOOS=${platform%%/*} GOARCH=${platform##*/} ${GO:-go} build -trimpath -buildvcs=false \
		-ldflags "-s -w -buildid= -X main.version=$version" -o "$binary" ./cmd/argosy
	args+=(-binary "$platform=$binary")
done
${GO:-go} -C scripts/image build -o "$scratch/image" .
mkdir -p bin
digest=$("$scratch/image" -out "$PWD/bin/image" -version "$version" -revision "$revision" -epoch "$epoch" "${args[@]}")
cat <<END
bin/image holds argosy $version for $platforms
digest $digest

To push it, with what it is made of:
  oras cp -r --from-oci-layout bin/image:$version REGISTRY/argosy:$version
  skopeo copy --all oci:bin/image:$version docker://REGISTRY/argosy:$version    # the image alone
END
