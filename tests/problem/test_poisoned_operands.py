"""Buffers with poisoned margins: what is placed where, and what a stray write leaves."""

import pytest
import torch

from generator.problem.poisoned_operands import LARGEST_POISONED, fill, place, poison, unwritten

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.int32]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "strides"), [((5, 7), (11, 1)), ((5, 7), (1, 9)), ((5, 7), (20, 2)), ((0, 7), (7, 1))]
)
def test_every_byte_but_the_elements_is_poison(dtype, shape, strides):
    operand = place("x", shape, strides, dtype, CPU, offset=1, margin=30)
    assert operand.view.shape == shape
    assert not operand.view.numel() or operand.view.stride() == strides
    assert bool(unwritten(operand.view).all())
    fill(operand, torch.ones(shape).to(dtype))
    assert operand.changed() is None
    assert not bool(unwritten(operand.view).any())
    width = operand.view.element_size()
    kept = int((operand.storage == (0xFF if dtype.is_floating_point else 0x5A)).sum())
    assert kept >= operand.storage.numel() - 35 * width
    if dtype.is_floating_point:
        assert bool(operand.storage[: 30 * width].view(dtype).isnan().all())


def test_a_write_to_an_input_shows():
    operand = place("x", (3, 4), (6, 1), torch.float32, CPU, margin=8)
    fill(operand, torch.ones(3, 4))
    operand.view[1, 2] = 2.0
    assert operand.changed() == "2 bytes of the input x or its margins were written"


@pytest.mark.parametrize("where", ["before", "behind", "padding"])
def test_a_write_around_an_output_shows(where):
    operand = place("out", (3, 4), (6, 1), torch.float32, CPU, margin=8)
    operand.view.fill_(1.0)
    assert operand.margins_changed() is None
    operand.view.fill_(1.0)
    first = operand.view.storage_offset()
    operand.storage.view(torch.float32)[{"before": first - 1, "behind": first + 16, "padding": first + 4}[where]] = 0.0
    assert operand.margins_changed() == "4 bytes outside the elements of out were written"


def test_an_operand_is_aligned_unless_it_is_to_be_off():
    assert place("x", (3, 4), (4, 1), torch.int8, CPU, margin=5).view.data_ptr() % 16 == 0
    assert place("x", (3, 4), (4, 1), torch.int8, CPU, margin=5, offset=1).view.data_ptr() % 16 == 1


def test_gigabytes_are_virtual():
    operand = place("x", (3, 3), (2**30, 1), torch.float32, CPU)
    assert operand.storage.numel() > LARGEST_POISONED
    operand.view.copy_(torch.ones(3, 3))
    assert operand.changed() is None and operand.margins_changed() is None
    assert float(operand.view.sum()) == 9


def test_poison_of_a_view_leaves_its_neighbours():
    x = torch.zeros(4, 4)
    poison(x[:, 1:3])
    assert x.isnan().sum() == 8 and bool((x[:, 0] == 0).all())
