"""The calls with which a contract's function is tested."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from generator.plan import variant_rules
from generator.plan.kernels import Kernel
from generator.verify.case_sizes import Case, Fit
from generator.verify.cases import smallest_row

#: Sizes (M, N, K) at which operands that descriptors cannot address are copied; no size is a multiple of 16.
_COPIED = (401, 403, 203)


def contract_cases(kernels: Sequence[Kernel], *, hardware: bool) -> Iterator[tuple[Kernel, Case]]:
    """Calls of one contract's function, each with a kernel of the contract that supports it.

    On hardware the function caches its launches by call signature, so that each call is made again.
    """
    for kernel, case in _calls(kernels, hardware):
        yield kernel, case
        if hardware:
            reason = "a call with the same signature as the one before, which reuses its launch"
            yield kernel, replace(case, name=f"{case.name}-again", reason=reason)


def _calls(kernels: Sequence[Kernel], hardware: bool) -> Iterator[tuple[Kernel, Case]]:
    largest = max(kernels, key=lambda kernel: kernel.variant.traits.looped)
    tiles = [tile for kernel in kernels for tile in kernel.tiles if kernel.variant.schedule == largest.variant.schedule]
    sizes = (max(t.m for t in tiles), max(t.n for t in tiles), max(t.k for t in tiles))
    if not largest.variant.traits.tiled:
        sizes = Fit(largest.variant, tiles[0]).primes
    yield (
        largest,
        Case("aligned", "whole tiles of every kernel, which every kernel supports", sizes, None, given_out=False),
    )
    anything = [
        kernel
        for kernel in kernels
        if False not in variant_rules.ragged(kernel.variant.masking).values() and not kernel.variant.loading.descriptors
    ]
    if not anything:
        return
    if hardware:
        reason = "the sizes of the call before at other addresses, for which its cached launch is not compiled"
        yield anything[0], Case("unaligned", reason, sizes, None, unaligned=True, given_out=False)
    fit = Fit(anything[0].variant, anything[0].tiles[smallest_row(anything[0])])
    yield (
        anything[0],
        Case(
            "fallback",
            "sizes and addresses that only some kernels of the contract support",
            fit(*fit.primes),
            None,
            padded=True,
            unaligned=True,
        ),
    )
    if anything[0].variant.batch == "strided":
        reason = "one matrix for the whole batch, which only some kernels of the contract support"
        yield anything[0], Case("fallback-repeats", reason, sizes, None, repeated="b")
    if hardware and anything[0].variant.traits.tiled:
        m, n, k = fit(*fit.primes)
        plain = Case("row", "A is a vector, which matches two layouts", fit(1, n, k), None, given_out=False)
        yield anything[0], plain
        yield anything[0], replace(plain, name="column", reason="B is a vector, likewise", sizes=fit(m, 1, k))
        reason = "operands that descriptors cannot address, and whose elements enter many products"
        yield (
            anything[0],
            replace(plain, name="copied", reason=reason, sizes=fit(*_COPIED), padded=True, unaligned=True),
        )
