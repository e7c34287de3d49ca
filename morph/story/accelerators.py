"""What chips are built for: operations a second, bytes a second, bytes of memory, as their makers publish them.

Peaks are for bf16 matrix products without sparsity; makers that print sparse ones double them. A chip that does `flops`
and reads `bandwidth` a second is busy from flops / bandwidth operations a byte on, its ridge point (Williams et al.,
Roofline, 2009). Peaks are not reached in practice; ratios of peaks say which limit comes first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One chip.

    Attributes:
        year: of its announcement.
        flops: bf16 operations a second, dense.
        bandwidth: bytes a second from its memory.
        memory: bytes of it, as printed: a GB is 10⁹ bytes.
        source: where that is published.
    """

    year: int
    flops: float
    bandwidth: float
    memory: float
    source: str

    @property
    def ridge(self) -> float:
        """Operations for each byte read, from which on arithmetic is the limit."""
        return self.flops / self.bandwidth


ACCELERATORS: dict[str, Accelerator] = {
    "A100": Accelerator(
        year=2020, flops=312e12, bandwidth=2.039e12, memory=80e9,
        source="NVIDIA, A100 80GB Tensor Core GPU data sheet, SXM",
    ),
    "H100": Accelerator(
        year=2022, flops=989.4e12, bandwidth=3.35e12, memory=80e9,
        source="NVIDIA, H100 Tensor Core GPU data sheet, SXM; dense rate in the Hopper architecture white paper",
    ),
    "MI300X": Accelerator(
        year=2023, flops=1307.4e12, bandwidth=5.3e12, memory=192e9, source="AMD, Instinct MI300X data sheet",
    ),
    "H200": Accelerator(
        year=2023, flops=989.4e12, bandwidth=4.8e12, memory=141e9,
        source="NVIDIA, H200 Tensor Core GPU data sheet, SXM",
    ),
    "B200": Accelerator(
        year=2024, flops=2250e12, bandwidth=8e12, memory=180e9,
        source="NVIDIA, DGX B200 data sheet, an eighth of the system; dense is half of the sparse rate",
    ),
}  # fmt: skip
"""Name -> chip, in order of the years."""
