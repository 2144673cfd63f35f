#!/bin/sh
# test_versions.sh DIRECTORY VERSION…: the unit tests and the store's with each of these Pythons that is installed.
# Each has a copy of this checkout and an environment in DIRECTORY, because compiled parts lie beside their sources.
set -eu
cd "$(dirname "$0")/.."
. tools/interpreter.sh
mkdir -p "$1"
directory=$(cd "$1" && pwd)
shift
missing= failed= passed=

# run_tests VERSION PYTHON
run_tests() {
    here=$directory/$1
    rm -rf "$here/source"
    mkdir -p "$here/source"
    git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -c -T - | tar -x -C "$here/source"
    [ -x "$here/venv/bin/pip" ] || "$2" -m venv "$here/venv"
    cd "$here/source" \
        && "$here/venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' \
        && "$here/venv/bin/python" -c 'from dejamq.native import COMPILED; print("compiled parts:", COMPILED)' \
        && "$here/venv/bin/python" -m pytest -q -n "${TEST_JOBS:-2}" --dist loadscope tests/unit tests/store
}

for version in "$@"; do
    python=$(interpreter "$version") || { missing="$missing $version"; continue; }
    echo "Python $version: $python"
    if (run_tests "$version" "$python"); then passed="$passed $version"; else failed="$failed $version"; fi
done
echo "passed:${passed:- none}; failed:${failed:- none}; not found:${missing:- none}"
[ -z "$failed" ] && [ -n "$passed" ]
