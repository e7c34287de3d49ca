"""Clamped gates, experts with biases and shared experts of their own width: formulas, both forms, and Hugging Face."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

import morph
from morph.config import (
    AuxiliaryLoss,
    ClampedGatedMLP,
    DenseFirst,
    ExpertBiases,
    GatedMLP,
    ModelConfig,
    MoE,
    NoBalance,
    SharedGate,
)
from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.context import Context
from morph.nn.feedforward import ACTIVATIONS, activation_rms, clamped_swiglu, meeting, meeting_rms
from morph.nn.feedforward import GatedMLP as GatedNetwork
from morph.nn.moe import Experts, MixtureOfExperts
from morph.nn.organ import init_weights, plain_forms
from morph.nn.router import Router
from tests.models import random_ids, relative_error, stage_model
from tests.tools import need

CLAMPED = ClampedGatedMLP(width=16)


def gpt_oss(**kw: object) -> MoE:
    """The mixture of gpt-oss, small."""
    fields: dict[str, object] = {"expert": CLAMPED, "n_experts": 8, "top_k": 3, "routed_scale": 1.0}
    return MoE(**fields | {"balance": AuxiliaryLoss(), "biases": ExpertBiases()} | kw)  # type: ignore[arg-type]


def drawn(organ: Experts | MixtureOfExperts) -> None:
    """Initial weights, biases moved off 0."""
    with torch.no_grad():
        init_weights(organ, 1)
        generator = torch.Generator().manual_seed(2)
        for name, parameter in organ.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))


def with_experts(**kw: object) -> ModelConfig:
    return replace(morph.stage("moe", "nano"), feed_forward=gpt_oss(**kw))


# ---- activations ----


def test_gelu_by_tanh_is_the_formula_and_near_the_exact_one() -> None:
    z = torch.linspace(-6, 6, 1201, dtype=torch.float64)
    formula = 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
    assert relative_error(ACTIVATIONS["gelu-tanh"](z), formula) < 1e-14
    apart = (ACTIVATIONS["gelu-tanh"](z) - ACTIVATIONS["gelu"](z)).abs().max()
    assert 1e-4 < float(apart) < 5e-4
    assert activation_rms("gelu-tanh") == pytest.approx(activation_rms("gelu"), rel=1e-3)


@torch.no_grad()
def test_a_network_with_gelu_by_tanh() -> None:
    config = morph.stage("gated-ffn", "nano")
    ffn = GatedMLP(width=128, activation="gelu-tanh")
    model = stage_model(replace(config, feed_forward=ffn), dtype=torch.float64)
    with morph.trace(model) as seen:
        model(random_ids(model, 1, 9))
    place = "blocks.1.feed_forward"
    hidden = ACTIVATIONS["gelu-tanh"](seen[f"{place}.preactivation"]) * seen[f"{place}.value"]
    assert relative_error(model.blocks[1].feed_forward.down(hidden), seen[f"{place}_delta"]) < 1e-12


# ---- clamped ----


def test_clamped_swiglu_number_by_number() -> None:
    """Below, inside and above the bounds: g σ(1.702 g) (u + 1), the gate clamped above alone."""
    cases = [(0.5, 0.25), (9.0, 0.25), (-9.0, 0.25), (0.5, 9.0), (0.5, -9.0), (9.0, -9.0)]
    for g, u in cases:
        gate, value = min(g, 7.0), max(-7.0, min(u, 7.0))
        expected = gate / (1 + math.exp(-1.702 * gate)) * (value + 1)
        found = clamped_swiglu(torch.tensor(g).double(), torch.tensor(u).double(), 7.0, 1.702)
        assert found.item() == pytest.approx(expected, rel=1e-14)
    assert clamped_swiglu(torch.tensor(-9.0), torch.tensor(1.0), 7.0, 1.702) != clamped_swiglu(
        torch.tensor(-7.0), torch.tensor(1.0), 7.0, 1.702
    ), "no bound below"


@pytest.mark.parametrize("record", [ClampedGatedMLP(width=32), ClampedGatedMLP(width=32, limit=0.7, alpha=1.0)])
@torch.no_grad()
def test_a_clamped_network_is_its_formula(record: ClampedGatedMLP) -> None:
    network = GatedNetwork(record, 48, bias=True)
    init_weights(network, 0)
    network = network.double()
    for bias in (network.gate.bias, network.up.bias, network.down.bias):
        bias.normal_(generator=torch.Generator().manual_seed(1))
    x = 3 * torch.randn(2, 9, 48, dtype=torch.float64)
    gate = (x @ network.gate.weight.T + network.gate.bias).clamp(max=record.limit)
    value = (x @ network.up.weight.T + network.up.bias).clamp(-record.limit, record.limit)
    hidden = gate / (1 + torch.exp(-record.alpha * gate)) * (value + 1)
    assert float((hidden.abs() > 0).double().mean()) > 0.9
    expected = hidden @ network.down.weight.T + network.down.bias
    context = Context(0, 9, None, torch.device("cpu"), torch.float64)
    assert relative_error(network(x, context), expected) < 1e-13


def test_what_leaves_the_two_halves_is_known_in_size() -> None:
    """Two normal halves, by numerical integration and by drawing them."""
    generator = torch.Generator().manual_seed(0)
    gate, value = torch.randn(2, 400_000, dtype=torch.float64, generator=generator)
    for record in (CLAMPED, ClampedGatedMLP(width=16, limit=0.5, alpha=3.0), GatedMLP(width=16, activation="silu")):
        sampled = meeting(record)(gate, value).square().mean().sqrt().item()
        assert meeting_rms(record) == pytest.approx(sampled, rel=0.01)


@torch.no_grad()
def test_without_bounds_and_with_one_taken_off_it_is_swiglu() -> None:
    """The relation that the fork states, on a whole model: u + 1 with the value's bias at -1."""
    fork = morph.fork("clamped-swiglu", "nano")
    ffn = replace(fork.feed_forward, limit=1e6, alpha=1.0)  # type: ignore[type-var]
    config = replace(fork, feed_forward=ffn, bias=True)
    base = stage_model(replace(morph.stage("gated-ffn", "nano"), bias=True), dtype=torch.float64)
    model = morph.build(config).double().eval()
    model.load_state_dict(base.state_dict())
    ids = random_ids(base, 2, 30)
    assert relative_error(model(ids), base(ids)) > 1e-2
    for block in model.blocks:
        block.feed_forward.up.bias.sub_(1)
    assert relative_error(model(ids), base(ids)) < 1e-12


