"""The decoder block as a list of organs with names and numbers, read off a config: what the diagrams draw."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from morph.config import (
    MLA,
    MLP,
    Alibi,
    Attention,
    ClampedGatedMLP,
    DenseFirst,
    GatedDeltaNet,
    InLayer,
    Interleaved,
    KimiDelta,
    LearnedPosition,
    Lightning,
    Listed,
    LogitCap,
    LogitScale,
    ModelConfig,
    MoE,
    OutputGate,
    PerLayer,
    Position,
    QKNorm,
    Rotary,
    Sinusoid,
    SlidingWindow,
    Spec,
    State,
)

NORMS = ("attention.norm", "feed_forward.norm", "final_norm")
MOE = ("feed_forward", "feed_forward.router", "feed_forward.balance")

TOUCHED: dict[str, tuple[str, ...]] = {
    "placement": NORMS,
    "norm": NORMS,
    "bias": ("attention.bias", "feed_forward.bias"),
    "position": ("position.added", "attention.rope"),
    "attention": ("attention", "attention.qk_norm"),
    "attention.n_kv_heads": ("attention",),
    "attention.indexer": ("attention.indexer",),
    "attention.qk_norm": ("attention.qk_norm",),
    "attention.sink": ("attention.sink",),
    "attention.gate": ("attention.gate",),
    "attention.softcap": ("attention.softcap",),
    "attention.qkv_bias": ("attention.qkv_bias",),
    "layout": ("attention.mask",),
    "layout.local": ("attention", "attention.mask"),
    "feed_forward": MOE,
    "feed_forward.activation": ("feed_forward",),
    "feed_forward.expert.width": ("feed_forward",),
    "feed_forward.n_experts": ("feed_forward", "feed_forward.router"),
    "feed_forward.top_k": ("feed_forward", "feed_forward.router"),
    "feed_forward.routed_scale": ("feed_forward.router",),
    "feed_forward.n_shared": ("feed_forward.shared",),
    "feed_forward.shared_gate": ("feed_forward.shared",),
    "feed_forward.router": ("feed_forward.router",),
    "feed_forward.balance": ("feed_forward.balance",),
    "tied": ("head",),
    "embedding_scale": ("embedding",),
    "logits": ("head",),
    "dropout": ("dropout",),
    "mtp": ("mtp",),
}
"""Config path -> the organs that may look different when it changes, and no others."""


WHERE = {
    "post": "on the stream",
    "pre": "on the branch",
    "sandwich": "on both ends of the branch",
    "depth-scaled-sandwich": "on both ends, gain 1/√L",
    "post-branch": "after the branch",
    "parallel": "one for both branches",
    "by-mixer": "before states, after softmax",
    "on-normed-stream": "on the stream, before a branch",
}
"""Where a sublayer's norms stand, in words, for each placement."""


NAMES = {
    "layer-norm": "LayerNorm",
    "rms-norm": "RMSNorm",
    "layer-norm-no-bias": "LayerNorm, no shift",
    "zero-centred-rms-norm": "RMSNorm, 1 + w",
}
"""Kind of norm -> its name."""


ACTIVATIONS = {
    "relu": "ReLU",
    "silu": "SiLU",
    "gelu": "GELU",
    "gelu-tanh": "GELU (tanh)",
    "relu-squared": "ReLU²",
    "clamped": "clamped SiLU",
}
"""Activation -> its name."""


@dataclass(frozen=True)
class Organ:
    """One part of the block.

    Attributes:
        key: dotted; the part before the dot is the sublayer it belongs to.
        role: its colour in `morph.story.palette`.
        label: its name.
        detail: what a reader should know of it, in a few words ("" when the name says it).
        data: the numbers a drawing needs.
    """

    key: str
    role: str
    label: str
    detail: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The organ as JSON values."""
        return asdict(self)


def organs(config: ModelConfig) -> tuple[Organ, ...]:
    """The organs of `config`'s blocks and of its two ends, from the input up."""
    return (
        *_embedding(config), *_position(config), *_attention(config), *_feed_forward(config), *_dropout(config),
        *_final_norm(config), *_head(config),
    )  # fmt: skip


def touched(paths: tuple[str, ...]) -> set[str]:
    """The organs that a change of these config paths may touch."""
    found: set[str] = set()
    for path in paths:
        while path not in TOUCHED and "." in path:  # a field of a record that is listed as a whole
            path = path.rpartition(".")[0]
        found |= {*TOUCHED[path]}
    return found


def _norm(config: ModelConfig, key: str, where: str) -> Organ:
    return Organ(key, "norm", NAMES.get(config.norm.kind, config.norm.kind), where)


def _sublayer_norm(config: ModelConfig, key: str) -> Organ:
    everywhere = {config.placement_in(layer) for layer in range(config.n_layers)}
    return _norm(config, key, WHERE[everywhere.pop() if len(everywhere) == 1 else config.placement])


