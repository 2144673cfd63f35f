# `make` alone lists the targets. Everything runs in .venv; nothing needs to be activated.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.dejamq-ready

PACKAGES := proto/dejamq_proto namesrv/dejamq_namesrv broker/dejamq_broker client/dejamq \
	analytics/dejamq_analytics lab/dejamq_lab cli/dejamq_cli
TESTS := tests/unit tests/store tests/integration tests/lab tests/docker tests/analytics tests/interop tests/rocketmq
RUFF_PATHS := hatch_build.py proto namesrv broker client analytics lab cli tests tools $(wildcard examples benchmarks)
STUBS := proto/dejamq_proto/*_pb2* proto/dejamq_proto/v2/*_pb2*
PYTEST_ARGS ?=
TEST_JOBS ?= 3
BENCH_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo prove trial recorded interop test test-fast test-versions cover sanitize check check-deps format-check lint types layers stubs-fresh settings-fresh pictures pictures-fresh site proto duplicates settings format bench bench-page bench-quick dist image image-audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s%s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## create .venv with everything in it (also a Java for Spark where there is none)

$(READY): pyproject.toml constraints.txt tools/install.sh hatch_build.py $(wildcard */*/native/_native*.[ch])
	PYTHON="$(PYTHON)" tools/install.sh $(VENV)
	@touch $@

demo: setup ## run the main job: a cluster, a killed consumer, and the audit that explains the duplicates
	$(BIN)/python -m dejamq_lab.demo

prove: setup ## what takes long: power losses, kills and damage of the store, its memory, groups in motion, a release, a real RocketMQ, kits for Java and Go, ten demos (four hours, 12 GiB)
	$(BIN)/python tests/store/prove_power_loss.py --points 1000
	$(BIN)/python tests/store/prove_fork_kill.py --kills 100
	$(BIN)/python tests/store/prove_store_machine.py
	$(BIN)/python tests/store/prove_store_fuzz.py
	$(BIN)/python tests/store/prove_files.py --seconds 120
	@mkdir -p build && $(BIN)/python tests/store/prove_memory.py --directory build
	$(BIN)/python tests/integration/prove_churn.py
	$(BIN)/python tests/integration/prove_scale.py
	$(BIN)/python tests/integration/prove_topics.py
	$(BIN)/python tests/integration/prove_many.py
	$(BIN)/python tests/integration/prove_week.py
	$(BIN)/python tests/integration/prove_delay_kill.py
	$(BIN)/python tests/integration/prove_transactions.py
	$(BIN)/python tests/unit/prove_remoting_fuzz.py
	$(BIN)/python tests/unit/prove_pop_machine.py
	$(BIN)/python tests/integration/prove_hostile.py
	$(BIN)/python tests/integration/prove_replication.py
	$(BIN)/python tests/integration/prove_replication.py --automatic
	$(BIN)/python tests/integration/prove_chaos.py --minutes 60
	$(BIN)/python tests/integration/prove_collector.py
	$(BIN)/python tests/analytics/prove_cluster.py
	$(BIN)/python tests/analytics/prove_follow.py
	$(BIN)/python tests/analytics/prove_less_evidence.py
	$(BIN)/python tests/analytics/prove_lost_tails.py
	$(BIN)/python tests/analytics/prove_tables.py
	$(MAKE) dist && $(BIN)/python tests/lab/prove_dist.py
	$(BIN)/python tests/lab/prove_scenarios.py --directory build/scenarios
	$(BIN)/python tests/docker/prove_kits.py
	$(BIN)/python tests/docker/prove_demo.py
	$(BIN)/python tests/rocketmq/prove_v2_proxy.py
	$(BIN)/python tests/rocketmq/prove_v2_access.py
	$(BIN)/python tests/rocketmq/prove_tls_clients.py
	$(BIN)/python tests/rocketmq/prove_lab.py --directory build/rocketmq-scenarios
	$(BIN)/python tests/rocketmq/prove_connectors.py
	$(BIN)/python tests/rocketmq/prove_spark.py
	@for run in 1 2 3 4 5 6 7 8 9 10; do \
		echo "run $$run of 10" && $(BIN)/python -m dejamq_lab.demo --out build/prove-$$run || exit 1; \
	done

# What was played and audited is not done again: the same command goes on. SCENARIOS="O1 R2" plays only those.
# TRIAL_ARGS=--again plays again what did not come to its end, --audit-again is for rules that were changed.
SEEDS ?= 20
JOBS ?= 2
MODES ?= forensic audit inbox
CLUSTER ?= process
SCENARIOS ?=
TRIAL_ARGS ?=

trial: setup ## the judge on trial: every scenario with SEEDS seeds, JOBS side by side, and docs/attribution.md made of it
	$(BIN)/python -m dejamq_lab.scenario.trial.command $(SCENARIOS) --seeds $(SEEDS) --jobs $(JOBS) --modes $(MODES) \
		--cluster $(CLUSTER) --directory build/trial --page docs/attribution.md $(TRIAL_ARGS)

recorded: setup ## grade the audit on recorded runs of a real RocketMQ, for docs/attribution.md (minutes)
	$(BIN)/python tools/recorded_table.py

interop: setup ## a real RocketMQ reads what dejamq wrote, and the other way (needs a JDK and Maven; three minutes)
	$(BIN)/python tests/interop/interop.py

# Tests once more without the compiled parts: what a program has where there was no C compiler.
PURE := $(addprefix tests/unit/test_,client_sends.py client_unique_id.py consumer_batches.py consumer_received.py) \
	$(addprefix tests/integration/test_,lite_pull.py push_consumer_delivery.py) \
	$(addprefix tests/integration/test_producer_,broker.py cancel.py features.py rounds.py troubles.py)

