#!/bin/sh
# build_image.sh: the image $DEJAMQ_IMAGE (default dejamq:local), also where no image registry can be reached.
# BASE_IMAGE names the image to build on, BUILD_IMAGE the one with a C compiler for the build stage.
# Without BASE_IMAGE both are made by debootstrap, once. The Dockerfile's own base comes from a registry: it serves a
# user who is not root, and a machine without debootstrap.
# EXTRAS is what the image holds, see the Dockerfile. Packages are collected here, so that the build needs no network.
# PLATFORM (linux/arm64) makes the image of another machine: its base and its packages come from their registries.
set -eu
cd "$(dirname "$0")/.."
image=${DEJAMQ_IMAGE:-dejamq:local}
extras=${EXTRAS:-cli}
platform=${PLATFORM:-}
base=${BASE_IMAGE:-}
build=${BUILD_IMAGE:-$base}
wheels=build/wheels/$extras
python=.venv/bin/python
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

choose_base() {
    [ -z "$base" ] || return 0
    if [ -z "$platform" ] && [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
        base=dejamq-base:bookworm
        build=dejamq-build:bookworm
        bootstrap "$base" python3,ca-certificates
        bootstrap "$build" python3,python3-dev,gcc,libc6-dev
    else
        base=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
    fi
}

# bootstrap IMAGE PACKAGES: a Debian with these packages, made when the image is not there.
bootstrap() {
    docker image inspect "$1" >/dev/null 2>&1 && return 0
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    echo "making $1 with debootstrap"
    debootstrap --variant=minbase --include="$2" bookworm "$root" >"$root.log" || {
        tail -n 20 "$root.log" >&2
        return 1
    }
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -c . | docker import - "$1"
    rm -rf "$root" "$root.log"
}

# The wheels are those of the base's Python, so they are chosen for its version, not for the one that runs here.
collect_wheels() {
    [ -z "$platform" ] || return 0
    python_version=$(docker run --rm --entrypoint python3 "$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    key=$(cat pyproject.toml constraints.txt tools/build_image.sh | sha256sum | cut -c1-16)-$extras-$python_version
    [ "$(cat "$wheels/.key" 2>/dev/null)" = "$key" ] && return 0
    [ "$python_version" = "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" ] || {
        echo "$base has Python $python_version, .venv another one: make setup PYTHON=python$python_version, or choose a BASE_IMAGE" >&2
        return 1
    }
    echo "collecting wheels for dejamq[$extras]"
    rm -rf "$wheels"
    "$python" -m pip wheel --quiet --disable-pip-version-check -c constraints.txt -w "$wheels" ".[$extras]" pip hatchling setuptools
    rm "$wheels"/dejamq-*.whl # the image builds its own from the source
    echo "$key" >"$wheels/.key"
}

choose_base
collect_wheels
mkdir -p "$wheels" # the Dockerfile copies from it, wheels or not
docker build ${platform:+--platform "$platform"} --build-arg BASE_IMAGE="$base" --build-arg BUILD_IMAGE="${build:-$base}" \
    --build-arg WHEELS="$wheels" --build-arg EXTRAS="$extras" --build-arg VERSION="$version" -t "$image" .
