# Takt's commands. `make help` lists them.
#
# DuckDB is linked as a prebuilt library (scripts/libduckdb.sh). Without npm, on other platforms, or with BUNDLED=1, it is
# compiled from source, which takes about 25 minutes on two cores.

CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR

ifeq ($(filter 1,$(BUNDLED))$(filter install,$(MAKECMDGOALS)),)
DUCKDB_LIB_DIR := $(shell scripts/libduckdb.sh)
endif
ifneq ($(DUCKDB_LIB_DIR),)
export DUCKDB_LIB_DIR
FEATURES := --no-default-features
endif

# A data lake on S3 needs eight more packages; `make dist` has them.
ifeq ($(S3),1)
FEATURES += --features takt/s3
endif

PREFIX ?= /usr/local
TO = $(DESTDIR)$(PREFIX)

PROFILE := --release
BIN := $(CARGO_TARGET_DIR)/release
CARGO_FLAGS := $(PROFILE) $(FEATURES) --locked

# The folder `dashboards` exists, so the target must be phony.
.PHONY: help up demo dist build install test test-fast exam test-deps peers check fuzz dashboards check-windows check-musl docs soak bench test-bundled clean library

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

up: library ## build, then monitor this machine into ./takt-data (TAKT_ARGS for more flags)
	cargo build $(CARGO_FLAGS) -p takt
	$(BIN)/takt up $(TAKT_ARGS)

demo: library ## build, then show takt with a simulated cluster (TAKT_ARGS="--nodes 30")
	cargo build $(CARGO_FLAGS) -p takt
	$(BIN)/takt demo $(TAKT_ARGS)

build: library ## build takt and takt-exporter (S3=1: a data lake may be on S3)
	cargo build $(CARGO_FLAGS) -p takt -p takt-exporter

# Builds nothing, so root compiles no code: `make build && sudo make install`.
install: ## put the programs, units, man pages, completions and documentation below PREFIX (/usr/local)
	install -d $(TO)/bin $(TO)/lib/takt $(TO)/lib/systemd/system $(TO)/lib/sysusers.d $(TO)/share/doc/takt
	install -m 755 $(BIN)/takt $(BIN)/takt-exporter $(TO)/lib/takt
	if [ -e $(BIN)/libduckdb.so ]; then install -m 644 $(BIN)/libduckdb.so $(TO)/lib/takt; fi
	ln -sf ../lib/takt/takt ../lib/takt/takt-exporter $(TO)/bin
	$(BIN)/takt man $(TO)/share/man/man1
	install -d $(TO)/share/bash-completion/completions $(TO)/share/zsh/site-functions $(TO)/share/fish/vendor_completions.d
	for program in takt takt-exporter; do \
	  $(BIN)/takt completions bash --program $$program >$(TO)/share/bash-completion/completions/$$program && \
	  $(BIN)/takt completions zsh --program $$program >$(TO)/share/zsh/site-functions/_$$program && \
	  $(BIN)/takt completions fish --program $$program >$(TO)/share/fish/vendor_completions.d/$$program.fish || exit 1; \
	done
	for unit in takt takt-exporter; do sed 's|/usr/local/|$(PREFIX)/|' packaging/$$unit.service >$(TO)/lib/systemd/system/$$unit.service; done
	install -m 644 packaging/takt.sysusers $(TO)/lib/sysusers.d/takt.conf
	install -m 644 README.md CHANGELOG.md docs/*.md docs/takt.example.toml $(TO)/share/doc/takt
	cp -r dashboards/grafana dashboards/provisioning $(TO)/share/doc/takt

# The programs look for the library beside them (build.rs).
library:
ifneq ($(DUCKDB_LIB_DIR),)
	@mkdir -p $(BIN)
	@cmp -s $(DUCKDB_LIB_DIR)/libduckdb.so $(BIN)/libduckdb.so || cp $(DUCKDB_LIB_DIR)/libduckdb.so $(BIN)/
endif

test-deps: ## install the programs that tests need (as root, with apt), or list the missing ones
	scripts/test-deps.sh

# nextest is quicker where it is installed; it runs each test in a process of its own.
RUN_TESTS := $(if $(shell command -v cargo-nextest),nextest run,test)

test-fast: library ## tests of the pure crates and the exporter's golden pages, within a minute once built
	cargo $(RUN_TESTS) $(CARGO_FLAGS) --lib -p takt-model -p takt-jobs -p takt-slurm -p takt-kubernetes -p takt-accounting -p takt-simulate -p takt-promql -p takt-alerts -p takt-mail
	cargo $(RUN_TESTS) $(CARGO_FLAGS) -p takt-exporter --test golden

peers: ## build the current releases that tests compare with, if Go is installed (some minutes, once)
	@scripts/peers.sh >/dev/null || echo "peers: not all current releases can be built here; tests use Debian's versions or are skipped"

# Whole-program tests wait for other programs most of the time, so more of them run at once than there are cores.
test: test-deps peers library ## all tests except the long runs
	cargo build $(CARGO_FLAGS) --workspace
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-8} cargo test $(CARGO_FLAGS) --workspace --no-fail-fast

exam: test-deps peers library ## long tests that `make test` leaves out: packages in a machine, exporters for other machines, all pages of 300 nodes, the data lake in Spark, in Trino and on S3
	scripts/test-deps.sh exam
	scripts/lake-engines.sh exam || echo "lake-engines: tests with the engines that are missing are skipped"
	RUST_TEST_THREADS=2 cargo test $(CARGO_FLAGS) --features takt/s3 -p takt --test whole --no-fail-fast -- --ignored
	RUST_TEST_THREADS=2 cargo test $(CARGO_FLAGS) --features takt-lake/s3 -p takt-lake --no-fail-fast -- --include-ignored

check: library ## check format, lints, banned crates, SQL, links of the documentation, the Grafana boards and prose
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	scripts/check-bans.sh
	scripts/check-advisories.sh
	scripts/check-sql.sh
	scripts/check-links.sh
	scripts/check-dashboards.sh
	@scripts/prose.sh --files 5

FUZZ_CASES ?= 20000
fuzz: library ## the fuzz targets of all parsers of external text, longer than in `make test` (FUZZ_CASES)
	PROPTEST_CASES=$(FUZZ_CASES) cargo test $(CARGO_FLAGS) --workspace --no-fail-fast -- any_text any_bytes arbitrary

dashboards: ## write the Grafana boards from their generator (needs node)
	node dashboards/generator/main.js

check-windows: ## check that the exporter compiles for Windows (rustup target add x86_64-pc-windows-gnu)
	cargo check --target x86_64-pc-windows-gnu --no-default-features -p takt-exporter

check-musl: ## check that the exporter compiles without a C library (rustup target add x86_64-unknown-linux-musl)
	cargo check --target x86_64-unknown-linux-musl --locked -p takt-exporter

docs: ## build the documentation as a site in target/book (needs mdbook: cargo install mdbook)
	@command -v mdbook >/dev/null || { echo "make docs: mdbook is missing; cargo install --locked mdbook" >&2; exit 1; }
	mdbook build

dist: ## build .deb and .rpm packages for glibc 2.28 and newer, arm64 and musl, checksums and an SBOM into target/dist
	scripts/release.sh

soak: build ## a week at an accelerated clock, then tests that kill and restart (SOAK_DAYS, SOAK_ROUNDS)
	scripts/soak.sh

bench: build ## run all benchmarks beside other programs; results belong in docs/performance.md
	bench/run.sh

test-bundled: ## the tests with DuckDB compiled from source, before a release
	$(MAKE) test BUNDLED=1

clean: ## remove all build results
	cargo clean
