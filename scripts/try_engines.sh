#!/usr/bin/env bash
# Runs the contract tests of recipes/engines/ against the packages themselves, each in an environment of its own:
#
#     scripts/try_engines.sh trl-0.24      the oldest TRL that the mixin is for (Unsloth's)
#     scripts/try_engines.sh trl-0.29      the newest of that line
#     scripts/try_engines.sh ms-swift      ms-swift 4.6
#
# Environments are build/engine-NAME (VENVS=/elsewhere: /elsewhere/engine-NAME); FRESH=1 makes one again. torch stays the tested CPU
# build. Further arguments go to pytest. (The recipes for slime, prime-rl and NeMo-RL are tested in the main suite, against stubs.)
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  trl-0.24) packages=("trl==0.24.0" "transformers>=4.56.1,<5" "numpy<2.4") tests=tests/recipes/test_old_trl.py ;;
  trl-0.29) packages=("trl==0.29.1" "transformers>=4.56.2,<5") tests=tests/recipes/test_old_trl.py ;;
  ms-swift) packages=("ms-swift==4.6.0" "trl<1.0" "msgspec") tests=tests/recipes/test_ms_swift.py ;;
  *) echo "usage: scripts/try_engines.sh trl-0.24|trl-0.29|ms-swift [pytest arguments]" >&2; exit 2 ;;
esac
place=${VENVS:-build}/engine-$1
shift
[ "${FRESH:-0}" = 1 ] && rm -rf "$place"
test -x "$place/bin/python" || "${PYTHON:-python3}" -m venv "$place"
# pip first, because its settings may name where CPU builds of torch are; then uv keeps what is there.
"$place/bin/python" -m pip install --quiet uv "$(grep '^torch==' constraints.txt)"
"$place/bin/python" -m pip list --format=freeze | grep '^torch==' >"$place/torch.txt"
"$place/bin/uv" pip install --quiet --python "$place/bin/python" -c "$place/torch.txt" "${packages[@]}" \
  "jaxtyping>=0.2.34" "pytest>=8" "pytest-timeout>=2.3" "beartype>=0.20" "datasets"
"$place/bin/python" -m pip list --format=freeze | grep -iE '^(torch|trl|transformers|accelerate|ms.swift|peft)=='
exec env PYTHONPATH="$PWD/src:$PWD/graders/src:$PWD/evidence/src" OMP_NUM_THREADS=1 "$place/bin/python" -m pytest -p no:cacheprovider "$tests" "$@"
