#!/bin/sh
# dist.sh DIRECTORY VERSION…: sdist, wheels, their list of parts and their checksums, for a release.
# A wheel with compiled parts for each of these Pythons that is installed, and one without them for all others.
# All are built from the sdist, so that nothing of the checkout gets in. Other processors: docs/releasing.md.
set -eu
cd "$(dirname "$0")/.."
. tools/interpreter.sh
work=$PWD/build/dist
mkdir -p "$1" "$work"
directory=$(cd "$1" && pwd)
shift
tools=$work/tools
pip_options="--quiet --disable-pip-version-check"
rm -rf "$directory"/dejamq-* "$directory"/SHA256SUMS "$work"/wheels "$work"/parts

# environment FOLDER PYTHON: a virtual environment, made when it is not there.
environment() { [ -x "$1/bin/pip" ] || "$2" -m venv "$1"; }

environment "$tools" "${PYTHON:-python3}"
"$tools/bin/pip" install $pip_options -r tools/dist-requirements.txt

echo "sdist"
"$tools/bin/python" -m build --sdist --outdir "$directory" . >"$work/build.log" 2>&1 || { tail -n 20 "$work/build.log" >&2; exit 1; }
sdist=$(echo "$directory"/dejamq-*.tar.gz)

# wheel PYTHON FOLDER: built there from the sdist.
wheel() { "$1" -m pip wheel $pip_options --no-deps --no-cache-dir -w "$2" "$sdist"; }

echo "wheel without compiled parts"
DEJAMQ_PURE_PYTHON=1 wheel "$tools/bin/python" "$directory"

missing=
for version in "$@"; do
    python=$(interpreter "$version") || { missing="$missing $version"; continue; }
    echo "wheel for Python $version"
    environment "$work/python$version" "$python"
    wheel "$work/python$version/bin/python" "$work/wheels/$version"
    case $(echo "$work/wheels/$version"/dejamq-*.whl) in
        *-none-any.whl) echo "no C compiler, or no headers of Python $version: no wheel with compiled parts for it" >&2 ;;
        *)
            PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$directory" "$work/wheels/$version"/dejamq-*.whl \
                >"$work/auditwheel.log" 2>&1 || { cat "$work/auditwheel.log" >&2; exit 1; }
            ;;
    esac
done

echo "list of parts (CycloneDX)"
environment "$work/parts" "${PYTHON:-python3}"
"$work/parts/bin/pip" install $pip_options -c constraints.txt "$(echo "$directory"/dejamq-*-none-any.whl)[all]"
"$work/parts/bin/pip" uninstall --quiet --yes setuptools pip
rm -f "$work"/parts/lib/python*/site-packages/dejamq-*.dist-info/direct_url.json # a path of this machine
"$tools/bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml --mc-type library \
    --output-file "$directory/$(basename "$sdist" .tar.gz).cdx.json" "$work/parts/bin/python"

"$tools/bin/twine" check --strict "$directory"/dejamq-*.whl "$sdist"
(cd "$directory" && sha256sum dejamq-* >SHA256SUMS)
ls -l "$directory"
[ -z "$missing" ] || echo "no wheel for Python$missing: it is not installed here" >&2
