#!/usr/bin/env bash
# Checks that the committed Grafana boards are what their generator writes, that they keep the rules of its lint.js, that
# each of these rules refuses a board, and that the boards fit the schema of the oldest and of the newest Grafana they are
# for.
#
# Without node, and without npm or its registry, the part that needs it is skipped with a line that says so.
# TAKT_TEST_NO_SKIP=1 makes a skip a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

GRAFANA=(10.2.3 13.2.3)
TYPESCRIPT=5.9.3

skip() {
	echo "check-dashboards: skipped: $1" >&2
	[ -z "${TAKT_TEST_NO_SKIP:-}" ]
	exit
}

command -v node >/dev/null || skip "node is not installed"
node dashboards/generator/main.js --check
tried=$(node --test dashboards/generator/lint.test.js 2>&1) || {
	echo "$tried" >&2
	exit 1
}

command -v npm >/dev/null || skip "npm is not installed; the schema was not checked"
cache=${TAKT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/takt}
for version in "${GRAFANA[@]}"; do
	folder=$cache/grafana-schema-$version
	if [ ! -e "$folder/complete" ]; then
		mkdir -p "$folder"
		npm install --silent --no-save --no-package-lock --prefix "$folder" \
			"@grafana/schema@$version" "typescript@$TYPESCRIPT" >&2 ||
			skip "npm cannot fetch @grafana/schema $version; the schema was not checked"
		touch "$folder/complete"
	fi
	rm -rf "$folder/boards"
	node dashboards/generator/types.js "$folder/boards"
	"$folder/node_modules/.bin/tsc" --noEmit --strict --skipLibCheck --target es2022 --module esnext \
		--moduleResolution bundler "$folder"/boards/*.ts || {
		echo "check-dashboards: the boards do not fit the schema of Grafana $version" >&2
		exit 1
	}
done