# ---- experts with biases ----


@pytest.mark.parametrize("spec", [gpt_oss(), gpt_oss(expert=GatedMLP(width=16, activation="silu"))])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=["fp32", "bf16"])
@pytest.mark.parametrize("tokens", [1, 200])
def test_grouped_products_with_biases_equal_the_loop_and_its_gradients(
    spec: MoE, dtype: torch.dtype, bound: float, tokens: int
) -> None:
    experts = Experts(spec, 48)
    drawn(experts)
    experts = experts.to(dtype)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(tokens, 48, generator=generator).to(dtype).requires_grad_()
    chosen = torch.stack([torch.randperm(5, generator=generator)[:3] for _ in range(tokens)])  # 5 to 7 get nobody
    weights = torch.rand(tokens, 3, generator=generator).to(dtype).requires_grad_()
    target = torch.randn(tokens, 48, generator=generator).to(dtype)
    results = []
    for form in (experts.plain, experts.grouped):
        out = form(x, weights, chosen)
        results.append((out, *torch.autograd.grad((out * target).sum(), (x, weights, *experts.parameters()))))
    assert experts.can_group(x) and len(results[0]) == 9
    for plain, grouped in zip(*results, strict=True):
        assert relative_error(grouped.float(), plain.float()) < bound
    for gradient in results[1][3:]:
        assert float(gradient[5:].abs().max()) == 0, "an expert that nobody chose learns nothing"


