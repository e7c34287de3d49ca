"""Checkpoints: everything a run needs to go on as if it had never stopped.

Weights and persistent buffers, and AdamW's moments by parameter name, are safetensors; `state.json` holds
the step, the random state, and the SHA-256 of both files. A checkpoint is filled under a hidden name and
renamed when it is on the disk; only then does `latest` point to it, and only then do older ones go.
"""

import base64
import binascii
import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

import morph
from morph.config import MoE
from morph.errors import MorphError
from morph.train import files
from morph.train.records import COUNT, DIGEST, SHARE, TABLE, TEXT, Kind, require_fields
from morph.train.runs import Run, config_digest

KEEP = 2
MISFIT = "restore config.json or train again in a new --out"
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"


@dataclass(frozen=True)
class State:
    """Where a run stands: optimizer steps taken, CPU seconds spent on them, and how often each expert was chosen
    since the last validation, (layers, E), None without experts."""

    step: int = 0
    cpu_seconds: float = 0.0
    load: list[list[int]] | None = None


def folder_name(step: int) -> str:
    return f"step-{step:06d}"


def save_checkpoint(run: Run, model: nn.Module, optimizer: torch.optim.Optimizer, state: State) -> Path:
    """Write a checkpoint and point `latest` to it. On a full disk (MorphError) the last one stays."""
    target = run.path / "checkpoints" / folder_name(state.step)
    contents = {WEIGHTS: save(unique_tensors(model)), MOMENTS: save(_moments(model, optimizer))}
    record = {
        "step": state.step,
        "cpu_seconds": state.cpu_seconds,
        "load": state.load,
        **_owner(run),
        "sha256": {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()},
        "random": _random_state(),
    }
    try:
        with files.new_folder(target, replace=True) as folder:
            for name, data in contents.items():
                files.write_bytes(folder / name, data)
            files.replace_json(folder / STATE, record)
        files.replace_bytes(run.path / "latest", (target.name + "\n").encode())
    except OSError as error:
        before = run.latest()
        kept = f"the checkpoint {before.name} is intact" if before else "no checkpoint was written yet"
        raise files.disk_error(
            error, target, f"{kept}; then continue with: morph train --out {run.path} --resume"
        ) from None
    for old in run.checkpoints()[:-KEEP]:
        if old.name == folder_name(0):  # no step made it: an upcycled run began there
            continue
        shutil.rmtree(old, ignore_errors=True)
    return target


