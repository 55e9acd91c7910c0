# Everything a developer or CI needs. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# The target directory lies outside the checkout, so that a fresh clone builds on what is there already.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/toolyard/target
CARGO ?= cargo
HOME_DIR ?= .toolyard
PORT ?= 18789
CRASH_POINTS ?= 40
CALL_CRASH_POINTS ?= 20
NOTES_CRASH_POINTS ?= 6
INDEX_CRASH_POINTS ?= 6
CONTEXT_ROUNDS ?= 3
# How many attacks on the record `make attack` tries, and where their seeds begin.
ATTACKS ?= 1000
ATTACK_SEED ?= 1
CASES ?= *
RECORDED ?= ../shared/recorded
# How long `make fuzz` runs each target.
SECONDS ?= 60
FUZZ_TARGETS ?= $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))

# Cargo chooses the features of shared dependencies by what is built together: another set of packages, or a build with
# and one without tests, means building dependencies again. So each profile has two sets, everything but the index program
# and the index program alone, and everything uses one of them.
FAST := --workspace --exclude toolyard-lance
INDEX := -p toolyard-lance
RELEASE := $(CARGO) build --release --locked -p toolyard -p toolyard-parse -p toolyard-sandbox -p toolyard-mcp --bin toolyard --bin toolyard-parse --bin toolyard-script --bin mcp-fixture
RELEASE_INDEX := CARGO_PROFILE_RELEASE_OPT_LEVEL=3 CARGO_PROFILE_RELEASE_LTO=thin $(CARGO) build --release --locked $(INDEX) --bin toolyard-index
DEBUG := $(CARGO) build -q $(FAST) --all-targets --locked
DEBUG_INDEX := $(CARGO) build -q $(INDEX) --all-targets --locked
INDEX_PROGRAM = $(CARGO_TARGET_DIR)/debug/toolyard-index
# Runs several test programs at a time; `cargo test` runs one after another, and most tests wait.
RUN_TESTS := CARGO="$(CARGO)" python3 scripts/run_tests.py
# Clippy as cargo runs it, but with a build instead of a check: a check would go through LanceDB a second time.
CLIPPY_INDEX := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ $(DEBUG_INDEX)

.PHONY: package package-test soak faults disk-full attack receipts casefold walls-java hooks recordings test-tools fuzz advisories sbom context-crash crash-full help up build quick test test-external clippy-index unit-index index-crash index-tools fmt clippy deny unit docs docs-check schema bench crash clients conformance plugins-npm openviking-plugin claude-code codex gemini openclaw-cli autobahn object-store postgres lancedb dist clean-home tools-needed console console-check console-dev console-flows console-bench console-images

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

tools-needed: ## check that what cannot be installed by us is there
	@command -v $(CARGO) >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer with rustup"; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler is missing (SQLite and zstd are built from source): install gcc"; exit 1; }
	@command -v python3 >/dev/null || { echo "python3 is missing: it checks the links in the documentation"; exit 1; }

index-tools: tools-needed
	@command -v protoc >/dev/null || { echo "installing protoc (LanceDB generates its formats with it)"; { apt-get install -y -q protobuf-compiler || { apt-get update -q && apt-get install -y -q protobuf-compiler; }; } >/dev/null 2>&1 || { echo "protoc is missing: install protobuf-compiler"; exit 1; }; }

test-tools: # what the tests run beside the program: plugins in Python and JavaScript, packages of Git and npm, programs within walls
	@for tool in git node npm perl python3 tar; do command -v $$tool >/dev/null || { echo "$$tool is missing: the tests run it"; exit 1; }; done

recordings: ## write tests/recordings/ anew from recordings of real systems (RECORDED=FOLDER)
	python3 scripts/recordings/make.py $(RECORDED)

build: index-tools ## build the programs as they are released, side by side: toolyard, toolyard-index and toolyard-parse
	$(RELEASE)
	$(RELEASE_INDEX)

