# `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help

CARGO ?= cargo
GO ?= go

.PHONY: help setup demo test test-interop examples fmt lint docs golden ci clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install redis-server, tmux, Chromium and axe-core where they are missing
	@./scripts/setup

demo: ## See it work: a private Redis, tasks of every kind, what became of each
	@./scripts/setup redis
	$(CARGO) run --quiet --profile demo -p queue-cli --no-default-features -- demo

# The largest part of the tests runs beside all others, since both wait much of the time; what a part says is shown when it ends.
test: setup built ## Run all tests, those against real Go asynq too; takes some 15 minutes
	@echo "testing: the first words come after a minute or two"
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-it test-others test-interop test-docs examples

# rustc would look for the job slots of make, and warn that there are none for it.
unexport MAKEFLAGS MFLAGS

# All that is tested is built once: cargo builds a crate again for each choice of packages and features, and a
# choice without tests or examples leaves out the features that tests ask for.
WHOLE = --workspace --all-features
PROGRAMS = $${CARGO_TARGET_DIR:-target}/debug

.PHONY: built programs
built:
	$(CARGO) test $(WHOLE) --no-run
	$(CARGO) build $(WHOLE) --bins --examples

programs:
	$(CARGO) build $(WHOLE) --bins --examples

# Most tests wait most of the time: for a lease, a clock, a server that comes back.
export RUST_TEST_THREADS ?= $(shell expr 4 \* `getconf _NPROCESSORS_ONLN`)

.PHONY: test-it test-others test-docs
test-it:
	$(CARGO) test $(WHOLE) --test it

test-others:
	$(CARGO) test $(WHOLE) --lib --bins --test '[!i]*'

test-docs:
	$(CARGO) test $(WHOLE) --doc

# Eight at a time, since the examples wait most of the time, too.
examples: programs
	@printf '%s\n' quickstart go_fleet middleware follow_up metrics opentelemetry cron digest rate_limit testing inspector encryption many batch chain workflow approval wait progress limits order steer forecast events priority targets broadcast publish budgets | \
		xargs -P 8 -I NAME sh -c 'echo "example NAME"; timeout 60 $(PROGRAMS)/examples/NAME > /dev/null'

# Outside CI a missing Go skips these tests, loudly; in CI it fails them.
test-interop: programs
	@if ! command -v $(GO) > /dev/null; then \
		echo "!!! Go is not installed: the tests against real asynq are SKIPPED" >&2; \
		test -z "$$CI"; \
	else \
		(cd examples/go_members && $(GO) vet ./... && $(GO) build -o ../../target/go_members .) && \
		GO_MEMBERS=target/go_members timeout 60 $(PROGRAMS)/examples/go_members > /dev/null && \
		cd tests/interop && $(GO) vet ./... && $(GO) test -count=1 ./...; \
	fi

# Needs Go only for the workers of Go asynq; without it, those are left out.
.PHONY: chaos chaos-quick
CHAOS_SEED ?= 1
CHAOS_GO = $$(if command -v $(GO) > /dev/null; then echo --go target/gochaos; fi)

chaos: setup ## Break the queue a thousand times while a million tasks are worked; about half an hour, report in tests/chaos/
	$(CARGO) build --release -p queue-chaos
	@if command -v $(GO) > /dev/null; then cd tests/chaos/go && $(GO) build -o ../../../target/gochaos .; fi
	target/release/queue-chaos run --tasks 1020000 --batches 3000 --broadcasts 120 --namespaces if-possible --report tests/chaos/report.md $(CHAOS_GO)

chaos-quick: setup programs ## The same in two minutes: each kind of fault, ours only
	$(PROGRAMS)/queue-chaos run --seed $(CHAOS_SEED) --faults 50 --tasks 10000 --rate 200 --batches 120 --broadcasts 60 --max-crashes 1

.PHONY: test-versions test-upgrade
test-versions: ## The tests on the oldest Redis and the newest Valkey that pip has; SERVERS="…" adds programs
	./scripts/redis-versions $(SERVERS)

test-upgrade: ## Workers of the previous commit, or of REVISION=…, and of this one share a Redis
	@./scripts/setup redis
	REVISION=$(REVISION) SEED=$(SEED) tests/upgrade/run.py

.PHONY: test-alerts
test-alerts: ## Test the alert rules of deploy/prometheus; installs Debian's prometheus for its promtool
	@./scripts/setup promtool
	promtool test rules deploy/prometheus/alerts_test.yml

fmt: ## Format everything
	$(CARGO) fmt --all
	@if command -v $(GO) > /dev/null; then gofmt -w tests/interop bench/go tests/chaos/go; fi

lint: ## What CI checks before it tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy -p queue-cli --no-default-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --all-features

