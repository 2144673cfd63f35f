# Read by the scripts beside it.

# interpreter VERSION: its path. A shim of pyenv is there for versions that do not run.
interpreter() {
    for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        "$found" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null || continue
        command -v "$found"
        return
    done
    return 1
}
