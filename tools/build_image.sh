#!/bin/sh
# build_image.sh: the image $DEJAMQ_IMAGE (default dejamq:local), also where no image registry can be reached.
# BASE_IMAGE names the image to build on. Without it one is made by debootstrap, once; who is not root or has no
# debootstrap takes the Dockerfile's own base, from a registry.
# EXTRAS is what the image holds, see the Dockerfile. Packages are collected here, so that the build needs no network.
set -eu
cd "$(dirname "$0")/.."
image=${DEJAMQ_IMAGE:-dejamq:local}
extras=${EXTRAS:-all,java}
base=${BASE_IMAGE:-}
wheels=build/wheels/$extras
python=.venv/bin/python

choose_base() {
    [ -z "$base" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null; then
        base=dejamq-base:bookworm
        docker image inspect "$base" >/dev/null 2>&1 || make_base
    else
        base=$(sed -n 's/^ARG BASE_IMAGE=//p' Dockerfile)
    fi
}

make_base() {
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    echo "making $base with debootstrap"
    debootstrap --variant=minbase --include=python3,ca-certificates bookworm "$root" >"$root.log" || {
        tail -n 20 "$root.log" >&2
        return 1
    }
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists -c . | docker import - "$base"
    rm -rf "$root" "$root.log"
}

# The wheels are those of the base's Python, so they are chosen for its version, not for the one that runs here.
collect_wheels() {
    version=$(docker run --rm --entrypoint python3 "$base" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    key=$(cat pyproject.toml constraints.txt tools/build_image.sh | sha256sum | cut -c1-16)-$extras-$version
    [ "$(cat "$wheels/.key" 2>/dev/null)" = "$key" ] && return 0
    [ "$version" = "$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" ] || {
        echo "$base has Python $version, .venv another one: make setup PYTHON=python$version, or choose a BASE_IMAGE" >&2
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
docker build --build-arg BASE_IMAGE="$base" --build-arg WHEELS="$wheels" --build-arg EXTRAS="$extras" -t "$image" .
