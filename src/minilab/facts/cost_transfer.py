"""What moving bytes costs: a transfer between two GPUs, and an all-reduce among several."""

from __future__ import annotations

from minilab.facts.errors import InputError
from minilab.facts.hardware import Link

DESCRIPTOR_SECONDS = 1e-6
"""Seconds per descriptor (one contiguous piece): a prior of RDMA order, not a measurement."""


def transfer_seconds(
    nbytes: float, link: Link, descriptors: int = 0, alpha: float = DESCRIPTOR_SECONDS
) -> float:
    """Seconds to move ``nbytes`` over an idle ``link``.

    ``link.latency + alpha * descriptors + nbytes / bandwidth``; nothing costs nothing. KV that
    lies in scattered blocks needs one descriptor per block and layer, which can outweigh the bytes.
    """
    if nbytes < 0 or descriptors < 0:
        raise InputError(f"transfer of {nbytes} bytes, {descriptors} descriptors; give 0 or more")
    if nbytes == 0 and descriptors == 0:
        return 0.0
    return link.latency + alpha * descriptors + nbytes / link.bandwidth


def all_reduce_seconds(
    nbytes: float, tp: int, link: Link, t_ar: float = 20e-6, e_link: float = 0.15
) -> float:
    """Seconds of one all-reduce of ``nbytes`` per GPU among ``tp``; 0 for one GPU.

    ``t_ar + nbytes / (bandwidth * e_link)``, latency and bytes added. The defaults are those of
    Constants; the ring's 2 * (tp - 1) / tp is part of ``e_link``.
    """
    if tp < 1:
        raise InputError(f"tp is {tp}; give a whole number of GPUs, 1 or more")
    if tp == 1:
        return 0.0
    return t_ar + nbytes / (link.bandwidth * e_link)
