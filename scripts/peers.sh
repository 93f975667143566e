#!/usr/bin/env bash
# Builds the current releases of the programs that tests compare Takt with, and prints their folder.
#
#   scripts/peers.sh [NAME...]     all of them, or prometheus, node_exporter, amtool, opentelemetry
#
# Programs are built with Go from their modules, whose checksums Go verifies. OpenTelemetry's SDK is a Python environment. Both
# are kept in a cache folder. Without Go or venv this exits 3 or 1; tests then use Debian's versions, or are skipped by name.
# Prometheus takes some minutes.
set -euo pipefail

# Name, version of the program, package, version of its module.
PEERS='
prometheus 3.14.0 github.com/prometheus/prometheus/cmd/prometheus v0.314.0
node_exporter 1.12.1 github.com/prometheus/node_exporter v1.12.1
amtool 0.34.0 github.com/prometheus/alertmanager/cmd/amtool v0.34.0
'

cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
dir=$cache/peers
mkdir -p "$dir"

build() {
	local name=$1 version=$2 package=$3 tag=$4
	local program=$dir/$name-$version
	[ ! -x "$program" ] || return 0
	if ! command -v go >/dev/null; then
		echo "peers: Go is not installed, so $name $version cannot be built" >&2
		return 3
	fi
	echo "peers: building $name $version" >&2
	local tmp
	tmp=$(mktemp -d)
	(
		cd "$tmp"
		go mod init peers
		go get "$package@$tag"
		CGO_ENABLED=0 go build -mod=mod -o "$tmp/$name" "$package"
	) >"$tmp/log" 2>&1 || {
		tail -n 5 "$tmp/log" >&2
		rm -rf "$tmp"
		echo "peers: cannot build $name $version" >&2
		return 1
	}
	mv "$tmp/$name" "$program.new"
	mv "$program.new" "$program" # last: its presence says that it is complete
	rm -rf "$tmp"
}

# The SDK for Python, which pushes to Takt.
opentelemetry() {
	local version=1.45.2
	local environment=$dir/opentelemetry-$version
	[ ! -e "$environment/complete" ] || return 0
	echo "peers: installing opentelemetry $version" >&2
	rm -rf "$environment"
	python3 -m venv "$environment" &&
		"$environment/bin/pip" install --quiet "opentelemetry-sdk==$version" "opentelemetry-exporter-otlp-proto-http==$version" &&
		touch "$environment/complete"
}

result=0
[ $# -gt 0 ] && [[ " $* " != *" opentelemetry "* ]] || opentelemetry >&2 || {
	echo "peers: cannot install opentelemetry" >&2
	result=1
}
while read -r name version package tag; do
	[ -n "$name" ] || continue
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	build "$name" "$version" "$package" "$tag" || result=$?
done <<<"$PEERS"
echo "$dir"
exit "$result"
