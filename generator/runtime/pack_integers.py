"""Weights of 4 and 8 bits in the formats of AWQ, GPTQ, compressed-tensors and torchao."""

from __future__ import annotations

import torch
from torch import Tensor

from .pack import FLOATS, Stored, as_b, check, check_rows, scale_shape, stored_by, tiled


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor, name: str) -> dict[str, Tensor]:
    """AWQ, version "gemm": int32 `qweight` (K, N/8) and `qzeros` (K/g, N/8), `scales` (K/g, N).

    The eight elements of a word, the lowest bits first, are its columns 0, 2, 4, 6, 1, 3, 5, 7.
    """
    stored = stored_by(name, "from_awq", ("int4", "uint4"))
    check("qweight", qweight, (torch.int32,), stored)
    *batch, K, words = qweight.shape
    groups = scale_shape((*batch, K, 8 * words), stored.block)[-2]
    check("qzeros", qzeros, (torch.int32,), stored, (*batch, groups, words))
    columns = [0, 4, 1, 5, 2, 6, 3, 7]
    codes, zeros = [_codes(x, 4).reshape(*x.shape, 8)[..., columns].flatten(-2) for x in (qweight, qzeros)]
    return _affine(codes, "scales", scales, zeros, stored, name)


def from_gptq(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    name: str,
    *,
    g_idx: Tensor | None = None,
    checkpoint_format: str = "gptq",
) -> dict[str, Tensor]:
    """GPTQ: int32 `qweight` (K/8, N) and `qzeros` (K/g, N/8), `scales` (K/g, N); with 8 bits K/4 and N/4.

    A `checkpoint_format` of "gptq" stores zero points minus one, of which its writer subtracts whole words: a zero
    point of 0 borrows from the next one. "gptq_v2" stores them as they are. `g_idx` (K,) is the group of each k;
    groups in an order of K by activations ("act-order", `desc_act`) are refused.
    """
    stored = stored_by(name, "from_gptq", ("int4", "uint4", "int8"))
    if checkpoint_format not in ("gptq", "gptq_v2"):
        raise ValueError(f"checkpoint_format must be gptq or gptq_v2, got {checkpoint_format!r}")
    check("qweight", qweight, (torch.int32,), stored)
    bits = stored.element.bits
    codes = _codes(qweight.mT, bits).mT
    *batch, K, N = codes.shape
    groups = scale_shape(codes.shape, stored.block)[-2]
    check("qzeros", qzeros, (torch.int32,), stored, (*batch, groups, -(-N * bits // 32)))
    _check_groups("g_idx", g_idx, K, stored.block[0] or K)
    ones = 0x11111111 if bits == 4 else 0x01010101
    zeros = _codes(qzeros + ones if checkpoint_format == "gptq" else qzeros, bits)[..., :N]
    return _affine(codes, "scales", scales, zeros, stored, name)


def from_compressed_tensors(
    weight_packed: Tensor,
    weight_scale: Tensor,
    name: str,
    *,
    weight_zero_point: Tensor | None = None,
    weight_shape: Tensor | tuple[int, ...] | None = None,
    weight_g_idx: Tensor | None = None,
) -> dict[str, Tensor]:
    """compressed-tensors, format "pack-quantized": int32 `weight_packed` (N, K/8), with 8 bits (N, K/4).

    Elements are signed, stored plus 8 (with 8 bits plus 128), the lowest bits first. `weight_scale` is (N, K/g).
    `weight_zero_point` is int8 (N, K/g), or packed as int32 (N/8, K/g). `weight_shape` (N, K) is needed if K does not
    fill the words of a row. `weight_g_idx` is the `g_idx` of `from_gptq`.
    """
    stored = stored_by(name, "from_compressed_tensors", ("int4", "uint4", "int8"))
    check("weight_packed", weight_packed, (torch.int32,), stored)
    bits = stored.element.bits
    codes = _codes(weight_packed, bits).mT
    if weight_shape is not None:
        *batch, N, K = [int(extent) for extent in weight_shape]
        check("weight_packed", weight_packed, (torch.int32,), stored, (*batch, N, -(-K * bits // 32)))
        codes = codes[..., :K, :]
    *batch, K, N = codes.shape
    groups = scale_shape(codes.shape, stored.block)[-2]
    check("weight_scale", weight_scale, FLOATS, stored, (*batch, N, groups))
    _check_groups("weight_g_idx", weight_g_idx, K, stored.block[0] or K)
    zeros = weight_zero_point
    if zeros is not None:
        packed = getattr(zeros, "dtype", None) == torch.int32
        rows = -(-N * bits // 32) if packed else N
        check("weight_zero_point", zeros, (torch.int8, torch.int32), stored, (*batch, rows, groups))
        zeros = _codes(zeros.mT, bits)[..., :N] if packed else zeros.mT.short() + 2 ** (bits - 1)
    return _affine(codes, "weight_scale", weight_scale.mT, zeros, stored, name)


def from_torchao(qdata: Tensor, scale: Tensor, zero_point: Tensor, name: str) -> dict[str, Tensor]:
    """torchao's plain int4 weights, with `scale` and `zero_point` (K/g, N), and the element of even k in the low bits.

    Of an `Int4Tensor`, `qdata` is int8 (N, K/2) with signed elements q of value q * scale + zero_point. Of an
    `Int4PlainInt32Tensor`, it is int32 (N, K/8) with elements from 0 to 15 of value (q - zero_point) * scale, and
    `zero_point` is int8.
    """
    stored = stored_by(name, "from_torchao", ("int4", "uint4"))
    check("qdata", qdata, (torch.int8, torch.int32), stored)
    codes = _codes(qdata, 4).mT
    shape = scale_shape(codes.shape, stored.block)
    check("scale", scale, FLOATS, stored, shape)
    signed = qdata.dtype == torch.int8
    check("zero_point", zero_point, FLOATS if signed else (torch.int8,), stored, shape)
    zeros = zero_point
    if signed:
        # With a scale of 0 all elements have the value of the zero point: 1 times that.
        flat = scale == 0
        codes = torch.where(tiled(flat, stored.block, codes.shape) != 0, 0, codes)
        scale = torch.where(flat, zero_point.to(scale.dtype), scale)
        zeros = torch.where(scale == 0, 8, 8 - zero_point.float() / scale.float())
    return _affine(codes ^ 8 if signed else codes, "scale", scale, zeros, stored, name)


def _codes(words: Tensor, bits: int) -> Tensor:
    """The unsigned elements in the bytes of each row, the lowest bits first."""
    octets = words.contiguous().view(torch.uint8)
    return octets if bits == 8 else torch.stack((octets & 15, octets >> 4), -1).flatten(-2)


def _affine(
    codes: Tensor, what: str, scale: Tensor, zeros: Tensor | None, stored: Stored, name: str
) -> dict[str, Tensor]:
    """The keywords for values (codes - zeros) * scale of unsigned codes (K, N); zeros of None are half the range."""
    shape = scale_shape(codes.shape, stored.block)
    check(what, scale, FLOATS, stored, shape)
    check_rows(codes.shape[-2], stored, name)
    half = 2 ** (stored.element.bits - 1)
    # A code minus half the range is, in two's complement, the code with its highest bit flipped.
    shift = half if stored.element.least < 0 else 0
    given = torch.full(shape, half, device=codes.device) if zeros is None else zeros
    points: Tensor = given - shift if given.is_floating_point() else given.short() - shift
    keywords = {"b": as_b((codes ^ shift).view(stored.element.dtype), stored), "b_scale": scale.contiguous()}
    if stored.zeros:
        integer = scale.dtype if shift else torch.uint8
        keywords["b_zero"] = (points if points.is_floating_point() else points.to(integer)).contiguous()
    elif points.any():
        present = f"{points.min().item() + shift:g} to {points.max().item() + shift:g}"
        raise ValueError(f"{name} has no zeros: all zero points must be {shift}, got {present}")
    return keywords


def _check_groups(what: str, index: Tensor | None, K: int, size: int) -> None:
    """Raise unless an index, if there is one, has the group k // size of each k."""
    if index is not None and index.tolist() != [k // size for k in range(K)]:
        raise ValueError(f"{what} must be k // {size} for each k below {K}: act-order is not supported")
