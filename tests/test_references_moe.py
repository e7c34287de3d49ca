"""Our routers and mixtures against Hugging Face's, weights carried over, every number between compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import morph
from morph.config import (
    AllGlobal,
    AuxiliaryLoss,
    DenseFirst,
    GatedMLP,
    GroupLimitedRouter,
    MoE,
    SelectionBias,
    SharedGate,
    SigmoidRouter,
    SwitchRouter,
)
from morph.nn.context import Context
from morph.nn.moe import MixtureOfExperts
from morph.steps import stage
from tests.models import random_ids, relative_error
from tests.test_references import BOUND, LENGTH, hugging_face_config, hugging_face_weights, streams
from tests.tools import need

D, WIDTH, TOKENS = 48, 16, 90


def spec_of(**fields: Any) -> MoE:
    """32 experts, 7 chosen by softmax, but for what `fields` say."""
    made: dict[str, Any] = {"expert": GatedMLP(width=WIDTH, activation="silu"), "n_experts": 32, "top_k": 7}
    return MoE(**made | {"routed_scale": 1.0, "balance": AuxiliaryLoss()} | fields)


def mixture(spec: MoE, seed: int) -> MixtureOfExperts:
    """A layer with random weights and biases, scattered enough that groups and biases decide."""
    layer = MixtureOfExperts(spec, D)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in layer.modules():
            if hasattr(module, "init_weights"):
                module.init_weights(generator)
        if hasattr(layer.router, "selection_bias"):
            layer.router.selection_bias.normal_(std=0.1, generator=generator)
    return layer.eval()


def carry(ours: MixtureOfExperts, theirs: nn.Module) -> nn.Module:
    """Hugging Face's layer with our weights."""
    weights = {"gate.weight": ours.router.logits.weight, "experts.down_proj": ours.experts.down}
    weights["experts.gate_up_proj"] = torch.cat((ours.experts.gate, ours.experts.up), dim=1)
    for shared in ours.shared:  # one at most
        place = "shared_expert" if hasattr(theirs, "shared_expert") else "shared_experts"
        for part in ("gate", "up", "down"):
            weights[f"{place}.{part}_proj.weight"] = getattr(shared, part).weight
    if ours.shared_gate is not None:
        weights["shared_expert_gate.weight"] = ours.shared_gate.weight
    if hasattr(ours.router, "selection_bias"):
        weights["gate.e_score_correction_bias"] = ours.router.selection_bias
    theirs.load_state_dict(weights, strict=True)
    return theirs.eval()