@torch.no_grad()
def test_experts_with_biases_by_hand() -> None:
    """Token by token and expert by expert; the bias of the way down is weighted with the rest."""
    spec = gpt_oss(n_shared=1, shared_width=40, routed_scale=2.0)
    mixture = MixtureOfExperts(spec, 12)
    drawn(mixture)
    mixture = mixture.double().eval()
    x = torch.randn(1, 6, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    context = Context(0, 6, None, torch.device("cpu"), torch.float64)
    e, shared = mixture.experts, mixture.shared[0]
    assert e.gate_bias is not None and e.up_bias is not None and e.down_bias is not None
    assert mixture.router.logits.bias is not None
    expected = torch.zeros(6, 12, dtype=torch.float64)
    for t in range(6):
        logits = mixture.router.logits.weight @ x[0, t] + mixture.router.logits.bias
        best = logits.argsort(descending=True)[:3]
        for i, weight in zip(best.tolist(), 2.0 * logits[best].softmax(0), strict=True):
            gate, value = e.gate[i] @ x[0, t] + e.gate_bias[i], e.up[i] @ x[0, t] + e.up_bias[i]
            expected[t] += weight * (e.down[i] @ clamped_swiglu(gate, value, 7.0, 1.702) + e.down_bias[i])
        hidden = clamped_swiglu(shared.gate.weight @ x[0, t], shared.up.weight @ x[0, t], 7.0, 1.702)
        assert hidden.shape == (40,)
        expected[t] += shared.down.weight @ hidden
    assert relative_error(mixture(x, context)[0], expected) < 1e-13


@pytest.mark.parametrize("seed", [0, 1])
@torch.no_grad()
def test_clamped_experts_against_hugging_face(seed: int) -> None:
    need("transformers")
    from transformers import GptOssConfig
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts, GptOssTopKRouter

    config = GptOssConfig(hidden_size=48, intermediate_size=16, num_local_experts=8, num_experts_per_tok=3)
    config._experts_implementation = "eager"
    spec = gpt_oss()
    mixture = MixtureOfExperts(spec, 48)
    drawn(mixture)
    experts, router = GptOssExperts(config), GptOssTopKRouter(config)
    ours = mixture.experts
    assert ours.gate_bias is not None and ours.up_bias is not None and ours.down_bias is not None
    experts.gate_up_proj.copy_(torch.stack((ours.gate.mT, ours.up.mT), -1).flatten(-2))
    experts.gate_up_proj_bias.copy_(torch.stack((ours.gate_bias, ours.up_bias), -1).flatten(-2))
    experts.down_proj.copy_(ours.down.mT)
    experts.down_proj_bias.copy_(ours.down_bias)
    router.load_state_dict(mixture.router.logits.state_dict())
    x = 4 * torch.randn(1, 40, 48, generator=torch.Generator().manual_seed(seed))
    _, weights, chosen = router(x[0])
    assert float((x[0] @ ours.gate[0].T).max()) > 7, "the bounds are met"
    context = Context(0, 40, None, torch.device("cpu"), torch.float32)
    mine = mixture.router(x[0], context)
    assert torch.equal(mine[1], chosen) and relative_error(mine[0], weights) < 1e-6
    expected = experts(x[0], chosen, weights)
    for form in (ours.plain, ours.grouped):
        assert relative_error(form(x[0], *mine), expected) < 1e-6
    assert relative_error(mixture(x, context)[0], expected) < 1e-6


@pytest.mark.parametrize(("dtype", "has_break"), [(torch.float32, True), (torch.bfloat16, False)])
@pytest.mark.filterwarnings("default")
def test_experts_with_biases_keep_the_rules_of_compiling(dtype: torch.dtype, has_break: bool) -> None:
    """In bf16 they are part of the graph, in fp32 they stay outside; the numbers are those of the eager form."""
    torch._dynamo.reset()
    experts = Experts(gpt_oss(), 48)
    drawn(experts)
    experts = experts.to(dtype)
    x, weights = torch.randn(9, 48, dtype=dtype), torch.rand(9, 3, dtype=dtype)
    chosen = torch.arange(27).view(9, 3) % 8
    explained = torch._dynamo.explain(experts)(x, weights, chosen)
    assert (explained.graph_break_count > 0 or explained.op_count == 0) is has_break
    compiled = torch.compile(experts, backend="eager")(x, weights, chosen)
    assert torch.equal(compiled, experts.eager(x, weights, chosen))


def test_biases_of_experts_start_at_zero_and_are_counted() -> None:
    config = with_experts()
    model, plain = morph.build(config), morph.build(with_experts(biases=None))
    zeros = [p for name, p in model.named_parameters() if name.endswith("bias")]
    assert len(zeros) == 4 * 4 and all(float(p.detach().abs().max()) == 0 for p in zeros)
    ids = random_ids(model, 1, 20)
    plain.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model(ids), plain(ids))
    more = 4 * (8 + 8 * (16 + 16 + 48))
    assert morph.count(config).total - morph.count(plain.config).total == more
    assert morph.count(config).active.all - morph.count(plain.config).active.all == 4 * (8 + 3 * (16 + 16 + 48))


