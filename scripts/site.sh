#!/usr/bin/env bash
# Writes the reference pages from the code, and builds the documentation site into build/site. Fails on a broken link
# or a page that no menu names.
#
#   scripts/site.sh            build
#   scripts/site.sh --serve    build, and serve on 127.0.0.1:8000 until Ctrl-C
set -euo pipefail
source "$(dirname "$0")/usage.sh"
answer_help "$@"
refuse_other "${1:-}" --serve
cd "$(dirname "$0")/.."
export NO_MKDOCS_2_WARNING=1
.venv/bin/python scripts/reference.py
if [[ ${1:-} == --serve ]]; then
  exec .venv/bin/python -m mkdocs serve --dev-addr 127.0.0.1:8000
fi
.venv/bin/python -m mkdocs build --strict --quiet
