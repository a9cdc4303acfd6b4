"""The key `with`: each word brings its modules to a family, which names the word where it is missing."""

import pytest

from generator.emit.loading import load_family
from generator.language.vocabulary import ADDITIONS
from tests.helpers.support import BASE, assert_formatted, render_spec, spec

#: A spec to which every word brings something.
EVERY = spec(
    "layout: rcr; dtype: [fp16, {a: fp16, b: int4, scales: {b: [32, 1]}}]; batch: [none, grouped]; "
    "epilogue: [none, swiglu]; load: pointer; exclude: [{batch: grouped, dtype: {a: fp16, b: int4, scales: {b: [32, "
    '1]}}, because: "experts have weights of fp16"}]'
)
#: The files that a word brings.
BRINGS = {
    "inductor": {"inductor.py", "_products.py", "_runtime/graph_pass.py", "_runtime/chain_search.py"}
    | {"_runtime/torch_products.py", "_runtime/precision.py"},
    "aten": {"_products.py", "_runtime/overriding.py", "_runtime/torch_products.py", "_runtime/precision.py"},
    "prepare": {"_runtime/prepare.py", "_runtime/memoryless.py"},
    "dtensor": {"_runtime/sharding.py"},
    "experts": {"_runtime/experts.py"},
    "torchao": {"ao.py", "_runtime/torchao_weights.py"},
}


def rendered(folder, spec, *options):
    """The folder of a rendered family."""
    return render_spec(folder, "additions", spec, *options)


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.py*") if path.suffix in (".py", ".pyi")}


def test_each_word_brings_its_modules(tmp_path):
    assert BRINGS.keys() == ADDITIONS.keys()
    plain = files(rendered(tmp_path, EVERY))
    assert not plain & set().union(*BRINGS.values())
    for word, brings in BRINGS.items():
        assert files(rendered(tmp_path, f"{EVERY}with: {word}\n")) - plain == brings
        assert files(rendered(tmp_path, EVERY, "--with", word)) - plain == brings
    folder = rendered(tmp_path, f"{EVERY}with: [torchao, aten]\n", "--with", "prepare,inductor,dtensor,experts,aten")
    assert files(folder) - plain == set().union(*BRINGS.values())
    assert_formatted(folder)


@pytest.fixture
def family(tmp_path):
    return load_family(rendered(tmp_path, EVERY))


def test_a_family_names_the_word_that_it_lacks(family):
    def told(of, name):
        with pytest.raises(AttributeError) as caught:
            getattr(of, name)
        return str(caught.value).partition("; ")[2]

    words = {"inductor": "inductor", "override_aten": "aten", "ao": "torchao"}
    for name, word in words.items():
        assert told(family, name) == f"add {word!r} to the key `with` of the spec"
    for name in ("Experts", "replace_experts"):
        assert told(family.nn, name) == "add 'experts' to the key `with` of the spec"
    assert (told(family, "nothing"), told(family.nn, "nothing")) == ("", "")
    function = family.gemm_fp16_rcr_none
    with pytest.raises(AttributeError, match="gemm_fp16_rcr_none has no 'prepare'; add 'prepare' to the key `with`"):
        function.prepare(16, 16, M=1)


def test_a_family_of_groups_alone_has_no_layers_without_experts(tmp_path):
    grouped = f"{BASE}batch: grouped\nepilogue: [none, swiglu]\nload: pointer\n"
    assert not (rendered(tmp_path, grouped) / "nn.py").exists()
    with pytest.raises(AttributeError, match="no attribute 'nn'; add 'experts' to the key `with` of the spec"):
        load_family(tmp_path / "additions").nn  # noqa: B018
    assert (rendered(tmp_path, grouped, "--with", "experts") / "nn.py").exists()