up: tools-needed ## set up and run Toolyard on embedded defaults with a sample vault; the index program is built meanwhile
	$(CARGO) build --profile quick --locked --bin toolyard --bin toolyard-script
	@mkdir -p $(HOME_DIR)
	@test -d $(HOME_DIR)/vault || cp -r examples/vault $(HOME_DIR)/vault
	scripts/up.sh "$$CARGO_TARGET_DIR/quick" $(HOME_DIR) $(PORT)

quick: fmt test-tools ## the daily loop: format, clippy and the tests of everything but the index program; tests that passed run again when something changes that they read
	$(CARGO) clippy $(FAST) --all-targets --locked -- -D warnings
	$(RUN_TESTS) --cached $(FAST) --locked
	python3 scripts/check_doc_tests.py
	$(CARGO) test -q $(FAST) --doc --locked

test: fmt clippy deny unit tutorial docs-check crash ## every check that needs nothing but this checkout and crates from cargo's registry

test-external: postgres clients conformance plugins-npm openviking-plugin claude-code codex gemini lancedb object-store cluster-test receipts console-check console-flows soak-short ## checks with other people's clients and suites, from npm and PyPI; a failed download fails unless ALLOW_SKIP=1

fmt: tools-needed
	$(CARGO) fmt --all --check

clippy: clippy-index
	$(CARGO) clippy $(FAST) --all-targets --locked -- -D warnings

clippy-index: index-tools
	$(CLIPPY_INDEX)

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

unit: test-tools unit-index ## unit, property, contract and scenario tests
	python3 scripts/test_run_tests.py
	python3 scripts/package/test_package.py
	$(RUN_TESTS) $(FAST) --locked
	python3 scripts/check_doc_tests.py
	$(CARGO) test -q $(FAST) --doc --locked
	TOOLYARD_INDEX_PROGRAM="$(INDEX_PROGRAM)" $(CARGO) test $(FAST) --locked --test scenarios -- notes --include-ignored --skip crash --skip object_store

.PHONY: tutorial terminal-session
tutorial: test-tools ## carry out every command of docs/tutorial.md and of the README's uses, and compare what they print
	$(DEBUG)
	python3 tests/tutorial/test_run.py
	python3 tests/tutorial/run.py "$$CARGO_TARGET_DIR/debug/toolyard" docs/tutorial.md
	python3 tests/tutorial/run.py "$$CARGO_TARGET_DIR/debug/toolyard" README.md "Three uses"

terminal-session: test-tools ## record the terminal session in the README anew
	$(DEBUG)
	python3 scripts/terminal/record.py "$$CARGO_TARGET_DIR/debug/toolyard" docs/images/terminal-session.svg

MINUTES ?= 10
RATE ?= 500
soak: tools-needed ## drive a real Toolyard with a mixed load for MINUTES (default 10) at RATE calls a second; memory, descriptors and disk must stay
	$(CARGO) build --profile quick --locked --bin toolyard --bin toolyard-script
	python3 tests/soak/run.py "$$CARGO_TARGET_DIR/quick/toolyard" --minutes $(MINUTES) --rate $(RATE)

soak-short: ## two minutes of the same with the debug program and 100 calls a second, for CI
	$(DEBUG)
	python3 tests/soak/run.py "$$CARGO_TARGET_DIR/debug/toolyard" --minutes 2 --rate 100

EVERY ?= 1
faults: tools-needed ## make every write, sync, rename and allocation fail once (ENOSPC, EIO) and check the promises (needs strace; EVERY=10 for a tenth)
	$(DEBUG)
	TOOLYARD_FAULTS=all $(CARGO) test $(FAST) --locked --test contract --test it -- faults
	python3 tests/faults/run.py "$$CARGO_TARGET_DIR/debug/toolyard" --every $(EVERY)

