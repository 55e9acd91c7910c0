# Everything a developer or CI needs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The target directory lies outside the checkout, so that a fresh clone builds on what is there already.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/toolyard/target
CARGO ?= cargo
HOME_DIR ?= .toolyard
PORT ?= 18789
CRASH_POINTS ?= 40
NOTES_CRASH_POINTS ?= 6
CASES ?= *
# How long `make fuzz` runs each target.
SECONDS ?= 60
FUZZ_TARGETS ?= $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))

# Cargo chooses the features of shared dependencies by what is built together: another set of packages, or a build with
# and one without tests, means building LanceDB again. So there are two sets, and everything uses one of them. The
# benchmarks ask for no features beyond those of the program, so they are added to its set without a second build.
RELEASE := $(CARGO) build --release -p toolyard -p toolyard-sandbox -p toolyard-mcp
DEBUG := $(CARGO) build -q --workspace --all-targets --locked

.PHONY: fuzz advisories sbom context-crash crash-full help up build test test-external fmt clippy deny unit docs docs-check schema bench crash clients conformance plugins-npm openviking-plugin claude-code openclaw-cli autobahn object-store lancedb dist clean-home tools-needed

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

tools-needed: ## check that what cannot be installed by us is there
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer with rustup"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing (SQLite and zstd are built from source): install gcc"; exit 1; }
	@command -v protoc >/dev/null || { echo "installing protoc (LanceDB generates its formats with it)"; { apt-get install -y -q protobuf-compiler || { apt-get update -q && apt-get install -y -q protobuf-compiler; }; } >/dev/null 2>&1 || { echo "protoc is missing: install protobuf-compiler"; exit 1; }; }
	@command -v python3 >/dev/null || { echo "python3 is missing: it checks the links in the documentation"; exit 1; }

build: tools-needed ## build the program, optimised
	@test -x "$$CARGO_TARGET_DIR/release/toolyard" || echo "building Toolyard for the first time: 16 to 20 minutes on 2 cores, most of it for LanceDB and the crates it brings; later builds take seconds"
	$(RELEASE)

up: build ## set up and run Toolyard on embedded defaults with a sample vault
	@mkdir -p $(HOME_DIR)
	@test -d $(HOME_DIR)/vault || cp -r examples/vault $(HOME_DIR)/vault
	exec "$$CARGO_TARGET_DIR/release/toolyard" --home $(HOME_DIR) up --port $(PORT)

test: fmt clippy deny unit docs-check crash ## every check that needs nothing but this checkout and crates from cargo's registry

test-external: clients conformance plugins-npm openviking-plugin claude-code lancedb object-store ## checks with other people's clients and suites, from npm and PyPI; a failed download fails unless ALLOW_SKIP=1

fmt: tools-needed
	$(CARGO) fmt --all --check

clippy: tools-needed
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

deny: tools-needed advisories ## licences, sources, advisories and the dependency rules between crates
	@command -v cargo-deny >/dev/null || { echo "installing cargo-deny (about 4 minutes, once)"; $(CARGO) install cargo-deny --locked; }
	$(CARGO) deny --offline check bans licenses sources || $(CARGO) deny check bans licenses sources

advisories: tools-needed ## published advisories against Cargo.lock (from the copy in scripts/supply; from RustSec as well where it can be fetched)
	python3 scripts/supply/test_supply.py
	python3 scripts/supply/advisories.py
	@if command -v cargo-deny >/dev/null && $(CARGO) deny fetch db >/dev/null 2>&1; then $(CARGO) deny --offline check advisories; else echo "RustSec's database could not be fetched: the copy in scripts/supply was used"; fi

sbom: tools-needed ## write a software bill of materials (CycloneDX JSON) beside the program
	@mkdir -p "$$CARGO_TARGET_DIR"
	$(CARGO) metadata --locked --format-version 1 | python3 scripts/supply/sbom.py Cargo.lock > "$$CARGO_TARGET_DIR/toolyard.cdx.json"
	@echo "$$CARGO_TARGET_DIR/toolyard.cdx.json"

unit: tools-needed ## unit, property, contract and scenario tests
	$(CARGO) test --workspace --locked

fuzz: tools-needed ## run every fuzz target for SECONDS (default 60) with libFuzzer; needs the nightly toolchain (`make test` runs the seeds without it)
	@rustup run nightly cargo --version >/dev/null 2>&1 || { echo "make fuzz needs the nightly toolchain: rustup toolchain install nightly --profile minimal"; exit 1; }
	@command -v cargo-fuzz >/dev/null || { echo "installing cargo-fuzz (about 2 minutes, once)"; $(CARGO) install cargo-fuzz --locked; }
	@work="$$CARGO_TARGET_DIR/fuzz-corpus"; for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(SECONDS) s"; mkdir -p "$$work/$$target"; \
		rustup run nightly cargo fuzz run --target-dir "$$CARGO_TARGET_DIR/fuzz" "$$target" "$$work/$$target" "fuzz/corpus/$$target" -- \
			-max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 || exit 1; \
	done

