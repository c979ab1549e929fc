"""Three steps on the built-in task with the bundled policy, its own responses and few tokens."""

from datasets import Dataset
from transformers import set_seed
from trl import GRPOConfig

from delta_rlvr.adapters.trl import DeltaTrainerConfig
from delta_rlvr.models.load import load_policy
from delta_rlvr.tasks import get_task
from replayed_training import QUIET, RecordedDelta, RecordedStock
from scratch import scratch_folder


def letters(completions, **_):
    """A reward that differs within every group: correct answers are rare in so few tokens."""
    return [float(sum(map(ord, text)) % 7) for text in completions]


def build_real(method="delta", *, stock=False, lora=False, reward=letters, columns=None, **settings):
    """`columns`: columns of the data set beside the prompt, by name, with the same value in every row."""
    set_seed(3)
    model, tokenizer = load_policy("builtin")
    problems = get_task("phrased-sums").problems("train", 32, seed=5)
    given = {
        "output_dir": scratch_folder(),
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 14,
        "max_steps": 3,
        "learning_rate": 1e-3,
        "seed": 3,
        **QUIET,
        **settings,
    }
    peft_config = None
    if lora:
        from peft import LoraConfig

        peft_config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return (RecordedStock if stock else RecordedDelta)(
        model=model,
        reward_funcs=reward,
        args=GRPOConfig(**given) if stock else DeltaTrainerConfig(method=method, **given),
        train_dataset=Dataset.from_list([{"prompt": problem.prompt, **(columns or {})} for problem in problems]),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