# ---- the laws, on models of these parts ----

MODELS = {
    "gpt-oss": with_experts(),
    "wide-shared": with_experts(biases=None, n_shared=2, shared_width=24, shared_gate=SharedGate()),
    "dense-first": replace(
        with_experts(),
        feed_forward=DenseFirst(n_dense=2, dense=ClampedGatedMLP(width=40), experts=gpt_oss(n_shared=1)),
    ),
}
EACH = pytest.mark.parametrize("config", MODELS.values(), ids=MODELS)


@EACH
@torch.no_grad()
def test_they_keep_the_laws_of_every_model(config: ModelConfig) -> None:
    """Files, counts, FLOPs, the cache, and both forms."""
    assert ModelConfig.from_toml(config.to_toml()) == config == ModelConfig.from_dict(config.to_dict())
    model = stage_model(config, dtype=torch.float64)
    assert morph.count(config).total == sum(p.numel() for p in model.parameters())
    ids, lengths = random_ids(model, 2, 45), torch.tensor([45, 20])
    full, cache = model(ids), model.new_cache(2)
    parts = [model(part, cache=cache) for part in ids.split((19, 1, 25), dim=1)]
    assert relative_error(torch.cat(parts, dim=1), full) < 1e-12
    assert relative_error(model(ids, lengths=lengths)[1, 25:], model(ids[1:, 25:])[0]) < 1e-12
    with plain_forms():
        assert relative_error(model(ids), full) < 1e-12
    fast, counter = model.float()(ids), FlopCounterMode(display=False)
    assert relative_error(fast.double(), full) < 3e-5
    with counter, plain_forms():
        model(ids[:1])
    flops = morph.count(config).flops(45)
    assert counter.get_total_flops() == flops.linear + flops.head + flops.scores_dense
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(ids).double()
    assert float(torch.nn.functional.cosine_similarity(rough, full, dim=-1).median()) > 0.999


@EACH
def test_all_of_them_learns(config: ModelConfig) -> None:
    model = stage_model(config).train()
    ids = random_ids(model, 4, 64)
    model.loss(ids[:, :-1], ids[:, 1:]).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and float(parameter.grad.abs().max()) > 1e-6, name


def test_shared_experts_of_their_own_width() -> None:
    config = MODELS["wide-shared"]
    moe = config.moe
    assert moe is not None and moe.width_of_shared == 24 and moe.active_width == 3 * 16 + 2 * 24
    model = morph.build(config)
    shapes = {tuple(p.shape) for name, p in model.named_parameters() if ".shared." in name}
    assert shapes == {(24, 48), (48, 24)}
    same = replace(moe, shared_width=16)
    plain = replace(moe, shared_width=None)
    assert same.active_width == plain.active_width and same.width_of_shared == plain.width_of_shared == 16
    ids = random_ids(model, 1, 12)
    alike = [morph.build(replace(config, feed_forward=spec))(ids) for spec in (same, plain)]
    assert torch.equal(*alike)


