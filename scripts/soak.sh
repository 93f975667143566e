#!/usr/bin/env bash
# The long runs: a week of ingest at an accelerated clock (SOAK_DAYS, default 7; SOAK_SERIES, default 2000), SOAK_ROUNDS
# rounds (default 50) of the tests that kill and restart, a fault at every call that changes a file, with SOAK_SEEDS (default 2) random power
# losses after each, SOAK_SIMULATIONS seeds (default 200) of the simulations, a million steps of alerting with one seed, and ten minutes of broken
# queries (TAKT_FUZZ_SECONDS).
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${SOAK_ROUNDS:-50}
# A fault and a kill -9 at a random moment after it, twenty times a round: 50 rounds are 1,000 kills.
bench/alerts.py soak "$((rounds * 20))"
features=()
[ -z "${DUCKDB_LIB_DIR:-}" ] || features=(--no-default-features)
cargo run --release "${features[@]}" --locked -q -p takt-store --example soak -- "${SOAK_DAYS:-7}" "${SOAK_SERIES:-2000}"
echo "== a fault at every call"
export TAKT_TEST_SEEDS=${SOAK_SEEDS:-2}
cargo test --release "${features[@]}" --locked -p takt-store --test blocks -- --nocapture power:: faults:: damage::
cargo test --release "${features[@]}" --locked -p takt --test whole -- --nocapture disk_faults:: alerts::disk::
unset TAKT_TEST_SEEDS
echo "== simulations"
TAKT_SIMULATION_RANDOM=1 TAKT_SIMULATION_SEEDS=${SOAK_SIMULATIONS:-200} cargo test --release "${features[@]}" --locked -p takt-server --test simulation -- --nocapture
TAKT_SIMULATION_STEPS=1000000 TAKT_SIMULATION_SEED=${SOAK_SEED:-$RANDOM} cargo test --release "${features[@]}" --locked -p takt-server --test simulation -- --nocapture alerting
for ((round = 1; round <= rounds; round++)); do
	echo "== round $round of $rounds"
	cargo test --release "${features[@]}" --locked -p takt-collector --test scrape
	cargo test --release "${features[@]}" --locked -p takt-store --test blocks
	cargo test --release "${features[@]}" --locked -p takt --test whole serve::
done
echo "== broken queries for ${TAKT_FUZZ_SECONDS:=600} seconds"
export TAKT_FUZZ_SECONDS
cargo test --release "${features[@]}" --locked -p takt-promql --test promql -- broken_queries --nocapture
