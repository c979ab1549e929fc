#!/usr/bin/env bash
# From the checkpoints of a run to its row of Table 1: serve and score each one on AIME25, choose by avg@8, score the chosen one on all
# seven benchmarks. A second start goes on where the first one ended.
#
#   bash recipes/paper/score.sh runs/paper/qwen3-8b-deepmath-delta        # a run of TRL
#   bash recipes/paper/score.sh runs/Qwen3-8B-Base-delta-seed0            # a run of verl
#   bash recipes/paper/score.sh RUN --max-tokens 8192                     # further words are options of `delta-rlvr evaluate`
#
# These may be set:
#   SERVE      what serves a model                  (vllm serve)
#   OPTIONS    its options. Models may bring a limit of their own on the length (Qwen3's: 2,048): --generation-config vllm leaves it out
#              (--data-parallel-size 8 --max-model-len 32768 --dtype bfloat16 --generation-config vllm)
#   PORT       where it is served                   (8000)
#   RULE       which checkpoint is taken            (aime25:avg@8)
#   SEED       of sampling; runs of one method that differ in their training seed need seeds of their own here, too  (0)
set -euo pipefail

RUN=${1:?name the folder of a run}
shift
SERVE=${SERVE:-vllm serve}
OPTIONS=${OPTIONS---data-parallel-size 8 --max-model-len 32768 --dtype bfloat16 --generation-config vllm}
PORT=${PORT:-8000}
RULE=${RULE:-aime25:avg@8}
NAME=$(basename "$RUN")
ASK=(delta-rlvr evaluate --server "http://127.0.0.1:$PORT/v1" --model "$NAME" --preset paper-math --seed "${SEED:-0}" "$@")
SERVER=

stop() {
  [[ -z $SERVER ]] || { kill "$SERVER" && wait "$SERVER" || true; } 2>/dev/null
  SERVER=
}
trap stop EXIT

serve() {
  stop
  # shellcheck disable=SC2086 # these are several words
  $SERVE "$1" --served-model-name "$NAME" --port "$PORT" $OPTIONS &
  SERVER=$!
  until curl --silent --fail --output /dev/null "http://127.0.0.1:$PORT/v1/models"; do
    kill -0 "$SERVER" 2>/dev/null || { echo "the server of $1 has ended" >&2; exit 1; }
    sleep 1
  done
}

LEFT=$(delta-rlvr evaluate --select "$RUN" --rule "$RULE" --list)
while IFS=$'\t' read -r model result; do
  [[ -n $model ]] || continue
  serve "$model"
  "${ASK[@]}" --benchmarks "${RULE%%:*}" -k "${RULE##*@}" --output "$result" < /dev/null
done <<< "$LEFT"
delta-rlvr evaluate --select "$RUN" --rule "$RULE"
CHOSEN=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["choices"][-1]["model"])' "$RUN/selection.json")
serve "$RUN/$CHOSEN"
"${ASK[@]}" --output "$RUN/evaluations/paper-math.json"