def test_a_layer_of_shared_width_starts_with_the_size_of_one_network() -> None:
    """However it is cut, what a layer writes at first has the size that a dense one writes."""

    def size(config: ModelConfig) -> float:
        model: Decoder = morph.build(config)
        with morph.trace(model) as seen, torch.no_grad():
            model(random_ids(model, 2, 64))
        return float(seen["blocks.1.feed_forward_delta"].square().mean().sqrt())

    dense = size(replace(morph.stage("moe", "nano"), feed_forward=ClampedGatedMLP(width=128)))
    for shared in (8, 16, 64):
        spec = gpt_oss(biases=None, n_shared=1, shared_width=shared, routed_scale=3.0)
        config = replace(morph.stage("moe", "nano"), feed_forward=spec)
        assert 0.6 < size(config) / dense < 1.6
        # Routed or shared, all are slices of one network of the active width.
        drawn = morph.build(config).blocks[1].feed_forward
        whole = spec.active_width**-0.5 / meeting_rms(CLAMPED)
        for way_down in (drawn.experts.down, drawn.shared[0].down.weight):
            assert float(way_down.detach().std()) == pytest.approx(whole, rel=0.12)


# ---- refusals ----


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ClampedGatedMLP(width=0), r"clamped-gated-mlp\.width = 0 is below 1"),
        (lambda: ClampedGatedMLP(width=8, limit=0), r"clamped-gated-mlp\.limit = 0 must be a finite number above 0"),
        (lambda: ClampedGatedMLP(width=8, alpha=math.inf), r"clamped-gated-mlp\.alpha = inf must be a finite number"),
        (lambda: GatedMLP(width=8, activation="gelu-tan"), r"gated-mlp\.activation = 'gelu-tan'.*mean 'gelu-tanh'"),  # type: ignore[arg-type]
        (lambda: gpt_oss(shared_width=0), r"moe\.shared_width = 0 is below 1"),
        (lambda: gpt_oss(shared_width=1.5), r"moe\.shared_width = 1\.5 is not a whole number"),
        (lambda: gpt_oss(biases=True), r"moe\.biases = True is not one of: expert-biases"),
        (lambda: gpt_oss(balance=ExpertBiases()), r"moe\.balance = .* is not one of"),
        (lambda: gpt_oss(shared_gate=SharedGate()), r"moe\.shared_gate has no shared expert"),
        (lambda: gpt_oss(shared_width=8), r"moe\.shared_width = 8 has no shared expert"),
    ],
)
def test_impossible_records_are_refused(make: object, message: str) -> None:
    with pytest.raises(MorphError, match=message):
        make()  # type: ignore[operator]


def test_a_change_of_a_gated_network_needs_one() -> None:
    with pytest.raises(MorphError, match=r"feed_forward is 'mlp', and this change is one of 'gated-mlp'"):
        morph.FORKS["clamped-swiglu"].apply(morph.stage("silu"), None)  # type: ignore[arg-type]


def test_a_router_without_biases_has_none() -> None:
    router = MixtureOfExperts(gpt_oss(biases=None, balance=NoBalance()), 48).router
    assert isinstance(router, Router) and router.logits.bias is None
    assert MixtureOfExperts(gpt_oss(), 48).router.logits.bias is not None


def test_what_experts_say_is_seen_with_their_biases() -> None:
    model = stage_model(MODELS["gpt-oss"])
    outputs: list[Tensor] = []
    for plain in (False, True):
        with torch.no_grad(), morph.trace(model) as seen:
            ids = random_ids(model, 1, 9)
            if plain:
                with plain_forms():
                    model(ids)
            else:
                model(ids)
        place = "blocks.0.feed_forward"
        weights = seen[f"{place}.router.weights"][..., None]
        routed = (seen[f"{place}.experts.parts"] * weights).sum(1)
        assert relative_error(routed, seen[f"{place}.routed"][0]) < 1e-5
        outputs.append(seen[f"{place}.experts.parts"])
    assert relative_error(*outputs) < 1e-5