.PHONY: bench bench-quick bench-against soak bench-programs
bench: bench-programs ## Measure beside Go asynq, all figures; takes about half an hour, results in bench/results
	target/release/queue-bench compare --queuectl target/release/queuectl --go target/gobench --out bench/results
	docs/figures.py

bench-quick: bench-programs ## The same in three minutes: fewer tasks, three rounds, no latencies
	target/release/queue-bench compare --queuectl target/release/queuectl --go target/gobench --quick --rounds 3

.PHONY: bench-web
bench-web: bench-programs ## The dashboard beside asynqmon, with a million tasks; half an hour, results in bench/results
	cd tests/interop/oldgo && $(GO) build -o ../../../target/oldgo .
	target/release/queue-bench web --queuectl target/release/queuectl --asynqmon target/oldgo --out bench/results $(OPTIONS)

bench-against: ## A user's program on REVISION=… (the previous commit) and on the working tree, in turn; fails where it is worse
	@./scripts/setup redis
	bench/against "$(or $(REVISION),HEAD~1)" $(OPTIONS)

soak: setup ## Half an hour of steady load: is anything growing? Results in bench/results
	$(CARGO) build --release -p queue-bench
	target/release/queue-bench soak --out bench/results

bench-programs: setup
	$(CARGO) build --release -p queue-cli -p queue-bench
	cd bench/go && $(GO) build -o ../../target/gobench .

# The crates that are published are the members that do not say `publish = false`.
.PHONY: package features semver sbom
UNPUBLISHED = queue-tests queue-examples queue-bench queue-chaos queue-fuzz-targets

package: ## Pack every crate that is published, and compile what was packed
	@scripts/package $(UNPUBLISHED)

features: ## Check every feature of every published crate alone, and that the defaults are light
	@scripts/features

# A tool that is missing is told loudly, and fails only where REQUIRE_TOOLS is set, as in .github/workflows.
missing = { echo "!!! $(1) is not installed: $(2) NOT $(3) (cargo install $(1) --locked)" >&2; test -z "$$REQUIRE_TOOLS"; }

semver: ## Compare the public items with REVISION=… (the previous commit): what breaks needs a new version
	@if ! command -v cargo-semver-checks > /dev/null; then \
		$(call missing,cargo-semver-checks,breaking changes are,CHECKED); \
	else \
		$(CARGO) semver-checks --workspace $(UNPUBLISHED:%=--exclude %) --baseline-rev "$(or $(REVISION),HEAD~1)"; \
	fi

sbom: ## Write what queuectl is made of to target/queuectl.spdx.json
	@if ! command -v cargo-sbom > /dev/null; then \
		$(call missing,cargo-sbom,the bill of materials is,WRITTEN); \
	else \
		mkdir -p target && $(CARGO) sbom --cargo-package queue-cli --output-format spdx_json_2_3 > target/queuectl.spdx.json && \
		echo "target/queuectl.spdx.json"; \
	fi

.PHONY: book
book: ## Build the guide into target/book
	@if ! command -v mdbook > /dev/null; then \
		$(call missing,mdbook,the book is,BUILT); \
	else \
		mdbook build docs; \
	fi

.PHONY: pictures
pictures: programs ## Record the pictures of the dashboard in docs/ anew, and fail if a page looks otherwise; needs pngquant
	docs/record_web.sh

.PHONY: deny fuzz
# The advisory database is a git repository of its own: where it cannot be had, that check alone is left out, loudly.
deny: ## Check licences, sources and known vulnerabilities of all dependencies
	@if ! command -v cargo-deny > /dev/null; then \
		$(call missing,cargo-deny,licences and advisories are,CHECKED); \
	else \
		$(CARGO) deny check licenses bans sources && \
		if $(CARGO) deny fetch db 2> /dev/null; then \
			$(CARGO) deny check advisories; \
		else \
			echo "!!! the advisory database cannot be reached: known vulnerabilities are NOT CHECKED" >&2; \
		fi; \
	fi

FUZZ_SECONDS ?= 60
fuzz: ## Fuzz each target for FUZZ_SECONDS (60); needs cargo-fuzz and a nightly compiler
	@for target in wire steps options address texts lines replies; do \
		mkdir -p target/fuzz/$$target && \
		$(CARGO) +nightly fuzz run --fuzz-dir tests/fuzz $$target target/fuzz/$$target tests/fuzz/corpus/$$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1 || exit 1; \
	done

golden: setup ## Have Go write the golden vectors anew
	cd tests/interop && $(GO) run ./goldengen ../golden

ci: ## All that CI runs
	.ci/run

clean: ## Delete what was built
	$(CARGO) clean
