"""How far a token hears: which inputs move its stream, and how much, found by differentiation.

A mask says what one layer may read. What a stack of layers can read is a matter of paths, and a gradient follows all of
them: d x_l[t] / d x_0[s] is exactly zero when no path leads from s to t in l layers, since a masked weight is exactly
zero and so is all that is multiplied by it.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from morph.errors import MorphError
from morph.model import Decoder
from morph.nn.organ import plain_forms


def reach(model: Decoder, ids: Int[Tensor, "1 S"], token: int = -1) -> Float[Tensor, "depths S"]:
    """Norms of the gradient of one token's stream after 0, 1 .. all layers to each token's embedding.

    The stream is projected on a random unit vector first. Its gradient has as many entries as the model is wide, so
    that none of them differs from zero by chance is as good as impossible in fp64. (In fp32 the weakest paths may
    underflow: `model.double()` first.)

    Args:
        model: its organs run in their plain forms.
        ids: one text.
        token: whose stream.

    Raises:
        MorphError: for more than one text.
    """
    if len(ids) != 1:
        raise MorphError(f"ids hold {len(ids)} texts; give one, of shape (1, S)")
    streams: list[Tensor] = []

    def start(_: object, __: object, out: Tensor) -> Tensor:
        streams.append(out.detach().requires_grad_())
        return streams[0]

    hooks = [model.embedding.register_forward_hook(start)]
    hooks += [block.register_forward_hook(lambda _, __, out: streams.append(out)) for block in model.blocks]
    try:
        with torch.enable_grad(), plain_forms():
            model(ids)
    finally:
        for hook in hooks:
            hook.remove()
    probe = torch.randn(model.config.d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    probe = (probe / probe.norm()).to(streams[0])
    rows = [torch.autograd.grad(x[0, token] @ probe, streams[0], retain_graph=True)[0] for x in streams]
    return torch.stack([row[0].norm(dim=-1) for row in rows]).detach()
