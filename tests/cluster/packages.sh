#!/bin/sh
# Makes sure that PostgreSQL and PgBouncer are there: installs Debian's packages as root, else says what is missing.
set -eu
missing=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="postgresql"
[ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    # shellcheck disable=SC2086 # a list of packages
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
else
    echo "missing: $missing. Install with: apt-get install $missing" >&2
    exit 1
fi
