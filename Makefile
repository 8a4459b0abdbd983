.DEFAULT_GOAL := help
.PHONY: help demo test check docs bench bench-peers fault spark-full fmt lock clean

PY := .venv/bin/python
# An activated .venv would hide the system's Redis behind the old one that a package brings.
export PATH := $(subst $(CURDIR)/.venv/bin:,,$(PATH))
# Narrow a run with: make test ARGS="tests/unit -k uuid"
ARGS ?=
PARALLEL ?= -n 3 --dist loadgroup

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## A small shop at work: failures, retries, replays, and Spark, which archives it; ends when all adds up
	@scripts/bootstrap core
	@.venv/bin/penstock demo --prepare "scripts/bootstrap spark" $(ARGS)

test: ## Run every test, on the embedded Valkey and on the system's Redis
	@scripts/bootstrap dev
	@$(PY) -m pytest $(PARALLEL) $(ARGS)

check: ## Lint, format, types, import direction, sizes, no hosts
	@scripts/bootstrap dev
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy
	@.venv/bin/lint-imports
	@$(PY) scripts/check_sizes.py
	@$(PY) scripts/check_hosts.py

docs: ## Write what of the documentation is made from the code and from benchmarks/results
	@scripts/bootstrap dev
	@$(PY) -m scripts.reference

bench: ## Measure against a raw client and other libraries in the same run; prints ratios (ARGS="consume --scale 0.1")
	@scripts/bootstrap dev
	@$(PY) -m benchmarks $(ARGS)

bench-peers: ## Install the other libraries to measure beside, outside the repository (needs a package index)
	@scripts/bootstrap dev
	@$(PY) -m benchmarks.peers

fault: ## Every fault in full size on both servers; writes benchmarks/results/fault.md
	@scripts/bootstrap dev
	@$(PY) -m tests.fault $(ARGS)

spark-full: ## Every Spark test in full size, the long ones too; writes benchmarks/results/spark-full.md
	@scripts/bootstrap dev
	@$(PY) -m tests.spark $(ARGS)

fmt: ## Format the code and apply safe fixes
	@scripts/bootstrap dev
	@.venv/bin/ruff check --fix --exit-zero --quiet
	@.venv/bin/ruff format

.PHONY: picture
picture: ## Make docs/images/demo.svg anew, from a real run of the demo
	@scripts/bootstrap dev
	@$(PY) scripts/picture.py

lock: ## Pin the newest allowed versions of every dependency (needs uv)
	@scripts/lock

clean: ## Remove the environment and every cache
	@rm -rf .venv .venv.lock .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
