# `make demo` and `make test` do everything from nothing: a virtual environment, the pinned packages, and the work.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Two cores: one thread for each of two test workers; torch with more threads than cores is many times slower.
export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast format lint type bench docs docs-serve pictures evaluations results report clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

install: $(READY)  ## make the virtual environment

demo: $(READY)  ## train PCHID on FetchReach to 100 % success
	rm -rf runs/demo
	$(BIN)/pchid train FetchReach-v4 --method pchid --episodes 10 --out runs/demo

test: $(READY)  ## style, types and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-fast: $(READY)  ## the tests that take under a minute together
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not slow"

format: $(READY)  ## rewrite the code in the common style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(READY)  ## check the style
	$(BIN)/ruff check .

type: $(READY)  ## check the types
	$(BIN)/mypy

bench: $(READY)  ## measure speed, as ratios
	$(BIN)/python benchmarks/domains.py
	$(BIN)/python benchmarks/simulator.py
	$(BIN)/python benchmarks/time_to_goal.py
	$(BIN)/python benchmarks/vin.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/matrix_products.py

docs: $(READY)  ## build the documentation site into docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -n -q -b html -c docs -d docs/_build/doctrees . docs/_build/html

docs-serve: docs  ## show the site at http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory docs/_build/html 8000

pictures: $(READY)  ## draw the pictures of README and docs again
	$(BIN)/python examples/pictures.py
	$(BIN)/python docs/pictures/method.py
	$(BIN)/pchid watch results/gridworld/policies/16x16-0 --out docs/images/gridworld-rollouts.gif
	$(BIN)/pchid watch results/gridworld/policies/16x16-0 --out docs/images/gridworld-rollouts.png --episodes 3
	$(BIN)/pchid watch results/gridworld/policies/16x16-0 --out docs/images/gridworld-failures.gif --episodes 3 --only failures
	$(BIN)/pchid watch results/gridworld/policies/16x16-0 --out results/animations/gridworld.gif
	$(BIN)/pchid watch results/hanoi/policies/PCHID-0 --out results/animations/hanoi.gif
	$(BIN)/pchid watch results/fetchreach/policies/PCHID-0 --episodes 3 --out results/animations/fetchreach.gif
	$(BIN)/pchid watch 'results/table1/policies/PEHID, Push-0' --episodes 3 --only successes --out docs/images/push.png
	$(BIN)/pchid watch 'results/table1/policies/PEHID, Push-0' --episodes 3 --only failures --out docs/images/push-failures.png
	$(BIN)/pchid watch 'results/table1/policies/TD3+HER+PEHID, Push-0' --episodes 3 --only successes --out docs/images/push-guided.png
	$(BIN)/pchid watch 'results/table1/policies/PEHID, Slide-0' --episodes 3 --only failures --out docs/images/slide-pehid.png
	$(BIN)/pchid watch 'results/table1/policies/PEHID, PickAndPlace-0' --episodes 3 --only successes --out docs/images/pickandplace.png
	$(BIN)/pchid watch 'results/table1/policies/PEHID, PickAndPlace-0' --episodes 3 --only failures --out docs/images/pickandplace-failures.png
	$(BIN)/pchid watch 'results/table1/policies/TD3+HER+PEHID, PickAndPlace-0' --episodes 3 --only successes --out docs/images/pickandplace-guided.png
	$(BIN)/pchid watch 'results/table1/policies/TD3+HER+PEHID, PickAndPlace-0' --episodes 3 --only failures --out docs/images/pickandplace-guided-failures.png
	$(BIN)/pchid watch 'results/table1/policies/TD3+HER+PEHID, Slide-0' --episodes 3 --only successes --out docs/images/slide.png
	$(BIN)/pchid watch 'results/table1/policies/TD3+HER+PEHID, Slide-0' --episodes 3 --only failures --out docs/images/slide-failures.png

evaluations: $(READY)  ## play the kept policies of Table 1 on other goals, and see how they fail
	mkdir -p results/table1/evaluations
	for run in results/table1/policies/*; do \
		$(BIN)/pchid evaluate "$$run" --episodes 1000 --seed 7 --json "results/table1/evaluations/$$(basename "$$run")-seed-7.json" || exit 1; \
	done
	$(BIN)/python examples/lost_goals.py results/table1/policies/* --out results/table1/lost_goals.json

results: $(READY)  ## run the README's experiments again (about four and a half hours)
	for name in fetchreach bitflip hanoi gridworld fig1a fig4a fig5 steps; do $(BIN)/pchid reproduce $$name || exit 1; done
	$(BIN)/python benchmarks/time_to_goal.py

report: $(READY)  ## write all results as one page, report.html
	$(BIN)/pchid report

clean:  ## remove the virtual environment and the runs
	rm -rf $(VENV) runs
