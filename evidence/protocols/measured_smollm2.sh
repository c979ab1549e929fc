#!/usr/bin/env bash
# Both measured truths for every method on SmolLM2-135M: chain_sum as in evidence/protocols/smollm2-chain-sum-controls-200.yaml, and one-step word
# problems. More options follow the folder; a later one wins, as in: smollm2.sh MODEL FOLDER OUTPUT --device cpu --budget 16
set -euo pipefail
model=$1 words=$2 output=$3
python evidence/analysis/word_problems.py "$words" runs/small_word_problems.jsonl
chain_sum='reasoning-gym:chain_sum?min_terms=3&max_terms=3&min_digits=1&max_digits=1&shots=4&working=true&max_tokens=64'
python -m delta_rlvr measured-credit --model "$model" \
  --tasks "$chain_sum,runs/small_word_problems.jsonl?shots=4&working=working&max_tokens=64" --max-tokens 48 --device cuda --dtype bfloat16 \
  --batches 4 --prompts 16 --group 8 --responses 12 --budget 2048 --rows-at-once 4096 --pass-rows 512 \
  --update-batches 7 --gradient-rollouts 1024 --learning-rate 1e-5 --seconds 340 --output "$output" "${@:4}"
