# Each target first installs what it needs, from requirements.lock into .venv.
#   make setup && . .venv/bin/activate
#   make test PYTEST_ARGS="tests/model/test_config.py -k json"
#   make check PYTHON=/usr/bin/python3.12

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3.10 python3; do \
	$$name -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null \
	&& echo $$name && break; done)
VENV_PYTHON := .venv/bin/python
# Without its Python, which an upgrade of the system may remove, it is made anew.
$(shell test -x $(VENV_PYTHON) || rm -f .venv/.installed .venv/.docs .venv/.beam)

# Of TensorFlow's log only errors.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: setup quickstart test test-beam nightly docs pictures check fix

setup: .venv/.installed  # The command `albert`, and what the scripts need.

quickstart: .venv/.installed  # Pretrains a tiny ALBERT on English prose.
	$(VENV_PYTHON) examples/quickstart.py $(QUICKSTART_ARGS)

test: .venv/.installed .venv/.docs  # The tests, without the nightly ones.
	$(VENV_PYTHON) -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder \
		-m "not nightly" $(PYTEST_ARGS)

nightly: check  # All tests: the long ones after those of `check`.
	$(VENV_PYTHON) -m pytest -q -n 2 --dist worksteal -m nightly

test-beam: .venv/.installed .venv/.beam  # Those with Apache Beam.
	PYTHONPATH=.venv/beam $(VENV_PYTHON) -m pytest -q tests/data/pretraining/test_beam_pipeline.py \
		tests/data/pretraining/test_blocks.py

docs: .venv/.docs  # The documentation as a site, in site/. A broken link is an error.
	NO_MKDOCS_2_WARNING=1 $(VENV_PYTHON) -m mkdocs build

# Of the README: the quickstart's model, and the run that tells eras apart.
MODEL ?= quickstart_output/model
RUN ?= quickstart_output/eras
SITE = http://127.0.0.1:18764
DEMO = http://127.0.0.1:18765
TEXTS = text=The+old+man+%5BMASK%5D+at+the+door+of+the+house.&next_text=He+was+tired.
WAIT = curl -sf --output /dev/null --retry 60 --retry-delay 1 --retry-connrefused
SHOOT = chromium --headless --no-sandbox --disable-gpu --hide-scrollbars \
	--user-data-dir=site/browser --virtual-time-budget=20000 --screenshot=docs

pictures: docs  # Those of the documentation: a report, the site and the demo.
	$(VENV_PYTHON) -m albert_tf report --output_dir=$(RUN) --output_file=site/run.html
	$(VENV_PYTHON) -m http.server --bind 127.0.0.1 --directory site 18764 & site=$$!; \
	$(VENV_PYTHON) -m albert_tf demo --init_checkpoint=$(MODEL) --port=18765 & \
	trap "kill $$site $$!" EXIT; $(WAIT) $(SITE) && $(WAIT) $(DEMO) && \
	$(SHOOT)/report.png --window-size=1000,1450 $(SITE)/run.html && \
	$(SHOOT)/site.png --window-size=1300,1100 $(SITE)/ && \
	$(SHOOT)/demo.png --window-size=760,1020 "$(DEMO)/#$(TEXTS)"
	$(VENV_PYTHON) -c "import glob; from PIL import Image; \
		[Image.open(p).convert('RGB').quantize(64).save(p, optimize=True) for p in glob.glob('docs/*.png')]"

check: .venv/.installed docs  # What CI runs.
	$(VENV_PYTHON) -m ruff format --check .
	$(VENV_PYTHON) -m ruff check .
	$(VENV_PYTHON) -m mypy
	$(MAKE) --no-print-directory test test-beam

fix: .venv/.installed  # Formats, and mends what can be mended.
	$(VENV_PYTHON) -m ruff format .
	$(VENV_PYTHON) -m ruff check --fix .

$(VENV_PYTHON):
	@test -n "$(PYTHON)" || { echo "albert_tf needs Python 3.10, 3.11, 3.12" \
		"or 3.13, and none is on the PATH. Install one, or name it:" \
		"make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear .venv >/dev/null \
		|| { $(PYTHON) -m venv --clear --without-pip .venv \
		&& $(PYTHON) -m pip --python $(VENV_PYTHON) --version; } \
		|| { rm -rf .venv; echo "$(PYTHON) cannot make a virtual environment." \
		"On Debian and Ubuntu: apt-get install $(notdir $(PYTHON))-venv. Or" \
		"choose another Python, such as: make PYTHON=python3 setup" >&2; exit 1; }

# A .venv without a pip of its own is filled by the pip beside $(PYTHON).
INSTALL = @if $(VENV_PYTHON) -m pip --version >/dev/null 2>&1; \
		then pip="$(VENV_PYTHON) -m pip"; \
		else pip="$(PYTHON) -m pip --python $(VENV_PYTHON)"; fi; \
	set -x; $$pip install --disable-pip-version-check

.venv/.installed: requirements.lock pyproject.toml | $(VENV_PYTHON)
	$(INSTALL) --requirement requirements.lock
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

# What builds the site and runs the notebooks.
.venv/.docs: requirements-docs.lock | .venv/.installed
	$(INSTALL) --requirement requirements-docs.lock
	@touch $@

# Apache Beam needs an older protobuf than the rest: only its tests see it.
.venv/.beam: requirements-beam.lock | .venv/.installed
	@rm -rf .venv/beam
	$(INSTALL) --no-deps --target .venv/beam --requirement requirements-beam.lock
	@touch $@
