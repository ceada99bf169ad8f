# Two commands: `make demo` and `make test`. Both set up what they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WITH_ROS := . $(VENV)/env.sh &&
DEMO_SECONDS ?= 20

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint clean

help:
	@echo "make demo   set up, then run detection and segmentation on the built-in camera for $(DEMO_SECONDS) s; writes demo_output/"
	@echo "make test   set up, then lint, types, import rules and all tests"
	@echo "make lint   set up, then lint, types and import rules"
	@echo "make setup  only the environment ($(VENV)), whole: make demo sets up less"
	@echo "make clean  remove the environment and everything made"
	@echo "Another Python: make demo PYTHON=python3.12"

setup:
	@$(PYTHON) tools/setup_env.py --venv $(VENV)

demo:
	@$(PYTHON) tools/setup_env.py --venv $(VENV) --for demo
	$(WITH_ROS) jetson-dnn-rt run --params config/perception.param.yaml --seconds $(DEMO_SECONDS) --output demo_output

test: setup
	@$(WITH_ROS) python tools/check.py --tests

lint: setup
	@$(WITH_ROS) python tools/check.py

clean:
	rm -rf $(VENV) build install log demo_output *.egg-info .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
