#!/bin/sh
# See to it that the servers which do not come from a Python package are installed:
# Debian's Postgres 15 with wal2json. Nothing is started here; the tests do that.
set -eu
packages="postgresql-15 postgresql-15-wal2json openssl"

is_complete() {
    [ -x /usr/lib/postgresql/15/bin/postgres ] &&
        [ -e /usr/lib/postgresql/15/lib/wal2json.so ] &&
        command -v openssl >/dev/null
}

if is_complete || [ -n "${WALFERRY_TEST_PG15_DSN:-}" ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the tests need Postgres 15 and wal2json: apt-get install $packages" >&2
    exit 1
fi
# Without this the package would make and start a cluster of its own.
if ! dpkg -s postgresql-15 >/dev/null 2>&1; then
    mkdir -p /etc/postgresql-common
    grep -qs create_main_cluster /etc/postgresql-common/createcluster.conf ||
        echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf
fi
apt-get update -qq
# shellcheck disable=SC2086 - a list of words
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y $packages
is_complete
