# What this repository can do; `make` lists it.
#   DEMO_DIR   where `make demo` generates its project, FRAMEWORK in which (pytorch or tensorflow)
#   ARGS       passed on to pytest:   make test-render ARGS="-k hostile"
DEMO_DIR ?= demo-project
FRAMEWORK ?= pytorch
# What the constraints hold the frameworks at; the whole set is tested together.
TORCH ?= torch==2.13.0
TENSORFLOW ?= 2.21.0
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mlstack
SYSTEM_UV := $(shell command -v uv 2>/dev/null)
# The tools' environment: shared by all checkouts, made anew when its requirements change.
ENV := $(CACHE)/envs/tools-$(shell { sed -n '/^dev = /,/^]/p' pyproject.toml; python3 --version; } | git hash-object --stdin | cut -c1-12)
PYTHON := $(ENV)/bin/python
UV := $(or $(SYSTEM_UV),$(ENV)/bin/uv)

# PyTorch's CPU build: from a folder of wheels where pip is configured with one, else from PyTorch's own index.
export UV_FIND_LINKS ?= $(or $(PIP_FIND_LINKS),$(shell pip config get global.find-links 2>/dev/null))
export TORCH_BACKEND ?= $(if $(UV_FIND_LINKS),,cpu)
export TF_BUILD ?= cpu

# A test's processes have one thread each, so a worker a core; the tests of a file share projects and engines.
WORKERS ?= --numprocesses auto --dist loadfile

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s%s\n", $$1, $$2 }' Makefile

demo: $(ENV)/.ready ## Generate a project, set it up, train, evaluate, export, predict (in DEMO_DIR=demo-project)
	@test ! -e $(DEMO_DIR) || { echo "error: $(DEMO_DIR) exists; remove it or choose another: make demo DEMO_DIR=..." >&2; exit 2; }
	$(ENV)/bin/copier copy --quiet --defaults --vcs-ref HEAD --data project_name="Demo project" --data framework=$(FRAMEWORK) . $(DEMO_DIR)
	$(MAKE) --no-print-directory -C $(DEMO_DIR) setup train evaluate export
	$(DEMO_DIR)/.venv/bin/python tests/write_digits.py $(DEMO_DIR)/pictures
	$(MAKE) --no-print-directory -C $(DEMO_DIR) predict ARGS=pictures
	@echo
	@echo "$(DEMO_DIR) is a complete project. Its README.md is the way in, docs/guide.md the map; 'make' in it lists the commands."
	@echo "Your own project:  $(ENV)/bin/copier copy $(CURDIR) ../my-project"

setup: $(ENV)/.ready ## Make the tools' environment, and a link to it, .venv, where editors look
	ln -sfn $(ENV) .venv

test: $(ENV)/.ready ## Everything that pip alone can set up: the three tiers below
	$(PYTHON) -m pytest tests/render tests/smoke tests/update $(WORKERS) $(ARGS)

test-render: $(ENV)/.ready ## What is generated, for every preset and pair of choices
	$(PYTHON) -m pytest tests/render $(WORKERS) $(ARGS)

test-smoke: $(ENV)/.ready ## Set up, train, kill, resume, evaluate, export and predict in each preset's project
	$(PYTHON) -m pytest tests/smoke $(WORKERS) $(ARGS)

test-update: $(ENV)/.ready ## Update projects that their owners have edited, from every release to what follows
	$(PYTHON) -m pytest tests/update $(WORKERS) $(ARGS)

engines: $(ENV)/.ready ## Install what test-engines needs: a browser, Node, a compiler, Slurm, PostgreSQL by apt where missing, tools by npm
	$(UV) pip install --quiet --python $(ENV) --group engines
	$(PYTHON) tests/programs.py

test-engines: $(ENV)/.ready ## A project in a real browser, YAML language server, dev container tool, Horovod, Slurm, Ray, MLflow's server
	$(PYTHON) -m pytest tests/engines $(WORKERS) $(ARGS)

screenshot: engines ## Take docs/images/demo.png anew
	PYTHONPATH=tests:tests/smoke $(PYTHON) tests/engines/screenshot.py

test-all: $(ENV)/.ready ## The exhaustive form: every kill point
	MLSTACK_EXHAUSTIVE=1 $(PYTHON) -m pytest tests $(WORKERS) $(ARGS)

bench: $(ENV)/.ready ## Measure against bare loops and Copier's own floor (docs/benchmarks.md)
	PYTHONPATH=tests:tests/smoke:tests/update $(PYTHON) benchmarks/run.py $(ARGS)

options: $(ENV)/.ready ## Write docs/options.md anew, from copier.yml and the presets
	$(PYTHON) docs/options.py > docs/options.md

release: $(ENV)/.ready ## Check, test, commit and tag a release: make release VERSION=0.1.0
	$(PYTHON) release.py "$(VERSION)"

lint: $(ENV)/.ready ## Check style and types of this repository
	PATH=$(ENV)/bin:$$PATH pre-commit run --all-files --show-diff-on-failure

# Universal: every Python and system. Without the packages of CUDA, which each build of torch pins itself.
constraints: $(ENV)/.ready ## Bring template/constraints.txt to the newest versions
	rm -rf $(CACHE)/constraints
	for framework in pytorch tensorflow; do \
		$(ENV)/bin/copier copy --quiet --defaults --vcs-ref HEAD --data preset=large-org --data python_version=3.11 --data framework=$$framework \
			--data 'trackers=[tensorboard, mlflow, wandb, comet]' --data 'search=[optuna, hyperopt, ray, wandb]' \
			. $(CACHE)/constraints/$$framework || exit 1; done
	printf '%s\n' "$(TORCH)" $(if $(TENSORFLOW),tensorflow==$(TENSORFLOW) tensorflow-cpu==$(TENSORFLOW)) | UV_FIND_LINKS= $(UV) pip compile \
		--quiet --universal --all-extras --no-header --no-annotate --constraints - \
		--upgrade $(CACHE)/constraints/*/pyproject.toml > $(CACHE)/constraints/new.txt
	{ echo "# The versions that were tested together. Your own go into constraints.local.txt (docs/guide.md)."; \
		grep -Ev '^(nvidia|cuda|triton)' $(CACHE)/constraints/new.txt; } > template/constraints.txt

$(ENV)/.ready:
ifeq ($(SYSTEM_UV),)
	python3 -m venv $(ENV)
	$(PYTHON) -m pip install --quiet uv
else
	$(UV) venv --quiet --allow-existing --python '>=3.11' $(ENV)
endif
	$(UV) pip install --quiet --python $(ENV) --group dev
	touch $@

.PHONY: help demo setup test test-render test-smoke test-update engines test-engines screenshot test-all bench options release lint constraints