disk-full: tools-needed ## fill the disk under a running Toolyard and free it again (mounts a tmpfs: needs root)
	$(CARGO) test $(FAST) --test scenarios --locked -- --ignored --exact upkeep::a_full_disk_is_refused_and_served_again_when_there_is_room

fuzz: tools-needed ## run every fuzz target for SECONDS (default 60) with libFuzzer; needs the nightly toolchain (`make test` runs the seeds without it)
	@rustup run nightly cargo --version >/dev/null 2>&1 || { echo "make fuzz needs the nightly toolchain: rustup toolchain install nightly --profile minimal"; exit 1; }
	@command -v cargo-fuzz >/dev/null || { echo "installing cargo-fuzz (about 2 minutes, once)"; $(CARGO) install cargo-fuzz --locked; }
	@work="$$CARGO_TARGET_DIR/fuzz-corpus"; for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(SECONDS) s"; mkdir -p "$$work/$$target"; \
		rustup run nightly cargo fuzz run --target-dir "$$CARGO_TARGET_DIR/fuzz" "$$target" "$$work/$$target" "fuzz/corpus/$$target" -- \
			-max_total_time=$(SECONDS) -rss_limit_mb=2048 -timeout=10 -print_final_stats=1 || exit 1; \
	done

unit-index: index-tools ## the tests of the index program, which LanceDB is built for once
	$(CARGO) test $(INDEX) --locked

walls-java: tools-needed ## run a Java program within walls (needs a Java runtime)
	$(CARGO) test $(FAST) --locked --test it -- --ignored --exact walls::java_runs_within_walls

casefold: tools-needed ## rename by letter case on a case-insensitive file system (needs root and a kernel with casefolded tmpfs)
	$(CARGO) test -p toolyard-vault --test it --locked -- --ignored --exact rename::a_case_only_rename_on_a_case_insensitive_file_system

crash: index-tools ## kill the process at seeded random points of a plan, of calls and their questions, and of an indexing job (`make crash-full` for the full run)
	$(DEBUG_INDEX)
	TOOLYARD_INDEX_PROGRAM="$(INDEX_PROGRAM)" TOOLYARD_CRASH_POINTS=$(CRASH_POINTS) TOOLYARD_CALL_CRASH_POINTS=$(CALL_CRASH_POINTS) TOOLYARD_NOTES_CRASH_POINTS=$(NOTES_CRASH_POINTS) TOOLYARD_INDEX_CRASH_POINTS=$(INDEX_CRASH_POINTS) $(CARGO) test $(FAST) --test scenarios --locked -- --ignored --nocapture crash --skip context_crash

index-crash: INDEX_CRASH_POINTS = 50
index-crash: index-tools ## kill the index program at 50 points of indexing and searching
	$(DEBUG_INDEX)
	TOOLYARD_INDEX_PROGRAM="$(INDEX_PROGRAM)" TOOLYARD_INDEX_CRASH_POINTS=$(INDEX_CRASH_POINTS) $(CARGO) test $(FAST) --test scenarios --locked -- --ignored --nocapture index_crash

crash-full: build ## 10,000 kills of the optimised programs: 5,000 in a plan, 3,500 in calls and questions, 500 each in indexing, the index program and the context store (hours)
	TOOLYARD_PROGRAM="$$CARGO_TARGET_DIR/release/toolyard" $(MAKE) crash CRASH_POINTS=5000 CALL_CRASH_POINTS=3500 NOTES_CRASH_POINTS=500 INDEX_CRASH_POINTS=500 INDEX_PROGRAM="$$CARGO_TARGET_DIR/release/toolyard-index"
	$(MAKE) context-crash CONTEXT_ROUNDS=500

context-crash: build ## a hundred sessions of the context store while the (optimised) process is killed and restarted
	TOOLYARD_PROGRAM="$$CARGO_TARGET_DIR/release/toolyard" TOOLYARD_CONTEXT_ROUNDS=$(CONTEXT_ROUNDS) $(CARGO) test $(FAST) --test scenarios --locked -- --ignored --nocapture context_crash

