#!/usr/bin/env bash
# Qwen3-14B-Base: 300 steps. See train.sh for what may be set.
export MODEL=${MODEL:-Qwen/Qwen3-14B-Base} STEPS=${STEPS:-300} TENSOR_PARALLEL=${TENSOR_PARALLEL:-2}
exec bash "$(dirname "$0")/train.sh" "$@"
