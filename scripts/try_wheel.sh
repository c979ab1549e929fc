#!/usr/bin/env bash
# Build the wheel, install it into an empty environment, and use it there, away from the checkout: what a user's first minutes are.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
rm -rf dist
python3 -m venv "$place/build"
"$place/build/bin/python" -m pip install --quiet --disable-pip-version-check build
"$place/build/bin/python" -m build --quiet --outdir dist
wheel=$(ls "$here"/dist/*.whl)
python3 -m venv "$place/use"
"$place/use/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$wheel[train]"
cd "$place"
"$place/use/bin/delta-rlvr" --version
"$place/use/bin/delta-rlvr" methods > methods.txt
grep -q "^delta " methods.txt
"$place/use/bin/delta-rlvr" train --steps 2 --eval_problems 4 --eval_samples 1 --output run
test -s run/report.html
echo "the wheel works: $(basename "$wheel")"
