#!/bin/sh
# See to it that what does not come from a Python package is installed: Debian's
# Postgres 15 with wal2json, and promtool. Nothing is started here; the tests do that.
set -eu

# Out of its package, not with it: that would start a Prometheus.
get_promtool() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "the tests need promtool: apt-get install prometheus" >&2
        exit 1
    fi
    folder=$(mktemp -d)
    apt-get update -qq
    (cd "$folder" && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .)
    install -m 755 "$folder/usr/bin/promtool" /usr/local/bin/promtool
    rm -rf "$folder"
}

command -v promtool >/dev/null || get_promtool

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