# Three at a time, because most of them wait; `tests/conftest.py` says which stay together.
test: check ## everything that is checked: `make check`, then all tests
	$(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadscope $(PYTEST_ARGS)
	DEJAMQ_PURE_PYTHON=1 $(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist loadscope $(PURE)

# The tests of one module each and those of the store on its own, without what takes long.
test-fast: setup ## units and store, in less than a minute
	$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist loadscope -m "not slow" --hypothesis-profile quick $(PYTEST_ARGS) tests/unit tests/store

check-deps: setup ## known vulnerabilities of the versions in constraints.txt (needs the network)
	$(BIN)/python tools/check_deps.py

VERSIONS ?= 3.11 3.12 3.13 3.14

test-versions: ## units and store with every Python of VERSIONS that is installed
	TEST_JOBS=$(TEST_JOBS) PYTEST_ADDOPTS="$(PYTEST_ARGS)" tools/test_versions.sh build/versions $(VERSIONS)

COVER_TESTS ?= tests/unit tests/store tests/integration

cover: setup ## what COVER_TESTS run of the packages: a table, and build/coverage/html
	@mkdir -p build/coverage
	$(BIN)/python -m pytest -q -n $(TEST_JOBS) --dist loadscope --cov --cov-report=term --cov-report=html $(PYTEST_ARGS) $(COVER_TESTS)

# What calls the compiled parts directly, and what is tested without them as well.
NATIVE := $(addprefix tests/unit/test_,client_native.py client_permutation.py framed.py listed.py received_native.py record.py \
	recent_ids.py run.py run_native.py small_runs.py) $(PURE)

sanitize: setup ## the C parts built with the sanitizers of gcc for addresses and undefined behaviour, and tested
	$(BIN)/python tools/sanitize.py build/sanitize $(PYTEST_ARGS) $(NATIVE)

check: format-check lint types layers stubs-fresh settings-fresh pictures-fresh site ## format, lint, types, layers, stubs, settings page, pictures, site

format-check: setup
	$(BIN)/ruff format --check $(RUFF_PATHS)

lint: setup ## ruff
	$(BIN)/ruff check $(RUFF_PATHS)

# The folders of tests one by one: names are unique within each, and mypy wants them unique in a run.
types: setup ## mypy, strict
	$(BIN)/mypy $(PACKAGES) tests/*.py tools/*.py
	@status=0; for folder in $(TESTS) benchmarks examples; do $(BIN)/mypy "$$folder" || status=1; done; exit $$status

layers: setup ## imports point one way
	$(BIN)/python -m pytest -q tests/test_layers.py

# The stubs are made again beside the committed ones; a stale, missing or left-over file is a difference.
stubs-fresh: setup ## the committed gRPC stubs are those of the .proto files
	@made=$$(mktemp -d) && trap 'rm -rf "$$made"' EXIT && mkdir "$$made/committed" \
	&& tools/generate_stubs.sh $(BIN) "$$made" && cp --parents $(STUBS) "$$made/committed" \
	&& diff -rq "$$made/committed/proto/dejamq_proto" "$$made/dejamq_proto" \
	|| { echo 'the stubs are not those of the .proto files: run `make proto` and commit the result' >&2; exit 1; }

proto: setup ## generate the gRPC stubs from the .proto files
	rm -f $(STUBS)
	tools/generate_stubs.sh $(BIN) proto

pictures-fresh: setup ## docs/rooms.svg and docs/processes.svg are of today's source
	$(BIN)/python tools/pictures.py --check

# The variable leaves out an advertisement of the theme's next version.
site: setup ## the documents as a site in build/site; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

settings-fresh: setup ## docs/settings.md is made of today's config classes
	$(BIN)/python tools/settings_page.py --check

duplicates: setup ## write docs/duplicates.md from the causes of the audit and the scenarios of the lab
	$(BIN)/python tools/duplicates_page.py

pictures: setup ## draw docs/rooms.svg and docs/processes.svg
	$(BIN)/python tools/pictures.py

settings: setup ## write docs/settings.md from the config classes
	$(BIN)/python tools/settings_page.py

format: setup ## format the code and repair what ruff can repair
	$(BIN)/ruff check --fix-only --quiet $(RUFF_PATHS)
	$(BIN)/ruff format $(RUFF_PATHS)

# The clients of peers are installed for it; a peer whose server is missing is skipped.
bench: setup ## dejamq beside Redis, NATS, RabbitMQ, Kafka and RocketMQ on this machine (fifteen minutes)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/beside_peers.py $(BENCH_ARGS)

bench-page: setup ## write what `make bench` measured last into docs/performance.md
	$(BIN)/python benchmarks/beside_peers.py --page docs/performance.md

bench-quick: setup ## ratios to a bare gRPC echo and a bare memory copy (half a minute)
	$(BIN)/python benchmarks/quick.py

dist: ## sdist, wheels for VERSIONS of Python, list of parts and checksums in dist/, for a release (docs/releasing.md)
	PYTHON="$(PYTHON)" tools/dist.sh dist $(VERSIONS)

image: setup ## the container image, without an image registry where none answers
	tools/build_image.sh

image-audit: setup ## the image with the audit, Spark and a Java too
	DEJAMQ_IMAGE=$${DEJAMQ_AUDIT_IMAGE:-dejamq:local-audit} EXTRAS=all,java tools/build_image.sh

clean: ## remove what is generated here, the environment too
	rm -rf $(VENV) build dist demo-out .dejamq .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f $(wildcard */*/native/_native*.so)
