#!/usr/bin/env bash
# Style: ruff's rules and its formatting, over every Python file, the ones in tools/ without an ending included.
# To mend what can be mended: .venv/bin/ruff check --fix . && .venv/bin/ruff format .
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools/setup

files=(.)
for file in tools/*; do
  [ ! -f "$file" ] || [[ $file == *.* ]] || ! head -n 1 "$file" | grep -q '^#!.*python' || files+=("$file")
done

code=0
.venv/bin/ruff check --quiet "${files[@]}" || code=1
.venv/bin/ruff format --quiet --check "${files[@]}" || code=1
if [ "$code" -eq 0 ]; then echo 'check: style is right'; else echo 'check: FAILED: see above' >&2; fi
exit "$code"
