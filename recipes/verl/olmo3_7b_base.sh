#!/usr/bin/env bash
# Olmo-3-1025-7B: the paper does not give the number of steps, so that of the 8B model. See train.sh for what may be set.
export MODEL=${MODEL:-allenai/Olmo-3-1025-7B} STEPS=${STEPS:-220} TENSOR_PARALLEL=${TENSOR_PARALLEL:-1}
exec bash "$(dirname "$0")/train.sh" "$@"
