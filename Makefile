# Everything a fresh machine with Python 3.11, git and make needs: each target sets up .venv by itself, when needed.
PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: run test bench lint format clean

# One stamp per set of extras, redone only when pyproject.toml changes.
$(VENV)/.installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --editable '.[examples,test]'
	@touch $@

$(VENV)/.installed-lint: $(VENV)/.installed
	@$(BIN)/pip install --quiet --editable '.[lint]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@$(BIN)/pip install --quiet --editable '.[bench]'
	@touch $@

run: $(VENV)/.installed
	@$(BIN)/penstock run examples/logwatch.py --plan --operators

test: $(VENV)/.installed
	$(BIN)/python -m pytest

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/all.py --short

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build