def restore(run: Run, model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Load the latest checkpoint into model and optimizer; without one, the run stands at step 0."""
    for place in (run.path, run.path / "checkpoints"):
        files.remove_leftovers(place)
    folder = run.latest()
    if folder is None:
        return State()
    record, tensors = _read(run, folder)
    fill(model, tensors[WEIGHTS], folder, MISFIT)
    _set_moments(model, optimizer, tensors[MOMENTS], folder)
    _set_random_state(record["random"], folder)
    return State(record["step"], record["cpu_seconds"], record["load"])


def load_model(run: Run, device: str = "cpu") -> morph.Decoder:
    """The run's model with its latest weights, in evaluation mode. Raises MorphError without a sound checkpoint."""
    folder = run.latest()
    if folder is None:
        raise MorphError(f"{run.path} has no checkpoint yet: continue it with: morph train --out {run.path} --resume")
    _, tensors = _read(run, folder)
    model = morph.build(run.config, seed=run.seed, device=device)
    fill(model, tensors[WEIGHTS], folder, MISFIT)
    return model.eval()


def unique_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, a tied tensor once (safetensors stores no aliases)."""
    seen: set[int] = set()
    unique = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            unique[name] = tensor.detach().contiguous()
    return unique


def _read(run: Run, folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
    """State and tensors of a checkpoint, verified. Raises MorphError with the way back."""
    others = [c.name for c in run.checkpoints() if c != folder]
    remedy = f"remove that folder to go back to {others[-1] if others else 'step 0'}"
    record = _read_state(run, folder, remedy)
    tensors = {}
    for name, expected in record["sha256"].items():
        try:
            data = (folder / name).read_bytes()
            if hashlib.sha256(data).hexdigest() != expected:
                raise MorphError(f"{folder / name} is damaged ({len(data)} bytes, SHA-256 differs): {remedy}")
            tensors[name] = load(data)
        except (OSError, SafetensorError) as error:
            raise MorphError(f"{folder / name} cannot be read ({files.reason(error)}): {remedy}") from None
    return record, tensors


def _owner(run: Run) -> dict[str, str]:
    """What a checkpoint belongs to, in digests."""
    return {
        "config": config_digest(run.config),
        "recipe": run.recipe.digest(),
        "corpus": run.facts["corpus"]["sha256"],
    }


def _read_state(run: Run, folder: Path, remedy: str) -> dict[str, Any]:
    """The record of a checkpoint, of this run and within its steps."""
    path, owner = folder / STATE, _owner(run)
    config, moe = run.config, run.config.moe
    routed = sum(isinstance(config.feed_forward_in(layer), MoE) for layer in range(config.n_layers))
    routed += config.mtp.depth if config.mtp and moe else 0  # their blocks are like the last layer
    shape = (routed, moe.n_experts) if moe else None
    record = require_fields(
        files.read_json(path),
        {"step": COUNT, "cpu_seconds": SHARE, "load": _load_of(shape), "random": TABLE, "sha256": TABLE}
        | dict.fromkeys(owner, TEXT),
        str(path),
        remedy,
    )
    require_fields(record["sha256"], {WEIGHTS: DIGEST, MOMENTS: DIGEST}, f"{path}: sha256", remedy)
    require_fields(record["random"], {"cpu": TEXT}, f"{path}: random", remedy)
    for field, found in owner.items():
        if record[field] != found:
            raise MorphError(
                f"{folder} belongs to another {field} ({record[field][:12]}, not {found[:12]}): "
                f"restore the {field} the run was started with, or {remedy}"
            )
    if folder.name != folder_name(record["step"]) or record["step"] > run.recipe.steps:
        raise MorphError(f"{path} is of step {record['step']} of {run.recipe.steps}, in {folder.name}: {remedy}")
    record["sha256"] = {name: record["sha256"][name] for name in (WEIGHTS, MOMENTS)}
    return record


def _load_of(shape: tuple[int, int] | None) -> Kind:
    """Counts of that shape (layers, experts), or null."""

    def holds(value: Any) -> bool:
        if value is None or shape is None:
            return value is None
        rows = isinstance(value, list) and len(value) == shape[0] and all(isinstance(row, list) for row in value)
        return rows and all(len(row) == shape[1] and all(map(COUNT.holds, row)) for row in value)

    return Kind(f"null or {shape[0]} x {shape[1]} counts" if shape else "null", holds)


def fill(model: nn.Module, tensors: dict[str, Tensor], source: Path, remedy: str) -> None:
    """Copy the tensors read from `source` into a model. Raises MorphError when names or shapes differ."""
    expected = unique_tensors(model)
    wrong = [n for n in expected if n not in tensors or tensors[n].shape != expected[n].shape]
    wrong += [n for n in tensors if n not in expected]
    if wrong:
        raise MorphError(f"{source} does not fit its config (first difference: {wrong[0]}): {remedy}")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(tensors[name])


def _moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """AdamW's state as `<parameter>/<exp_avg | exp_avg_sq | step>`."""
    return {
        f"{name}/{key}": value.detach().contiguous()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _set_moments(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], folder: Path) -> None:
    parameters = dict(model.named_parameters())
    by_parameter: dict[Tensor, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, _, field = key.rpartition("/")
        if name not in parameters:
            raise MorphError(f"{folder} has a moment for {name!r}, which the model lacks: train again in a new --out")
        by_parameter.setdefault(parameters[name], {})[field] = value
    order = [p for group in optimizer.param_groups for p in group["params"]]
    state = {i: by_parameter[p] for i, p in enumerate(order) if p in by_parameter}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _random_state() -> dict[str, str]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def _set_random_state(states: dict[str, str], folder: Path) -> None:
    try:
        decoded = {
            name: torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)
            for name, text in states.items()
        }
        torch.set_rng_state(decoded["cpu"])
        if "cuda" in decoded and torch.cuda.is_available():
            torch.cuda.set_rng_state(decoded["cuda"])
    except (binascii.Error, ValueError, TypeError, RuntimeError):
        raise MorphError(
            f"{folder / STATE}: the random state is damaged: remove that folder to go back to the one before"
        ) from None
