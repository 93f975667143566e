#!/usr/bin/env bash
# Builds the current releases of the programs that tests compare Takt with, and prints their folder.
#
#   scripts/peers.sh [NAME...]     all that tests use, or prometheus, promtool, node_exporter, alertmanager, amtool, opentelemetry,
#                                  victoria-metrics (only benchmarks use it)
#
# Programs are built with Go from their modules, whose checksums Go verifies. OpenTelemetry's SDK is a Python environment. Both
# are kept in a cache folder. Without Go or venv this exits 3 or 1; tests then use Debian's versions, or are skipped by name.
# Prometheus takes some minutes. The versions are also in tests/whole/support/mod.rs.
set -euo pipefail

# Name, version of the program, module, package within it, version of the module.
PEERS='
prometheus 3.14.0 github.com/prometheus/prometheus cmd/prometheus v0.314.0
promtool 3.14.0 github.com/prometheus/prometheus cmd/promtool v0.314.0
node_exporter 1.12.1 github.com/prometheus/node_exporter . v1.12.1
alertmanager 0.34.0 github.com/prometheus/alertmanager cmd/alertmanager v0.34.0
amtool 0.34.0 github.com/prometheus/alertmanager cmd/amtool v0.34.0
victoria-metrics 1.151.0 github.com/VictoriaMetrics/VictoriaMetrics app/victoria-metrics v1.151.0
'
# Not built unless named.
FOR_BENCHMARKS=victoria-metrics

cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
dir=$cache/peers
mkdir -p "$dir"

build() {
	local name=$1 version=$2 module=$3 package=$4 tag=$5
	local program=$dir/$name-$version path=$module/$package
	path=${path%/.}
	[ ! -x "$program" ] || return 0
	if ! command -v go >/dev/null; then
		echo "peers: Go is not installed, so $name $version cannot be built" >&2
		return 3
	fi
	echo "peers: building $name $version" >&2
	local tmp cgo=0
	# Its releases compress with the C library.
	[ "$name" != victoria-metrics ] || cgo=1
	tmp=$(mktemp -d)
	(
		cd "$tmp"
		go mod init peers
		go get "$path@$tag"
		if [ "$name" = alertmanager ]; then
			# The module lacks the built pages, which the program embeds. A copy with an empty page is built.
			cp -r "$(go list -m -f '{{.Dir}}' "$module")" copy
			chmod -R u+w copy
			mkdir -p copy/ui/app/dist
			echo >copy/ui/app/dist/index.html
			go mod edit -replace "$module=./copy"
		fi
		# amtool compares its version with the server's.
		CGO_ENABLED=$cgo go build -mod=mod -ldflags "-X github.com/prometheus/common/version.Version=$version" -o "$tmp/$name" "$path"
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
while read -r name version module package tag; do
	[ -n "$name" ] || continue
	[ $# -gt 0 ] || [ "$name" != "$FOR_BENCHMARKS" ] || continue
	[ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
	build "$name" "$version" "$module" "$package" "$tag" || result=$?
done <<<"$PEERS"
echo "$dir"
exit "$result"
