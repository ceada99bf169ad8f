# Two commands: `make demo` and `make test`. Both set up what they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_ROS := . $(VENV)/env.sh &&
DEMO_SECONDS ?= 20
# Everything is tested on Kilted, the nodes on Jazzy; ROS=kilted, ROS=jazzy: one of the two.
ROS ?= kilted jazzy
# And what a robot runs on these Pythons, where they are; with the lowest versions on the first.
LANES ?= $(if $(filter kilted,$(ROS)),3.10 3.13)

.DEFAULT_GOAL := help
.PHONY: help setup setup-kilted setup-jazzy setup-3.10 setup-3.13 demo test nightly lint clean

help:
	@echo "make demo   set up, then run detection and segmentation on the built-in camera for $(DEMO_SECONDS) s; writes demo_output/"
	@echo "make test   set up, then lint, types, import rules and all tests, those of nodes on Jazzy, and what a"
	@echo "            robot runs on Python 3.10 with the lowest versions allowed and on 3.13, where they are"
	@echo "            ROS=kilted without Jazzy, ROS=jazzy only the tests of nodes there, LANES= without 3.10 and 3.13"
	@echo "make nightly  set up, then the short runs of benchmarks, which make test leaves out"
	@echo "make lint   set up, then lint, types and import rules"
	@echo "make setup  only the environment ($(VENV)), whole: make demo sets up less"
	@echo "make clean  remove the environment and everything made"
	@echo "Another Python: make demo PYTHON=python3.12"

setup:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

setup-kilted: setup

setup-jazzy:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)-jazzy --ros jazzy --for nodes

setup-3.10:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)-3.10 --python 3.10 --for robot --lowest

setup-3.13:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)-3.13 --python 3.13 --for robot

demo:
	@$(PYTHON) tools/setup_env.py --venv $(VENV) --for demo
	$(WITH_ROS) jetson-dnn-rt run --params config/perception.param.yaml --seconds $(DEMO_SECONDS) --output demo_output

test:
	@$(MAKE) --no-print-directory -j3 $(addprefix setup-,$(ROS) $(LANES))
	@$(PYTHON) tools/check.py --tests $(ROS) --lanes $(LANES)

nightly: setup
	$(WITH_ROS) pytest -m nightly

lint: setup
	@$(PYTHON) tools/check.py

clean:
	rm -rf $(VENV) $(addprefix $(VENV)-,jazzy 3.10 3.13) build install log demo_output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
