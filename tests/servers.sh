#!/bin/sh
# See to it that what the tests run and no Python package brings is installed: Debian's
# Postgres 15 with wal2json, openssl, and the tools that read the alert rules and the
# compose file. Nothing is started here; the tests do that.
set -eu

missing() {
    postgres=/usr/lib/postgresql/15
    [ -n "${WALFERRY_TEST_PG15_DSN:-}" ] ||
        { [ -x $postgres/bin/postgres ] && [ -e $postgres/lib/wal2json.so ]; } ||
        echo postgresql-15 postgresql-15-wal2json
    command -v openssl >/dev/null || echo openssl
    command -v promtool >/dev/null || echo prometheus
    command -v docker-compose >/dev/null ||
        docker compose version >/dev/null 2>&1 || echo docker-compose
}

packages=$(missing | tr '\n' ' ')
[ -n "$packages" ] || exit 0
install="apt-get install --no-install-recommends"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "the tests need more than is here: $install $packages" >&2
    exit 1
fi
echo "installing $packages..."

# Debian's packages start what they bring, and Postgres' makes a cluster first: both only
# where the administrator has not said otherwise.
if ! dpkg -s postgresql-15 >/dev/null 2>&1; then
    mkdir -p /etc/postgresql-common
    grep -qs '^ *create_main_cluster' /etc/postgresql-common/createcluster.conf ||
        echo "create_main_cluster = false" >>/etc/postgresql-common/createcluster.conf
fi
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
fi
apt-get update -qq
# shellcheck disable=SC2086 - lists of words
DEBIAN_FRONTEND=noninteractive $install -qq -y $packages >/dev/null
case $packages in
*prometheus*) systemctl disable --quiet prometheus 2>/dev/null || true ;;
esac
if [ -n "$(missing)" ]; then
    echo "still missing after apt-get: $(missing)" >&2
    exit 1
fi
