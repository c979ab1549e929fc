#!/usr/bin/env bash
# Runs the TRL adapter's canaries and its tests of resume and of stock behaviour with other versions than constraints.txt has:
#
#     scripts/try_versions.sh lowest     the lower bounds of the extra `trl` in pyproject.toml
#     scripts/try_versions.sh newest     the newest that it allows
#
# in an environment of its own (build/try-lowest, build/try-newest; FRESH=1 makes it anew). torch stays the tested one. Further arguments
# go to pytest, in the place of the files below.
set -euo pipefail
cd "$(dirname "$0")/.."
which=${1:-}
if [ "$which" != lowest ] && [ "$which" != newest ]; then
  echo "usage: scripts/try_versions.sh lowest|newest [pytest arguments]" >&2
  exit 2
fi
shift
place=build/try-$which
[ "${FRESH:-0}" = 1 ] && rm -rf "$place"
test -x "$place/bin/python" || "${PYTHON:-python3}" -m venv "$place"
# A requirement "name>=1.2,<2" is "name==1.2" in the lowest environment.
"$place/bin/python" - "$which" >"$place/requirements.txt" <<'PY'
import re, sys, tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
for requirement in extras["trl"]:
    name, lowest = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
    print(f"{name}=={lowest}" if sys.argv[1] == "lowest" else requirement)
PY
grep '^torch==' constraints.txt >"$place/torch.txt"
# uv resolves in seconds what pip may search minutes for.
"$place/bin/python" -m pip install --quiet uv
"$place/bin/uv" pip install --quiet --python "$place/bin/python" --upgrade -c "$place/torch.txt" -r "$place/requirements.txt" \
  -e ".[math,tasks]" "pytest>=8" "pytest-timeout>=2.3" "pytest-xdist>=3.6" "hypothesis>=6.100" "beartype>=0.20"
"$place/bin/python" -m pip list --format=freeze | grep -iE '^(torch|trl|transformers|accelerate|peft|datasets|tokenizers|huggingface.hub|numpy)=='
if [ $# -eq 0 ]; then
  set -- tests/adapters/trl/test_{canary,canary_resume,flat_range,like_trl,resume}.py
fi
exec env -u PYTHONPATH OMP_NUM_THREADS=1 "$place/bin/python" -m pytest -p no:cacheprovider -n 2 "$@"
