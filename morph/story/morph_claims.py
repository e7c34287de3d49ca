"""What each frame of figure 1 asserts of its numbers, by the number of its step."""

from __future__ import annotations

from typing import Any

from morph.story.frame import Claim, Frame


def _change(frame: Frame, name: str) -> int:
    values = frame.values(name)
    return int(values[-1] - values[-2])


def _same(frame: Frame, *names: str) -> bool:
    return all(_change(frame, name) == 0 for name in names)


def _at(frame: Frame, path: str) -> Any:
    value: Any = frame.facts["config"]
    for name in path.split("."):
        value = value[name]
    return value


def _router(frame: Frame, experts: int) -> int:
    """Parameters of the routers' rows for `experts` experts, all layers."""
    return int(_at(frame, "n_layers") * _at(frame, "d_model") * experts)


def _local_share(frame: Frame) -> int:
    return int(_at(frame, "layout.n_local")) + 1


CLAIMS: dict[int, Claim] = {
    0: Claim(
        text="Every parameter is active.",
        holds=lambda f: bool(f.values("parameters_total")[-1] == f.values("parameters_active")[-1]),
    ),
    1: Claim(
        text="One LayerNorm more, before the head, and nothing else.",
        holds=lambda f: _change(f, "parameters_total") == 2 * _at(f, "d_model"),
    ),
    2: Claim(
        text="One shift fewer for each of the 2L + 1 norms.",
        holds=lambda f: _change(f, "parameters_total") == -(2 * _at(f, "n_layers") + 1) * _at(f, "d_model"),
    ),
    3: Claim(
        text="Parameters go; the cache stays.",
        holds=lambda f: _change(f, "parameters_total") < 0 and _same(f, "kv_bytes_per_token", "cache_bytes"),
    ),
    4: Claim(
        text="No parameter and no byte of the cache comes or goes.",
        holds=lambda f: _same(f, "parameters_total", "kv_bytes_per_token", "cache_bytes"),
    ),
    5: Claim(
        text="No parameter comes or goes.",
        holds=lambda f: _same(f, "parameters_total", "parameters_active", "kv_bytes_per_token"),
    ),
    6: Claim(
        text="The parameter count stays to the digit.",
        holds=lambda f: _same(f, "parameters_total", "parameters_active"),
    ),
    7: Claim(
        text="Key-value bytes shrink by n_heads / n_kv_heads.",
        holds=lambda f: bool(
            f.values("kv_bytes_per_token")[-1] * _at(f, "attention.n_heads")
            == f.values("kv_bytes_per_token")[-2] * _at(f, "attention.n_kv_heads")
        ),
    ),
    8: Claim(
        text="Two gains of a head's width in every layer; the cache stays.",
        holds=lambda f: (
            _change(f, "parameters_total") == 2 * _at(f, "n_layers") * _at(f, "attention.head_dim")
            and _same(f, "kv_bytes_per_token", "cache_bytes")
        ),
    ),
    9: Claim(
        text="The cache shrinks, the parameters stay.",
        holds=lambda f: _change(f, "cache_bytes") < 0 and _same(f, "parameters_total"),
    ),
    10: Claim(
        text="The total grows, the active parameters only by the router.",
        holds=lambda f: (
            _change(f, "parameters_total") > _change(f, "parameters_active")
            and _change(f, "parameters_active") == _router(f, _at(f, "feed_forward.n_experts"))
        ),
    ),
    11: Claim(
        text="Total and active grow by the router's new rows only.",
        holds=lambda f: (
            _change(f, "parameters_total") == _change(f, "parameters_active") == _router(f, 3 * 8)
            and _at(f, "feed_forward.n_experts") == 4 * 8
        ),
    ),
    12: Claim(
        text="Active parameters stay; the total grows by one expert a layer.",
        holds=lambda f: (
            _same(f, "parameters_active")
            and _change(f, "parameters_total")
            == 3 * _at(f, "n_layers") * _at(f, "d_model") * _at(f, "feed_forward.expert.width")
        ),
    ),
    13: Claim(
        text="No trained parameter comes or goes.",
        holds=lambda f: _same(f, "parameters_total", "parameters_active", "kv_bytes_per_token", "cache_bytes"),
    ),
    14: Claim(
        text="Only one layer in four still writes keys and values for every token.",
        holds=lambda f: bool(
            f.values("kv_bytes_per_token")[-1] * _local_share(f) == f.values("kv_bytes_per_token")[-2]
        ),
    ),
}
