#!/bin/sh
# Compares Cargo.lock with the RustSec database of known vulnerabilities, where cargo-deny and its database can be had. Skips by name
# otherwise: a machine without internet access shall still be able to check everything else. TAKT_TEST_NO_SKIP=1 turns that into a failure.
set -eu

skip() {
    echo "check-advisories: skipped: $1" >&2
    [ "${TAKT_TEST_NO_SKIP:-}" = 1 ] && exit 1
    exit 0
}

command -v cargo-deny >/dev/null || skip "cargo-deny is missing (cargo install --locked cargo-deny)"
cargo deny --version >/dev/null
cargo deny fetch db >/dev/null 2>&1 || [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ] ||
    skip "the database of advisories cannot be downloaded"
exec cargo deny check advisories