def both(ours: MixtureOfExperts, theirs: nn.Module) -> tuple[dict[str, Tensor], Tensor, tuple[Tensor, ...], Tensor]:
    """What a forward pass of either records and answers: ours seen, ours out, (logits, weights, chosen), theirs out."""
    seen: dict[str, Tensor] = {}
    for name, module in ours.named_modules():
        prefix = f"{name}." if name else ""
        module.recorder = lambda label, tensor, prefix=prefix: seen.__setitem__(prefix + label, tensor)  # type: ignore[assignment]
    gate: list[tuple[Tensor, ...]] = []
    theirs.gate.register_forward_hook(lambda _, __, out: gate.append(out))  # type: ignore[union-attr]
    x = torch.randn(2, TOKENS // 2, D, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        out = ours(x, Context(0, TOKENS // 2, None, x.device, torch.float32))
        expected = theirs(x)
    return seen, out, gate[0], expected


def ordered(weights: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Both with experts in ascending order: Hugging Face leaves the order open."""
    chosen, order = chosen.sort(dim=-1)
    return weights.gather(-1, order), chosen


SIGMOID = dict(router=SigmoidRouter(), balance=SelectionBias(), n_shared=1, routed_scale=2.5)
GROUPED = SIGMOID | dict(router=GroupLimitedRouter(n_groups=8, n_kept=4))
GATED = dict(n_shared=1, shared_gate=SharedGate())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("deepseek-v3", SIGMOID),
        ("deepseek-v3", GROUPED),
        ("deepseek-v3", GROUPED | dict(router=GroupLimitedRouter(n_groups=4, n_kept=1))),
        ("mixtral", dict(n_experts=8, top_k=2)),
        ("qwen3-moe", dict(top_k=8)),
        ("qwen2-moe", GATED | dict(router=SwitchRouter(), top_k=4)),
        ("qwen3-next", GATED | dict(top_k=10)),
    ],
    ids=["deepseek-v3", "deepseek-v3-grouped", "one-group-of-four", "mixtral", "qwen3-moe", "qwen2-moe", "qwen3-next"],
)
def test_routers_and_mixtures_against_hugging_face(name: str, fields: dict[str, Any], seed: int) -> None:
    need("transformers")
    import transformers as hf

    spec = spec_of(**fields)
    ours = mixture(spec, seed)
    shared = dict(
        hidden_size=D, num_experts_per_tok=spec.top_k, moe_intermediate_size=WIDTH, num_experts=spec.n_experts
    )
    if name == "deepseek-v3":
        from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE as Theirs

        router = spec.router
        n, kept = (router.n_groups, router.n_kept) if isinstance(router, GroupLimitedRouter) else (1, 1)
        config = hf.DeepseekV3Config(
            hidden_size=D, num_experts_per_tok=7, moe_intermediate_size=WIDTH, n_routed_experts=32, n_shared_experts=1,
            routed_scaling_factor=2.5, norm_topk_prob=True, n_group=n, topk_group=kept,
        )  # fmt: skip
    elif name == "mixtral":
        from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock as Theirs

        config = hf.MixtralConfig(hidden_size=D, num_experts_per_tok=2, intermediate_size=WIDTH, num_local_experts=8)
    elif name == "qwen3-moe":
        from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock as Theirs

        config = hf.Qwen3MoeConfig(**shared, norm_topk_prob=True)
    elif name == "qwen2-moe":
        from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock as Theirs

        config = hf.Qwen2MoeConfig(**shared, shared_expert_intermediate_size=WIDTH, norm_topk_prob=False)
    else:
        from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextSparseMoeBlock as Theirs

        config = hf.Qwen3NextConfig(**shared, shared_expert_intermediate_size=WIDTH, norm_topk_prob=True)
    config._experts_implementation = "eager"
    seen, out, (logits, weights, chosen), expected = both(ours, carry(ours, Theirs(config)))
    assert relative_error(seen["router.logits"], logits) < BOUND
    (mine, my_experts), (other, other_experts) = (
        ordered(seen["router.weights"], seen["router.chosen"]),
        ordered(weights, chosen),
    )
    assert torch.equal(my_experts, other_experts)
    assert relative_error(mine, other) < BOUND
    assert relative_error(out, expected) < BOUND
    if isinstance(spec.balance, SelectionBias):
        plain = seen["router.probabilities"].topk(7).indices
        assert not torch.equal(my_experts, plain.sort(-1).values), "biases and groups do decide"


@pytest.mark.parametrize("seed", [0, 1])
def test_the_switch_router_against_hugging_face(seed: int) -> None:
    """With room for all: theirs drops what overflows an expert, ours drops nothing."""
    need("transformers")
    from transformers import SwitchTransformersConfig
    from transformers.models.switch_transformers.modeling_switch_transformers import (
        SwitchTransformersTop1Router,
        load_balancing_loss_func,
    )

    ours = mixture(spec_of(n_experts=4, top_k=1, router=SwitchRouter()), seed).router
    theirs = SwitchTransformersTop1Router(SwitchTransformersConfig(d_model=D, num_experts=4, expert_capacity=TOKENS))
    theirs.classifier.load_state_dict(ours.logits.state_dict())
    x = torch.randn(TOKENS, D)
    context = Context(0, TOKENS, None, x.device, torch.float32)
    with torch.no_grad():
        weights, chosen = ours.train()(x, context)
        mask, probability, logits = theirs.eval()(x[None])
    assert torch.equal(chosen[:, 0], mask[0].argmax(-1))
    assert relative_error(weights, probability[0]) < BOUND
    balance = load_balancing_loss_func(logits.softmax(-1), mask[0].argmax(-1)[None, :, None])
    assert context.penalties[0].item() == pytest.approx(0.01 * balance.item(), rel=1e-5)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_dense_first_layer_against_qwen3_moe(seed: int) -> None:
    """The whole model: Hugging Face calls it `mlp_only_layers`."""
    need("transformers")
    import transformers as hf

    base = replace(stage("fine-grained", "nano"), layout=AllGlobal())
    moe = base.feed_forward
    assert isinstance(moe, MoE)
    config = replace(base, feed_forward=DenseFirst(n_dense=2, dense=GatedMLP(width=64, activation="silu"), experts=moe))
    model = morph.build(config, seed=seed).eval()
    sizes = dict(num_experts=32, num_experts_per_tok=8, moe_intermediate_size=moe.expert.width, intermediate_size=64)
    theirs = hf.Qwen3MoeForCausalLM(
        hf.Qwen3MoeConfig(**hugging_face_config(config), **sizes, norm_topk_prob=True, mlp_only_layers=[0, 1])
    ).eval()
    theirs.load_state_dict(hugging_face_weights(model), strict=True)
    ids = random_ids(model, 2, LENGTH, seed)
    ours, logits = streams(model, ids)
    with torch.no_grad():
        expected = theirs(ids, output_hidden_states=True)
    for mine, other in zip(ours[:-1], expected.hidden_states[:-1], strict=True):
        assert relative_error(mine, other) < BOUND
    assert relative_error(logits, expected.logits) < BOUND
