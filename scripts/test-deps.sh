#!/usr/bin/env bash
# Installs the programs of Debian or Ubuntu that tests use: a real Slurm, Prometheus, a browser.
#
# As root it installs missing packages and starts no service; other users get one line with the missing packages. It
# exits with 0 in both cases: a test without its programs is skipped by name. TAKT_TEST_NO_SKIP=1 makes a skip a failure.
# With the argument `exam`, also those of `make exam`.
set -euo pipefail

PACKAGES=(
	# a Slurm of its own for each test (tests/whole/support/slurm)
	slurmctld slurmd slurmdbd slurmrestd slurm-client
	slurm-wlm-basic-plugins slurm-wlm-mysql-plugin slurm-wlm-jwt-plugin
	munge libnss-wrapper mariadb-server-core mariadb-client-core
	# SQL clients
	postgresql-client python3-psycopg python3-psycopg2 python3-asyncpg python3-sqlalchemy openssl
	libpostgresql-jdbc-java
	# a D-Bus with a stand-in for systemd
	dbus-daemon python3-dbus python3-gi
	# a changed clock
	libfaketime
	# packages of both families
	dpkg-dev binutils rpm
	# full and read-only disks
	e2fsprogs mount
	# an SNMP agent and its commands
	snmpd snmp
	# proxies before the server, a directory, and a tunnel
	nginx-light caddy slapd openssh-server openssh-client
	# other programs for comparison, and a browser
	prometheus prometheus-alertmanager prometheus-node-exporter python3-aiosmtpd openssl chromium fonts-dejavu-core curl jq victoria-metrics
)
# an emulator of arm64, with its C library; Java and Maven for Spark and Trino
[ "${1:-}" != exam ] || PACKAGES+=(qemu-user-static libc6-arm64-cross openjdk-17-jre-headless maven)

if ! command -v dpkg-query >/dev/null; then
	echo "test-deps: no Debian here; the tests that need ${PACKAGES[*]} will be skipped unless you have them"
	exit 0
fi
installed=" $(dpkg-query -W -f '${Package}:${db:Status-Status} ' "${PACKAGES[@]}" 2>/dev/null || true)"
missing=()
for package in "${PACKAGES[@]}"; do
	[[ $installed == *" $package:installed "* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
	echo "test-deps: tests will be skipped; for all of them: sudo apt-get install --no-install-recommends ${missing[*]}"
	exit 0
fi

# Exit code 101 of policy-rc.d means: install, but start no service.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install -y -q --no-install-recommends "$@"; }
apt-get update -q || true
install "${missing[@]}" && exit 0
# A release may lack a package; install the others.
for package in "${missing[@]}"; do
	install "$package" || echo "test-deps: no $package; the tests that need it will be skipped" >&2
done
