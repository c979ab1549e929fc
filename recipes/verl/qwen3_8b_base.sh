#!/usr/bin/env bash
# Qwen3-8B-Base: 220 steps. See train.sh for what may be set.
export MODEL=${MODEL:-Qwen/Qwen3-8B-Base} STEPS=${STEPS:-220} TENSOR_PARALLEL=${TENSOR_PARALLEL:-1}
exec bash "$(dirname "$0")/train.sh" "$@"