def _final_norm(config: ModelConfig) -> tuple[Organ, ...]:
    return (_norm(config, "final_norm", "before the head"),) if config.placement != "post" else ()


def _embedding(config: ModelConfig) -> tuple[Organ, ...]:
    """Worth a word where it is not the table times √D."""
    if config.embedding_scale is None:
        return ()
    how = "rows as they are" if config.embedding_scale == 1 else f"rows times {config.embedding_scale:g}"
    return (Organ("embedding", "position", "Embedding", how),)


def _dropout(config: ModelConfig) -> tuple[Organ, ...]:
    if config.dropout is None:
        return ()
    detail = f"{config.dropout.rate:.0%} of what is added, in training"
    return (Organ("dropout", "ffn", "Dropout", detail, {"rate": config.dropout.rate}),)


def _head(config: ModelConfig) -> tuple[Organ, ...]:
    """Worth a word where it is not the embedding's transpose alone."""
    words = [] if config.tied else ["a matrix of its own"]
    if isinstance(config.logits, LogitScale):
        words.append(f"logits times {config.logits.scale:g}")
    if isinstance(config.logits, LogitCap):
        words.append(f"logits within ± {config.logits.cap:g}")
    head = (Organ("head", "ffn", "Head", ", ".join(words)),) if words else ()
    if config.mtp is None:
        return head
    depth = config.mtp.depth
    more = f"{depth} more token{'s' * (depth > 1)}, a block each"
    return (*head, Organ("mtp", "ffn", "Later tokens", more, {"depth": depth}))


def _bias(config: ModelConfig, key: str, role: str) -> tuple[Organ, ...]:
    return (Organ(key, role, "+ bias", "on every matrix"),) if config.bias else ()


def _position(config: ModelConfig) -> tuple[Organ, ...]:
    if isinstance(config.position, Sinusoid | LearnedPosition):
        label = "+ sinusoid" if isinstance(config.position, Sinusoid) else "+ learned row"
        return (Organ("position.added", "position", label, "added once, to the embedding"),)
    return ()


ROTATIONS = {
    "rope": "turns q and k",
    "partial-rope": "turns a part of q and k",
    "linear-rope": "turns q and k slower",
    "ntk-rope": "turns by a larger base",
    "yarn": "YaRN: slow pairs slower",
    "llama3-rope": "long waves longer",
}
"""Kind of rotation -> what it does, in a few words."""


def _in_layers(config: ModelConfig) -> tuple[Organ, ...]:
    """What every softmax layer does about places."""
    position = config.position
    if isinstance(position, PerLayer):
        detail = f"local {_how(position.local)}, global {_how(position.global_)}"
        known: Position = position.local if isinstance(position.local, Rotary | Alibi) else position.global_
    elif isinstance(position, Rotary):
        detail, known = ROTATIONS[position.kind], position
    else:
        detail, known = "lowers scores by distance", position
    if not isinstance(known, Rotary | Alibi):
        return ()
    return (Organ("attention.rope", "position", "ALiBi" if isinstance(known, Alibi) else "RoPE", detail),)


def _how(position: InLayer) -> str:
    if isinstance(position, Rotary):
        return f"base {position.base:g}"
    return "ALiBi" if isinstance(position, Alibi) else "none"


def _attention(config: ModelConfig) -> tuple[Organ, ...]:
    attention = config.attention
    if isinstance(attention, MLA):
        shared, extras = f"latents of {attention.kv_rank}", _indexer(attention)
        heads = {"query": attention.n_heads, "key_value": attention.n_heads}
    else:
        shared, extras = f"{attention.n_kv_heads} KV heads", _extras(attention)
        heads = {"query": attention.n_heads, "key_value": attention.n_kv_heads}
    local = config.layout.local if isinstance(config.layout, Interleaved | Listed) else None
    name, of = (f"{STATES[type(local)]} and attention", "softmax: ") if isinstance(local, State) else ("Attention", "")
    return (
        _sublayer_norm(config, "attention.norm"),
        Organ(
            "attention", "attention", name, f"{of}{attention.n_heads} query, {shared}", heads,
        ),
        *_bias(config, "attention.bias", "attention"),
        *_in_layers(config),
        *extras,
        _mask(config),
    )  # fmt: skip


def _indexer(attention: MLA) -> tuple[Organ, ...]:
    """What chooses the tokens that latent attention reads."""
    if attention.indexer is None:
        return ()
    return (Organ("attention.indexer", "attention", "Indexer", f"chooses {attention.indexer.top_k} tokens a query"),)


