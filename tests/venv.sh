#!/bin/sh
# Make .venv and install walferry into it with one of its extras.
# Usage: venv.sh PYTHON EXTRA
set -eu
python=$1 extra=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "walferry needs Python 3.11 or later: PYTHON=python3.12 make ..." >&2
    exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv || {
    echo "python's venv module is missing: apt-get install python3-venv" >&2
    exit 1
}
echo "installing walferry[$extra] into .venv ..."
.venv/bin/python -m pip install --quiet --disable-pip-version-check \
    -c constraints.txt -e ".[$extra]"