crash: tools-needed ## kill the process at seeded random points of a plan and of an indexing job (`make crash-full` for the full run)
	TOOLYARD_CRASH_POINTS=$(CRASH_POINTS) TOOLYARD_NOTES_CRASH_POINTS=$(NOTES_CRASH_POINTS) $(CARGO) test --workspace --test scenarios --locked -- --ignored --nocapture crash --skip context_crash

crash-full: build ## the same with the optimised program at 1,000 points of a plan and 50 of an indexing job
	TOOLYARD_PROGRAM="$$CARGO_TARGET_DIR/release/toolyard" $(MAKE) crash CRASH_POINTS=1000 NOTES_CRASH_POINTS=50

context-crash: build ## a hundred sessions of the context store while the (optimised) process is killed and restarted
	TOOLYARD_PROGRAM="$$CARGO_TARGET_DIR/release/toolyard" $(CARGO) test --workspace --test scenarios --locked -- --ignored --nocapture context_crash

clients: tools-needed ## drive a running Toolyard with OpenClaw's own client (200 MB from npm, once)
	$(DEBUG)
	tests/external.sh clients "$$CARGO_TARGET_DIR/debug/toolyard"

conformance: tools-needed ## the official MCP conformance suite, both directions, and MCP Inspector (330 MB from npm, once)
	$(DEBUG)
	tests/external.sh conformance "$$CARGO_TARGET_DIR/debug/toolyard"

plugins-npm: tools-needed ## run somebody else's OpenClaw plugin from npm (installed for the test)
	$(DEBUG)
	tests/external.sh plugins "$$CARGO_TARGET_DIR/debug/toolyard"

openviking-plugin: tools-needed ## point the unmodified OpenViking plugin at a running Toolyard (220 MB from npm and PyPI, once)
	$(DEBUG)
	tests/external.sh openviking "$$CARGO_TARGET_DIR/debug/toolyard"

claude-code: tools-needed ## a real Claude Code over MCP and over the bridge, on loopback (540 MB from npm, once)
	$(DEBUG)
	tests/external.sh claude-code "$$CARGO_TARGET_DIR/debug/toolyard"

openclaw-cli: build ## call a running Toolyard with OpenClaw's command line (downloads 647 MB, once)
	tests/clients/openclaw-cli.sh "$$CARGO_TARGET_DIR/release/toolyard"

autobahn: tools-needed ## test our WebSockets with Autobahn's RFC 6455 suite (needs Python 2.7; CASES=1.*,5.* for some)
	$(CARGO) build -q -p toolyard-gateway --example ws_echo --locked
	tests/autobahn/run.sh "$$CARGO_TARGET_DIR/debug/examples/ws_echo" "$(CASES)"

object-store: tools-needed ## the notes' index on an S3-compatible server (installs PyPI's moto into a folder of its own, once)
	$(DEBUG)
	tests/external.sh object-store

lancedb: tools-needed ## open the notes' index with LanceDB itself, both ways (120 MB from PyPI, once)
	$(DEBUG)
	tests/external.sh lancedb "$$CARGO_TARGET_DIR/debug/toolyard"

schema: tools-needed ## write schema/ anew from the types
	TOOLYARD_BLESS=1 $(CARGO) test -p toolyard-protocol --test schema_drift

docs: tools-needed ## write the generated pages anew
	$(DEBUG)
	"$$CARGO_TARGET_DIR/debug/toolyard" config reference > docs/configuration.md

docs-check: tools-needed ## generated pages are current, links resolve
	$(DEBUG)
	"$$CARGO_TARGET_DIR/debug/toolyard" config reference | diff -u docs/configuration.md - || { echo "docs/configuration.md is out of date: run make docs"; exit 1; }
	python3 scripts/check_links.py
	python3 scripts/check_test_names.py

bench: build ## measure; one JSON line each
	$(RELEASE) -p toolyard-bench
	"$$CARGO_TARGET_DIR/release/toolyard-bench" all --binary "$$CARGO_TARGET_DIR/release/toolyard"

dist: tools-needed ## build the program with everything the optimiser can do (slow)
	$(CARGO) build --profile dist --locked -p toolyard -p toolyard-sandbox
	@ls -l "$$CARGO_TARGET_DIR/dist/toolyard"

clean-home: ## remove the sample home made by `make up`
	rm -rf $(HOME_DIR)
