#!/usr/bin/env bash
# One training run of the paper (Table 5) on stock verl 0.9 with the delta-rlvr plug-in.
#
#   bash recipes/verl/qwen3_8b_base.sh delta                          # or dapo, dapo-ft, sapo, fipo, grpo, delta-topk, ...
#   NNODES=2 bash recipes/verl/qwen3_14b_base.sh delta                # from the head node of a Ray cluster of two nodes
#   bash recipes/verl/qwen3_8b_base.sh 'delta?lambda_max=1.5' trainer.save_freq=20    # further words are verl settings
#   DRY_RUN=1 bash recipes/verl/qwen3_8b_base.sh delta                # print the settings and stop
#
# MODEL, STEPS and TENSOR_PARALLEL come from the script of the model. These may be set too:
#   DATA       parquet file of recipes/verl/prepare_data.py           (data/deepmath.parquet)
#   RUNS       where run folders and checkpoints go                   (runs)
#   NNODES     nodes of the Ray cluster                               (1)
#   GPUS       accelerators of a node                                 (8)
#   ROLLOUT    vllm, or sglang: the paper's engine, which was not tried with the plug-in (vllm)
#   OVERLONG   1: DAPO's overlong shaping, buffer 4096, factor 1.0. The authors' script has it on, the paper does not mention it (0)
#   SEED       of the order of the data and of sampling               (0)
#   CHAT       1: prompts go through the model's own chat template; 0: as they stand in the data, as the authors do for base models (0)
set -euo pipefail

METHOD=${1:?name the method: delta, dapo, dapo-ft, sapo, fipo, grpo, ... (see docs/verl.md)}
shift
: "${MODEL:?} ${STEPS:?} ${TENSOR_PARALLEL:?}"
DATA=${DATA:-data/deepmath.parquet}
RUNS=${RUNS:-runs}
NNODES=${NNODES:-1}
GPUS=${GPUS:-8}
ROLLOUT=${ROLLOUT:-vllm}
OVERLONG=${OVERLONG:-0}
SEED=${SEED:-0}
CHAT=${CHAT:-0}

NAME=$(basename "$MODEL")-${METHOD//[^A-Za-z0-9_.=-]/-}-seed$SEED
PROMPT=2048
RESPONSE=20480

# What tells the methods apart beside the delta block: verl's own settings.
CLIP_HIGH=0.28
AVERAGE=token-mean
LOSS=vanilla
case $METHOD in
  grpo) CLIP_HIGH=0.2 AVERAGE=seq-mean-token-mean ;;
  sapo) LOSS=sapo AVERAGE=seq-mean-token-mean ;;
esac

SETTINGS=(
  trainer.v1.trainer_mode=delta_sync
  "+delta.method='$METHOD'"  # quoted, because settings may follow the name
  "+delta.run_folder='$RUNS/$NAME'"
  # Table 5: 128 prompts x 16 rollouts, mini-batches of 32 prompts, lengths, sampling
  data.train_batch_size=128
  actor_rollout_ref.rollout.n=16
  actor_rollout_ref.actor.ppo_mini_batch_size=32
  actor_rollout_ref.actor.ppo_epochs=1
  data.max_prompt_length=$PROMPT
  data.max_response_length=$RESPONSE
  actor_rollout_ref.rollout.temperature=1.0
  actor_rollout_ref.rollout.top_p=1.0
  actor_rollout_ref.rollout.top_k=-1
  # clip 0.2 / 0.28, no KL term, dynamic sampling off. verl always has a dual clip: 10 is FIPO's and leaves the others alone.
  actor_rollout_ref.actor.policy_loss.loss_mode=$LOSS
  actor_rollout_ref.actor.loss_agg_mode=$AVERAGE
  actor_rollout_ref.actor.clip_ratio_low=0.2
  actor_rollout_ref.actor.clip_ratio_high=$CLIP_HIGH
  actor_rollout_ref.actor.clip_ratio_c=10.0
  actor_rollout_ref.actor.use_kl_loss=False
  algorithm.use_kl_in_reward=False
  actor_rollout_ref.actor.entropy_coeff=0
  algorithm.adv_estimator=grpo
  algorithm.norm_adv_by_std_in_grpo=True
  algorithm.filter_groups.enable=False
  # optimizer: lr 1e-6, weight decay 0.1, gradient clip 1.0
  actor_rollout_ref.actor.optim.lr=1e-6
  actor_rollout_ref.actor.optim.weight_decay=0.1
  actor_rollout_ref.actor.grad_clip=1.0
  trainer.total_training_steps="$STEPS"
  trainer.total_epochs=1000
  # reward: 1 if the final answer verifies, else 0
  reward.custom_reward_function.path=pkg://delta_rlvr.adapters.verl.reward
  data.train_files="$DATA"
  data.val_files="$DATA"
  data.seed="$SEED"
  actor_rollout_ref.rollout.seed="$SEED"
  data.truncation=error
  data.filter_overlong_prompts=True
  # The engine. Batch sizes above are global: nothing of them changes with the number of nodes.
  actor_rollout_ref.model.path="$MODEL"
  actor_rollout_ref.model.use_remove_padding=True
  actor_rollout_ref.model.enable_gradient_checkpointing=True
  actor_rollout_ref.actor.strategy=fsdp2
  actor_rollout_ref.actor.use_dynamic_bsz=True
  actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((2 * (PROMPT + RESPONSE)))
  actor_rollout_ref.rollout.name="$ROLLOUT"
  actor_rollout_ref.rollout.tensor_model_parallel_size="$TENSOR_PARALLEL"
  actor_rollout_ref.rollout.gpu_memory_utilization=0.6
  actor_rollout_ref.rollout.calculate_log_probs=True
  trainer.nnodes="$NNODES"
  trainer.n_gpus_per_node="$GPUS"
  # checkpoints are judged afterwards, by recipes/paper/score.sh (AIME25 avg@8 in the paper): each also holds a model that can be served
  "actor_rollout_ref.actor.checkpoint.save_contents=[model,optimizer,extra,hf_model]"
  "actor_rollout_ref.actor.checkpoint.load_contents=[model,optimizer,extra]"
  trainer.val_before_train=False
  trainer.test_freq=-1
  trainer.save_freq=20
  "trainer.default_local_dir='$RUNS/$NAME/verl'"
  trainer.project_name=delta-rlvr
  "trainer.experiment_name='$NAME'"
  "trainer.logger=[console,file]"
)
if [[ $CHAT != 1 ]]; then
  # verl knows no prompt but a chat: this template passes the text through, also for a tokenizer that has none of its own.
  SETTINGS+=("actor_rollout_ref.model.custom_chat_template='{% for message in messages %}{{ message.content }}{% endfor %}'")
fi
if [[ $OVERLONG == 1 ]]; then
  SETTINGS+=(
    reward.reward_manager.name=dapo
    +reward.reward_kwargs.max_resp_len=$RESPONSE
    +reward.reward_kwargs.overlong_buffer_cfg.enable=True
    +reward.reward_kwargs.overlong_buffer_cfg.len=4096
    +reward.reward_kwargs.overlong_buffer_cfg.penalty_factor=1.0
    +reward.reward_kwargs.overlong_buffer_cfg.log=False
  )
fi

if [[ ${DRY_RUN:-0} == 1 ]]; then
  printf '%s\n' "${SETTINGS[@]}" "$@"
  exit
fi
exec "${PYTHON:-python3}" -m verl.trainer.main_ppo "${SETTINGS[@]}" "$@"