attack: tools-needed ## try ATTACKS (1,000) seeded attacks on the record without its key; `make test` tries 80
	TOOLYARD_ATTACKS=$(ATTACKS) TOOLYARD_ATTACK_SEED=$(ATTACK_SEED) $(CARGO) test $(FAST) --test contract --locked -- --nocapture attacks

.PHONY: cluster cluster-test cluster-chaos
NODES ?= 3
cluster: tools-needed ## run three nodes, haproxy, PostgreSQL with a synchronous standby and moto on loopback, until Ctrl-C (CHECK=1: make calls, kill a node, end)
	$(CARGO) build --profile quick --locked --bin toolyard --bin toolyard-script
	PYTHONDONTWRITEBYTECODE=1 python3 examples/cluster/cluster.py "$$CARGO_TARGET_DIR/quick/toolyard" --nodes $(NODES) $(if $(CHECK),--check)

KILLS ?= 1000
FAILOVERS ?= 50
STOPS ?= 5
STOP_SECONDS ?= 30
PARTITIONS ?= 20
SPLITS ?= 10
SKEWS ?= 10
FULLS ?= 10
CHAOS_SEED ?= 1
# Begin no fault after so many seconds, and write every fault and every pause to this file.
CHAOS_SECONDS ?= inf
CHAOS_REPORT ?= $(CARGO_TARGET_DIR)/cluster-chaos.json
cluster-chaos: tools-needed ## as root: break such a cluster KILLS (1,000) times and in other ways while it works (hours); count what was lost, repeated and paused
	$(CARGO) build --profile quick --locked --bin toolyard --bin toolyard-script
	PYTHONDONTWRITEBYTECODE=1 python3 examples/cluster/chaos.py "$$CARGO_TARGET_DIR/quick/toolyard" --nodes $(NODES) --kills $(KILLS) --failovers $(FAILOVERS) --stops $(STOPS) --stop-seconds $(STOP_SECONDS) --partitions $(PARTITIONS) --splits $(SPLITS) --skews $(SKEWS) --fulls $(FULLS) --seed $(CHAOS_SEED) --seconds $(CHAOS_SECONDS) --report "$(CHAOS_REPORT)"

.PHONY: cluster-bench
BENCH ?= all
cluster-bench: tools-needed ## as root: measure a cluster on this machine (BENCH=steps|foreach|notify|dbos|events|takeover|clients|all); one JSON line each
	$(CARGO) build --profile quick --locked -p toolyard -p toolyard-sandbox -p toolyard-bench
	bench/cluster.py $(BENCH) --programs "$$CARGO_TARGET_DIR/quick"

cluster-test: tools-needed ## a node killed under calls, and a short chaos (PostgreSQL and haproxy from apt, moto from PyPI)
	$(DEBUG)
	tests/external.sh cluster "$$CARGO_TARGET_DIR/debug/toolyard"

receipts: tools-needed ## check a receipt with scitt-cose from PyPI (10 MB, once)
	$(DEBUG)
	tests/external.sh receipts "$$CARGO_TARGET_DIR/debug/toolyard"

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

claude-code: tools-needed ## a real Claude Code over MCP, over the bridge and with hooks, on loopback (540 MB from npm, once)
	$(DEBUG)
	tests/external.sh claude-code "$$CARGO_TARGET_DIR/debug/toolyard"

codex: tools-needed ## a real Codex with hooks and over MCP, on loopback (600 MB from npm, once)
	$(DEBUG)
	tests/external.sh codex "$$CARGO_TARGET_DIR/debug/toolyard"

gemini: tools-needed ## a real Gemini CLI with hooks and over MCP, on loopback (290 MB from npm, once)
	$(DEBUG)
	tests/external.sh gemini "$$CARGO_TARGET_DIR/debug/toolyard"

