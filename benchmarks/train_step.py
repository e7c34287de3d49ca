"""One training step of each stage, as a ratio to Hugging Face's Llama of the same shape, side by side in one run.

    python benchmarks/train_step.py [--size tiny] [--stages 0 7 14] [--rounds 9]

Only the ratios mean something on a shared machine: every round times each model once, in turn, in CPU seconds of one
thread, and the medians are divided. A ratio above 1 is faster than the Llama.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import morph
from morph.config import ModelConfig
from morph.steps import SLUGS, stage


def llama(config: ModelConfig) -> nn.Module:
    """Llama with the shape of stage 7: grouped heads and a gated network."""
    heads = config.attention
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            num_hidden_layers=config.n_layers,
            num_attention_heads=heads.n_heads,
            num_key_value_heads=heads.n_kv_heads,
            intermediate_size=8 * config.d_model // 3,
            max_position_embeddings=config.context_length,
            tie_word_embeddings=True,
            use_cache=False,
        )
    )


def step_of(model: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor], ids: Tensor) -> Callable[[], None]:
    """A closure that does forward, backward, clipping and AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        loss_of(ids[:, :-1], ids[:, 1:]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    """Print one line per stage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--stages", nargs="+", default=["0", "7", "9", "10", "13", "14"])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batch-size", type=int, default=8)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    shape = stage(7, arguments.size)
    ids = torch.randint(0, 256, (arguments.batch_size, shape.context_length + 1))
    reference = llama(shape)

    def llama_loss(x: Tensor, y: Tensor) -> Tensor:
        logits = reference(input_ids=x).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    steps = {"llama": step_of(reference, llama_loss, ids)}
    for name in arguments.stages:
        model = morph.build(stage(name, arguments.size)).train()
        steps[name] = step_of(model, lambda x, y, m=model: m.loss(x, y).total, ids)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_number in range(arguments.rounds + 1):
        for name, run in steps.items():
            before = time.process_time()
            run()
            if round_number:  # the first round warms up
                seconds[name].append(time.process_time() - before)
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    tokens = arguments.batch_size * shape.context_length
    print(f"{arguments.size}, {tokens} tokens a step, torch {torch.__version__}, one thread")
    for name, value in middle.items():
        label = name if name == "llama" else f"{name} {SLUGS[morph.steps.number_of(name)]}"
        print(f"{label:24s} {tokens / value:8,.0f} tokens per CPU s   {middle['llama'] / value:5.2f} x the Llama")


if __name__ == "__main__":
    main()
