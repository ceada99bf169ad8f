# Two commands: `make demo` and `make test`. Both set up what they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_ROS := . $(VENV)/env.sh &&
DEMO_SECONDS ?= 20
# Everything is tested on Kilted, then the nodes on Jazzy; ROS=kilted, ROS=jazzy: one of the two.
ROS ?= kilted jazzy

.DEFAULT_GOAL := help
.PHONY: help setup setup-kilted setup-jazzy demo test lint clean

help:
	@echo "make demo   set up, then run detection and segmentation on the built-in camera for $(DEMO_SECONDS) s; writes demo_output/"
	@echo "make test   set up, then lint, types, import rules and all tests, and those of nodes on Jazzy"
	@echo "            ROS=kilted without Jazzy, ROS=jazzy only the tests of nodes there"
	@echo "make lint   set up, then lint, types and import rules"
	@echo "make setup  only the environment ($(VENV)), whole: make demo sets up less"
	@echo "make clean  remove the environment and everything made"
	@echo "Another Python: make demo PYTHON=python3.12"

setup:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

setup-kilted: setup

setup-jazzy:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)-jazzy --ros jazzy --for nodes

demo:
	@$(PYTHON) tools/setup_env.py --venv $(VENV) --for demo
	$(WITH_ROS) jetson-dnn-rt run --params config/perception.param.yaml --seconds $(DEMO_SECONDS) --output demo_output

test:
	@$(MAKE) --no-print-directory -j2 $(addprefix setup-,$(ROS))
	@$(PYTHON) tools/check.py --tests $(ROS)

lint: setup
	@$(PYTHON) tools/check.py

clean:
	rm -rf $(VENV) $(VENV)-jazzy build install log demo_output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
