#!/bin/sh
# Make .venv and install walferry into it with one of its extras.
# Usage: venv.sh PYTHON EXTRA
set -eu
python=$1 extra=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "walferry needs Python 3.11 or later, $python is older or missing:" \
        "PYTHON=python3.12 make ..." >&2
    exit 1
fi
# Not whether .venv is there: Debian without python3-venv leaves one without pip behind.
if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    "$python" -m venv --clear .venv >/dev/null || {
        echo "python's venv module is missing: apt-get install python3-venv" >&2
        exit 1
    }
fi
echo "installing walferry[$extra] into .venv ..."
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c constraints.txt -e ".[$extra]"