openclaw-cli: build ## call a running Toolyard with OpenClaw's command line (downloads 647 MB, once)
	tests/clients/openclaw-cli.sh "$$CARGO_TARGET_DIR/release/toolyard"

autobahn: tools-needed ## test our WebSockets with Autobahn's RFC 6455 suite (needs Python 2.7; CASES=1.*,5.* for some)
	$(CARGO) build -q -p toolyard-gateway --example ws_echo --locked
	tests/autobahn/run.sh "$$CARGO_TARGET_DIR/debug/examples/ws_echo" "$(CASES)"

postgres: tools-needed ## the store's suite on PostgreSQL, directly and behind PgBouncer, two nodes of which one is killed or stopped, their configuration, workspaces on both, and what operators do (Debian packages postgresql and pgbouncer)
	tests/cluster/packages.sh
	$(CARGO) test $(FAST) --locked --test contract -- --ignored --test-threads=2 postgres:: pooled::
	$(DEBUG)
	python3 tests/cluster/takeover.py "$$CARGO_TARGET_DIR/debug/toolyard"
	python3 tests/cluster/settings.py "$$CARGO_TARGET_DIR/debug/toolyard"
	python3 tests/cluster/workspaces.py "$$CARGO_TARGET_DIR/debug/toolyard"
	python3 tests/cluster/operations.py "$$CARGO_TARGET_DIR/debug/toolyard"
	python3 tests/cluster/failures.py "$$CARGO_TARGET_DIR/debug/toolyard"

object-store: index-tools ## the notes' index on an S3-compatible server (installs PyPI's moto into a folder of its own, once)
	$(DEBUG)
	$(DEBUG_INDEX)
	TOOLYARD_INDEX_PROGRAM="$(INDEX_PROGRAM)" tests/external.sh object-store

lancedb: index-tools ## open the notes' index with LanceDB itself, both ways (120 MB from PyPI, once)
	$(DEBUG)
	$(DEBUG_INDEX)
	tests/external.sh lancedb "$$CARGO_TARGET_DIR/debug/toolyard"

console/node_modules: console/package-lock.json
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js 20 or newer (only changing the console needs it)"; exit 1; }
	@# Not npm ci: it wants the builder's packages for every platform in the lock, and mirrors may carry only their own.
	cd console && npm install --no-save --no-audit --no-fund --loglevel=error
	@touch console/node_modules

console: console/node_modules ## build console/dist from the console's sources; fails when a size limit is exceeded
	cd console && npm run -s check && npm run -s build

console-check: console/node_modules ## check the console: types, unit tests, and that console/dist is what its sources give
	cd console && npm run -s check && npm -s test && scripts/same.sh

console-dev: console/node_modules ## serve the console with hot reload against a running Toolyard (TOOLYARD_URL, default http://127.0.0.1:18789)
	cd console && npm run -s dev

console-flows: tools-needed ## drive the console with Chromium from Debian's packages (119 MB, and 11 MB from npm, once)
	$(DEBUG)
	tests/external.sh console "$$CARGO_TARGET_DIR/debug/toolyard"

console-bench: tools-needed console/node_modules ## measure the console's bars; one JSON line each
	$(DEBUG)
	@cd console && npm run -s build >&2 && node scripts/sizes.mjs --json
	@tests/console/run.sh "$$CARGO_TARGET_DIR/debug/toolyard" bench

console-images: tools-needed ## take the pictures in docs/images anew
	$(DEBUG)
	tests/console/run.sh "$$CARGO_TARGET_DIR/debug/toolyard" shots

hooks: ## install the pre-commit hook: formatting, and clippy for the crates that a commit changes
	git config core.hooksPath scripts/hooks

schema: tools-needed ## write schema/ anew from the types
	TOOLYARD_BLESS=1 $(CARGO) test -p toolyard-protocol --test schema_drift

