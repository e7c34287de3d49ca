#!/bin/sh
# Sets up .venv in the project's folder: `sh tools/setup.sh [python]`. Called by make; safe to call again after any failure.
# Installs system libraries only where it already runs as root on Debian or Ubuntu; elsewhere it prints the line to run.
set -eu
cd "$(dirname "$0")/.."
python=${1:-python3}

say() { printf 'setup: %s\n' "$*"; }
stop() { printf 'setup: %s\n' "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

# Python itself.
has "$python" || stop "$python not found: install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3.11"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "Morph needs Python 3.11 or newer and $python is $("$python" -V 2>&1 | cut -d' ' -f2): install one and name it: make setup PYTHON=/path/to/python3.11"

# What building Manim's two C extensions (pycairo, manimpango) takes. They ship no Linux wheels.
headers() { "$python" -c 'import os, sysconfig; raise SystemExit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'; }
missing=
has pkg-config && pkg-config --exists cairo pango pangocairo || missing="$missing cairo"
has cc || has gcc || has clang || missing="$missing cc"
headers || missing="$missing python-headers"
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing venv"

if [ -n "$missing" ]; then
    debian="libcairo2-dev libpango1.0-dev pkg-config gcc python3-dev python3-venv"
    if has apt-get && [ "$(id -u)" = 0 ]; then
        say "installing system packages for:$missing"
        apt-get update -qq
        # Word splitting is meant: a list of package names.
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debian >/dev/null
        pkg-config --exists cairo pango pangocairo || stop "apt installed $debian, yet pkg-config finds no cairo, pango and pangocairo"
        headers || stop "$python has no C headers (Python.h): install the development package of that Python, or use another: make setup PYTHON=/usr/bin/python3"
    else
        if has apt-get; then line="sudo apt-get update && sudo apt-get install -y $debian"
        elif has dnf; then line="sudo dnf install -y cairo-devel pango-devel pkgconf-pkg-config gcc python3-devel"
        elif has brew; then line="brew install cairo pango pkg-config"
        else line="conda env create -f environment.yml && conda activate morph"
        fi
        stop "missing:$missing. Run this line, then make again:  $line"
    fi
fi

# The environment. A half-made one, or one whose Python is gone, is made anew.
if ! .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "creating .venv with $("$python" -V 2>&1)"
    "$python" -m venv --clear .venv
fi
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

# PyTorch first and alone, so that nothing else chooses its build.
say "1 of 2: PyTorch (the largest download)"
pip install -q -c constraints.txt torch
say "2 of 2: the other packages and Morph itself (some minutes: two are compiled here)"
pip install -q -c constraints.txt -e '.[train,hf,notebook,scenes,site,dev]'
broken=$(pip check) || stop "$broken"
say "done: .venv is ready"
