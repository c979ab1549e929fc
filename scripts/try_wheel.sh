#!/usr/bin/env bash
# Build the three wheels, install each into an empty environment, and use it there, away from the checkout: a user's first minutes.
# Without arguments all of them; or some of: graders core train evidence.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
pip() { "$1/bin/python" -m pip install --quiet --disable-pip-version-check -c "$here/constraints.txt" "${@:2}"; }
python3 -m venv "$place/build"
pip "$place/build" build
rm -rf dist
for folder in graders . evidence; do "$place/build/bin/python" -m build --quiet --outdir dist "$folder"; done
wheel() { ls "$here"/dist/"$1"-*.whl; }
graders=$(wheel rlvr_graders) core=$(wheel delta_rlvr) evidence=$(wheel delta_rlvr_evidence)
cd "$place"

absent() { # environment, module: it must not be installed there
  ! "$1/bin/python" -c "import $2" 2> /dev/null || { echo "$2 is installed in ${1##*/}"; exit 1; }
}

for what in "${@:-graders core train evidence}"; do for one in $what; do
  env="$place/$one"
  python3 -m venv "$env"
  case $one in
    graders) # no torch, and it grades
      pip "$env" "$graders"
      absent "$env" torch
      "$env/bin/python" -c 'from rlvr_graders import grade_choice, grade_math
assert grade_math(r"so it is \boxed{1/2}", "0.5").score == 1
assert grade_math(r"so it is \boxed{1/3}", "0.5").score == 0
assert grade_choice(r"\boxed{B}", "B").score == 1'
      ;;
    core) # torch alone, and it weighs tokens
      pip "$env" "$core"
      for module in transformers trl rlvr_graders numpy; do absent "$env" "$module"; done
      "$env/bin/python" -c 'import torch
from delta_rlvr import token_coefficients
torch.manual_seed(0)
weights = token_coefficients(torch.randn(4, 6, 8), torch.full((4, 6), -1.0), torch.tensor([1.0, -1, 1, -1]), torch.ones(4, 6, dtype=bool))
assert abs(weights.mean().item() - 1) < 1e-5 and weights.std() > 0'
      "$env/bin/delta-rlvr" --version
      ;;
    train) # a run with its report; a study names what to install
      pip "$env" "$graders" "$core[train]"
      "$env/bin/delta-rlvr" methods > methods.txt  # whole: grep -q would break the pipe
      grep -q "^delta " methods.txt
      "$env/bin/delta-rlvr" train --steps 2 --eval_problems 4 --eval_samples 1 --output run
      test -s run/report.html
      ("$env/bin/delta-rlvr" study x.yaml 2>&1 || true) | grep -q "pip install delta-rlvr-evidence"
      ;;
    evidence) # its commands join
      pip "$env" "$graders" "$core[train]" "$evidence"
      "$env/bin/delta-rlvr" study --help > study.txt
      grep -q protocol study.txt
      "$env/bin/delta-rlvr" credit-bench --help > /dev/null
      ;;
  esac
  echo "the wheel works: $one"
done; done
