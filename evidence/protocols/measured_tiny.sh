#!/usr/bin/env bash
# Both measured truths for every method on the bundled policy. More options follow the folder, as in: tiny.sh runs/measured-tiny --seconds 500
set -euo pipefail
output=${1:-runs/measured-tiny}
python -m delta_rlvr measured-credit --model builtin --tasks phrased-sums,late-error --device cpu \
  --batches 4 --prompts 12 --group 8 --responses 6 --budget 384 --update-batches 6 --gradient-rollouts 192 \
  --output "$output" "${@:2}"
