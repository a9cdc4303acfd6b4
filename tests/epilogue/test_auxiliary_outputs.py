"""Outputs beside C and C in place, as a spec has them: words, names, rules, the manifest, the launcher's text."""

import json

import pytest

from generator.emit.manifest_reader import read
from generator.language.built_in import chain_of
from generator.language.errors import CallError
from generator.lowering.kernel_lowering import view
from generator.plan.contract_call import call
from tests.helpers.support import BASE, assert_formatted, family_of, render_spec

CHAIN = "[[bias, {save: hidden}, gelu, save, row_sum, row_sum, {accumulate: {beta: 2}}]]"


def test_outputs_are_in_the_order_of_the_chain_a_second_use_numbered():
    (kernel,) = family_of(f"{BASE}epilogue: {CHAIN}\n").kernels
    epilogue = kernel.variant.epilogue
    assert [output.name for output in epilogue.outputs] == ["hidden", "preact", "row_sum", "row_sum2"]
    assert [operand.name for operand in epilogue.operands] == ["bias"] and epilogue.reads_out
    assert epilogue.word == "bias+save(hidden)+gelu+save+row_sum+row_sum+accumulate(beta=2)"
    assert epilogue.text == "gelu(A @ B + bias) + 2 * C"
    assert epilogue.told[:2] == ("hidden is A @ B + bias", "preact is gelu(A @ B + bias)")
    assert chain_of(epilogue.data) == epilogue and not chain_of(["bias"]).outputs


@pytest.mark.parametrize(
    ("chain", "schedule", "most"),
    [
        ("bias+silu+row_sum+col_sum", "persistent", 64),
        ("scale_m+row_amax+silu+col_sum", "persistent", 64),
        ("silu+row_sum+col_sum", "persistent", 128),
        ("bias+silu+row_sum+row_amax", "persistent", 128),
        ("bias+silu+row_sum+col_sum", "tiled", 128),
    ],
)
def test_sums_along_both_sides_leave_registers_for_smaller_tiles(chain, schedule, most):
    (kernel,) = family_of(f"{BASE}epilogue: {chain}\nschedule: {schedule}\n").kernels
    assert max(tile.m * tile.n // (32 * tile.warps) for tile in kernel.tiles) == most


@pytest.mark.parametrize(
    ("dtype", "chain", "saved", "word", "added"),
    [
        ("int8", "relu+save+row_sum", "x", "torch.int32", "x.to(tl.float32)"),
        ("{a: fp16, out: fp8e4m3}", "save+row_sum", "_to_fp8e4m3(acc)", "torch.float8_e4m3fn", "acc"),
    ],
)
def test_what_is_saved_and_added_up_of_other_types(dtype, chain, saved, word, added):
    (kernel,) = family_of(f"{BASE.replace('fp16', dtype)}epilogue: {chain}\n").kernels
    assert [output.value for output in view(kernel).outputs] == [saved, added]
    assert call(kernel.variant).outputs[0].torch_dtype == word


def test_a_result_of_8_bits_is_saved_as_it_is_stored():
    whole, mixed = family_of(f"{BASE.replace('fp16', '{a: int8, out: int8}')}epilogue: [save, save+scale]\n").kernels
    assert [view(whole).outputs[0].value, view(whole).result] == ["_to_int8(acc)"] * 2
    assert view(whole).helpers[-1] == "saturate_int8" and view(mixed).helpers[-1] == "to_int8"
    # One function of the kernel takes both: an fp32.
    assert [view(mixed).outputs[0].value, view(mixed).result] == ["_to_int8(acc.to(tl.float32))", "_to_int8(x)"]


def test_the_manifest_lists_the_outputs_and_is_read_back(tmp_path):
    text = f"{BASE}epilogue: {CHAIN[:-1]}, bias, [bias, {{amax: {{}}}}], swiglu+row_sum+accumulate]\n"
    path = render_spec(tmp_path, "several", text) / "manifest.json"
    manifest = json.loads(path.read_text())
    listed = [
        [f"{o['name']} {o['shape']} {o['dtype']}" for o in k.get("outputs", ())] for k in manifest["kernels"].values()
    ]
    assert listed[:2] == [["hidden MN fp16", "preact MN fp16", "row_sum M fp32", "row_sum2 M fp32"], []]
    assert [k.variant for k in read(tmp_path / "several").kernels] == [k.variant for k in family_of(text).kernels]
    # Neither a sum nor C stands in front of a gate.
    (entry,) = (k for name, k in manifest["kernels"].items() if "swiglu" in name)
    gate, *behind = entry["axes"]["epilogue"]
    for step in behind:
        entry["axes"]["epilogue"] = [step, gate]
        path.write_text(json.dumps(manifest))
        with pytest.raises(CallError, match="before the gate"):
            read(tmp_path / "several")


@pytest.mark.parametrize("layout", ["rcr", "rcc", "rrs"])
@pytest.mark.parametrize("batch", ["none", "strided"])
def test_long_names_keep_to_lines_of_a_file(tmp_path, layout, batch):
    # A name of the longest length, in every loop that indents it.
    long = "abcdefghijklm"
    chain = f"[[{{save: {long}1}}, {{row_sum: {long}2}}, {{col_sum: {long}3}}, {{row_amax: {long}4}}, accumulate]]"
    text = f"{BASE.replace('rcr', layout)}batch: {batch}\nepilogue: {chain}\nstore: [as_load, pointer]\n"
    text += "schedule: [tiled, persistent" + (", stream_k]\n" if batch == "none" else "]\n")
    text += "load: [pointer, block_pointer, descriptor]\nmasking: [auto, none]\ntargets: [sm90]\n"
    assert_formatted(render_spec(tmp_path, "long", text))
