#!/bin/sh
# Compares Cargo.lock with the RustSec database of known vulnerabilities. Skips by name where cargo-deny is missing or no database can
# be had: a machine without internet access shall still be able to check everything else. TAKT_TEST_NO_SKIP=1 turns that into a failure.
set -eu

say() {
    echo "check-advisories: $1" >&2
}

skip() {
    say "skipped: $1"
    [ "${TAKT_TEST_NO_SKIP:-}" = 1 ] && exit 1
    exit 0
}

command -v cargo-deny >/dev/null || skip "cargo-deny is missing (cargo install --locked cargo-deny)"
databases="${CARGO_HOME:-$HOME/.cargo}/advisory-dbs"
if ! said=$(cargo deny fetch db 2>&1); then
    [ -n "$(ls "$databases" 2>/dev/null)" ] ||
        skip "the database of advisories cannot be downloaded: $(echo "$said" | tail -n 1)"
    say "the database of advisories cannot be updated; using the copy of $(date -u -r "$databases" +%F)"
fi
# The check would download the database once more.
exec cargo deny check --disable-fetch advisories