docs: tools-needed ## write the generated pages
	$(DEBUG)
	"$$CARGO_TARGET_DIR/debug/toolyard" config reference > docs/reference/configuration.md
	"$$CARGO_TARGET_DIR/debug/toolyard" config schema > schema/config.schema.json
	"$$CARGO_TARGET_DIR/debug/toolyard" config authority > docs/reference/authority.md
	@mkdir -p docs/reference console/src/types
	"$$CARGO_TARGET_DIR/debug/toolyard" config commands > docs/reference/cli.md
	"$$CARGO_TARGET_DIR/debug/toolyard" config methods > docs/reference/methods.md
	"$$CARGO_TARGET_DIR/debug/toolyard" config error-codes > docs/reference/errors/README.md
	"$$CARGO_TARGET_DIR/debug/toolyard" config method-schemas > schema/methods.schema.json
	"$$CARGO_TARGET_DIR/debug/toolyard" config method-types > console/src/types/methods.ts
	python3 scripts/specification.py

docs-check: tools-needed ## generated pages are current, links resolve, commands in the pages parse, no roadmap words outside the roadmap, files and functions keep their sizes, JSON has types
	$(DEBUG)
	"$$CARGO_TARGET_DIR/debug/toolyard" config reference | diff -u docs/reference/configuration.md - || { echo "docs/reference/configuration.md is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config schema | diff -u schema/config.schema.json - || { echo "schema/config.schema.json is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config authority | diff -u docs/reference/authority.md - || { echo "docs/reference/authority.md is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config commands | diff -u docs/reference/cli.md - || { echo "docs/reference/cli.md is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config methods | diff -u docs/reference/methods.md - || { echo "docs/reference/methods.md is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config error-codes | diff -u docs/reference/errors/README.md - || { echo "docs/reference/errors/README.md is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config method-schemas | diff -u schema/methods.schema.json - || { echo "schema/methods.schema.json is out of date: run make docs"; exit 1; }
	"$$CARGO_TARGET_DIR/debug/toolyard" config method-types | diff -u console/src/types/methods.ts - || { echo "console/src/types/methods.ts is out of date: run make docs"; exit 1; }
	python3 scripts/specification.py --check
	python3 scripts/check_links.py
	python3 scripts/check_test_names.py
	python3 scripts/check_sizes.py
	python3 scripts/test_check_doc_tests.py
	python3 scripts/count_maps.py
	python3 scripts/test_check_docs.py
	python3 scripts/check_docs.py "$$CARGO_TARGET_DIR/debug/toolyard"
	python3 scripts/terminal/record.py "$$CARGO_TARGET_DIR/debug/toolyard" docs/images/terminal-session.svg --check

bench: build ## measure; one JSON line each
	$(RELEASE) -p toolyard-bench --bin toolyard-bench
	"$$CARGO_TARGET_DIR/release/toolyard-bench" all --binary "$$CARGO_TARGET_DIR/release/toolyard"
	python3 bench/backup.py "$$CARGO_TARGET_DIR/release/toolyard"

dist: build ## the same as `make build`, with the sizes of the programs
	@ls -l "$$CARGO_TARGET_DIR/release/toolyard" "$$CARGO_TARGET_DIR/release/toolyard-index"

TARGET ?= x86_64-unknown-linux-gnu
PACKAGES ?= dist/packages
package: build sbom ## make every package of the release build (tarball, .deb, npm, wheel, OCI image) in PACKAGES
	python3 scripts/package/make.py "$$CARGO_TARGET_DIR/release" $(PACKAGES) --target $(TARGET) --sbom "$$CARGO_TARGET_DIR/toolyard.cdx.json"

package-test: ## install each package in a clean root without Rust or compiler, and make a first call (needs root; debootstrap once)
	python3 tests/package/run.py $(PACKAGES)

clean-home: ## remove the sample home made by `make up`
	rm -rf $(HOME_DIR)
