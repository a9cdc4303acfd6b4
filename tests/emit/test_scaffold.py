"""`new` writes a spec that renders, and nothing else."""

import re
from pathlib import Path

import pytest

from generator.language import schema
from generator.language.spec import read
from tests.helpers.support import Spoken, contents


@pytest.mark.parametrize("select", ["heuristic", "fastest"])
def test_every_key_in_a_comment_may_be_used(cli, select):
    assert cli("new", "family", "--select", select).status == 0
    path = Path("family.yaml")
    path.write_text(re.sub(r"^# (\w+: \w+)$", r"\1", path.read_text(), flags=re.M))
    assert len(read(path).positions) > 12
    assert cli("family.yaml", "--list").status == 0


def test_values_are_written_as_in_a_spec(cli):
    told = 'x: "y" \\ # z'
    said = cli("new", "c", "--dtype", "[{a: fp16, out: fp32}, bf16]", "--layout", "[rcr, rrr]", "--summary", told)
    assert (said.status, read(Path("c.yaml")).summary) == (0, told)
    types = ("--dtype", "[{a: fp16, out: fp32}, bf16]", "--layout", "[rcr, rrr]", "--epilogue", "bias+gelu")
    assert cli("new", "d", *types).status == 0 and cli("new", "e").status == 0
    assert read(Path("e.yaml")).summary == "bf16 GEMM, A row-major, B column-major, C row-major."
    assert Path(schema.FILE).read_text() == schema.text()
    assert read(Path("d.yaml")).summary == "fp16_fp32_fp32 or bf16 GEMM, in several layouts, with epilogue bias+gelu."


def test_a_folder_that_is_not_there_is_told(cli, tmp_path):
    told = "missing/family.yaml: cannot be written: No such file or directory\n"
    assert cli("new", "missing/family.yaml") == Spoken(1, "", told)
    assert contents(tmp_path) == {}


def test_nothing_is_overwritten(cli):
    Path("mine.yaml").write_text("mine")
    said = cli("new", "mine")
    assert said == Spoken(1, "", "mine.yaml: is there already, and is never overwritten; choose another name\n")
    assert Path("mine.yaml").read_text() == "mine" and not Path(schema.FILE).exists()
    Path(schema.FILE).write_text("{}")
    assert "gemm.schema.json: kept; to renew it: python -m generator schema > gemm.schema.json" in cli("new", "n").err
    assert Path(schema.FILE).read_text() == "{}"
