#!/usr/bin/env bash
# The whole way to Table 1 on two cores, in minutes, with the bundled policy: prepare, doctor, train two methods with two seeds, choose
# checkpoints, score seven benchmarks through a server, print the table. Scripts and settings files are those of the real runs; what is
# smaller stands at the end of their lines. The data are stand-ins (sums): the table shows that the way works, nothing about methods.
#
#   bash recipes/paper/rehearse.sh trl                 # into rehearsal-trl; another folder may follow
#   bash recipes/paper/rehearse.sh verl                # needs verl, and tests/support of this repository, which lets it run on a CPU
set -euo pipefail

ENGINE=${1:?trl or verl}
OUT=$(realpath -m "${2:-rehearsal-$ENGINE}")
cd "$(dirname "$0")/../.."
METHODS=(dapo delta) SEEDS=(0 1)
export DELTA_RLVR_DATA=$OUT/data OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

python3 recipes/paper/rehearsal/stand_ins.py "$OUT/data"
# The bundled policy knows sums and the words around them, no instructions.
PROMPT=(--template_text $'{question}\n' --extract last_number)

case $ENGINE in
  trl)
    SMALL=(--model builtin --task "$OUT/data/deepmath.parquet?schema=deepmath" "${PROMPT[@]}" --use_vllm false --bf16 false
      --gradient_checkpointing false --max_completion_length 64 --num_generations 8 --per_device_train_batch_size 32
      --gradient_accumulation_steps 1 --steps_per_generation 4 --max_steps 16 --save_steps 8 --learning_rate 5e-4 --rollouts_every 8)
    FIRST=recipes/paper/qwen3-8b-deepmath/${METHODS[0]}.yaml
    delta-rlvr doctor "$FIRST" "${SMALL[@]}" --output "$OUT/runs/doctor"
    run_of() { echo "$OUT/runs/$1-seed$2"; }
    for method in "${METHODS[@]}"; do for seed in "${SEEDS[@]}"; do
      delta-rlvr train --config "recipes/paper/qwen3-8b-deepmath/$method.yaml" "${SMALL[@]}" --seed "$seed" \
        --output "$(run_of "$method" "$seed")"
    done; done
    ;;
  verl)
    export PYTHONPATH=$PWD/tests/support${PYTHONPATH:+:$PYTHONPATH}
    python3 recipes/verl/prepare_data.py --source "$OUT/data/deepmath.parquet" --schema deepmath --output "$OUT/data/train.parquet" \
      "${PROMPT[@]}"
    python3 -c 'import sys, verl_launch; verl_launch.policy_for_verl(sys.argv[1])' "$OUT/policy"
    eval "$(python3 -c 'from verl_environment import ENVIRONMENT; [print(f"export {k}={v}") for k, v in ENVIRONMENT.items()]')"
    mapfile -t SMALL < <(python3 -c 'from verl_launch import CPU, LAUNCH; print(*CPU, *LAUNCH, sep="\n")')
    SMALL+=(data.train_batch_size=16 actor_rollout_ref.rollout.n=8 actor_rollout_ref.actor.ppo_mini_batch_size=8
      data.max_prompt_length=32 data.max_response_length=64 actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096
      actor_rollout_ref.actor.optim.lr=5e-4 trainer.save_freq=2 "trainer.logger=[console]" +delta.rollouts_every=2 "hydra.run.dir='$OUT/hydra'")
    export MODEL=$OUT/policy DATA=$OUT/data/train.parquet RUNS=$OUT/runs STEPS=4 GPUS=2 TENSOR_PARALLEL=2 ROLLOUT=hf_cpu
    DRY_RUN=1 bash recipes/verl/qwen3_8b_base.sh "${METHODS[0]}" "${SMALL[@]}" > "$OUT/launch.txt"
    # On a CPU it ends with a list of what the real launch needs.
    delta-rlvr doctor "$OUT/launch.txt" || true
    run_of() { echo "$OUT/runs/policy-$1-seed$2"; }
    for method in "${METHODS[@]}"; do for seed in "${SEEDS[@]}"; do
      SEED=$seed bash recipes/verl/qwen3_8b_base.sh "$method" "${SMALL[@]}"
    done; done
    ;;
  *)
    echo "$ENGINE: give trl or verl" >&2
    exit 2
    ;;
esac

export SERVE="python3 recipes/paper/rehearsal/serve.py" OPTIONS="" PORT=${PORT:-8765}
ROWS=()
for method in "${METHODS[@]}"; do
  results=()
  for seed in "${SEEDS[@]}"; do
    run=$(run_of "$method" "$seed")
    SEED=$seed bash recipes/paper/score.sh "$run" "${PROMPT[@]}" --api completions --max-tokens 64 -k 4
    results+=("$run/evaluations/paper-math.json")
  done
  ROWS+=("$method=$(IFS=,; echo "${results[*]}")")
done
delta-rlvr evaluate --compare "${ROWS[@]}" --output "$OUT/table1.md,$OUT/table1.tex,$OUT/table1.csv"