def _extras(attention: Attention) -> tuple[Organ, ...]:
    """What a softmax layer may have besides."""
    found = []
    if attention.qk_norm:
        found.append(Organ("attention.qk_norm", "norm", "QK-norm", _qk_norm(attention.qk_norm)))
    if attention.sink:
        found.append(Organ("attention.sink", "attention", "Sink", "a logit per head, no value"))
    if attention.gate:
        each = "feature" if isinstance(attention.gate, OutputGate) else "head"
        found.append(Organ("attention.gate", "attention", "Gate", f"a sigmoid for each {each} of the output"))
    if attention.softcap:
        found.append(Organ("attention.softcap", "attention", "Soft cap", f"scores within ± {attention.softcap.cap:g}"))
    if attention.qkv_bias:
        found.append(Organ("attention.qkv_bias", "attention", "+ bias", "on q, k and v"))
    return tuple(found)


def _qk_norm(spec: QKNorm) -> str:
    where = {"full-width-rms-norm": "on q and k, across heads", "zero-centred-rms-norm": "on q and k, 1 + w"}
    return where.get(spec.kind, "on q and k")


STATES: dict[type[Spec], str] = {GatedDeltaNet: "DeltaNet", KimiDelta: "KDA", Lightning: "Lightning"}
"""Kind of mixer with a state -> its name."""


def _mask(config: ModelConfig) -> Organ:
    """One period of layers (all of them when the model has fewer), each "full", "window" or "state"."""
    layout = config.layout
    period = min(layout.n_local + 1 if isinstance(layout, Interleaved) else 4, config.n_layers)
    mixers = [config.mixer(layer) for layer in range(period)]
    windows = [mixer.window for mixer in mixers if isinstance(mixer, SlidingWindow)]
    states = [mixer for mixer in mixers if isinstance(mixer, State)]
    full = period - len(windows) - len(states)
    kinds: dict[type[Spec], str] = {SlidingWindow: "window", **dict.fromkeys(STATES, "state")}
    data: dict[str, Any] = {"layers": [kinds.get(type(mixer), "full") for mixer in mixers], "seen": 1.0}
    if states:
        name = STATES[type(states[0])]
        return Organ("attention.mask", "attention", "State and mask", f"{len(states)} {name}, {full} softmax", data)
    if not windows:
        return Organ("attention.mask", "attention", "Causal mask", "every layer sees all", data)
    data["seen"] = min(1.0, windows[0] / config.context_length)
    detail = f"{len(windows)} see {windows[0]} tokens, {full} all" if full else f"every layer sees {windows[0]} tokens"
    return Organ("attention.mask", "attention", "Causal masks", detail, data)


ROUTERS = {
    "softmax-router": "Router",
    "switch-router": "Switch router",
    "sigmoid-router": "Sigmoid router",
    "group-limited-router": "Grouped router",
}
"""Kind of router -> its name."""

BALANCES = {
    "auxiliary-loss": ("Auxiliary loss", "in the objective"),
    "selection-bias": ("Selection bias", "moved by the load"),
    "no-balance": ("No balancing", "load as it falls"),
}
"""Kind of balancing -> its name, and how it works in a few words."""


def _feed_forward(config: ModelConfig) -> tuple[Organ, ...]:
    ffn, norm = config.feed_forward, _sublayer_norm(config, "feed_forward.norm")
    bias = _bias(config, "feed_forward.bias", "ffn")
    first = f", {ffn.n_dense} layer dense" if isinstance(ffn, DenseFirst) else ""
    if isinstance(ffn, DenseFirst):
        ffn = ffn.experts
    if not isinstance(ffn, MoE):
        kind, matrices = ("plain", "two") if isinstance(ffn, MLP) else ("gated", "three")
        activation = "clamped" if isinstance(ffn, ClampedGatedMLP) else ffn.activation
        name = ACTIVATIONS[activation]
        data = {"kind": kind, "activation": activation, "width": ffn.width, "d_model": config.d_model}
        detail = f"{matrices} matrices of width {ffn.width}, {name}"
        return (norm, Organ("feed_forward", "ffn", "Feed-forward", detail, data), *bias)
    data = {"kind": "experts", "experts": ffn.n_experts, "chosen": ffn.top_k, "width": ffn.expert.width}
    balanced, how = BALANCES[ffn.balance.kind]
    when = "times a gate" if ffn.shared_gate else "always on"
    shared = Organ("feed_forward.shared", "ffn", f"{ffn.n_shared} shared", when, {"experts": ffn.n_shared})
    return (
        norm,
        Organ(
            "feed_forward", "ffn", "Mixture of experts", f"{ffn.n_experts} experts of width {ffn.expert.width}{first}",
            data,
        ),
        Organ("feed_forward.router", "ffn", ROUTERS[ffn.router.kind], f"top {ffn.top_k} of {ffn.n_experts}"),
        *([shared] if ffn.n_shared else []),
        Organ("feed_forward.balance", "ffn", balanced, how),
        *bias,
    )  # fmt: skip
