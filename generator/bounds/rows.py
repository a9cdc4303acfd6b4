"""How a row of CONFIGS comes to the kernel: that it is one, which sizes it takes, and what is derived from it.

Helpers are compared word for word: one that reads otherwise may let another row through.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from generator.bounds.source import NotUnderstood, Source, statements, texts

_NAMED = "_row(config)"
_NAMED_FITTING = "_row(config, M, N, K)"
#: How `gemm` chooses a row; for a tuned kernel without `config`, the tuner does.
_SELECTED = tuple(f"_select({sizes}, a.device) if config is None else " for sizes in ("M, N, K", "B, M, N, K"))
_TUNED = "(gemm_kernel, {}) if config is None else (gemm_kernel.fn, "
CHOICES = (
    *(each + row for each in _SELECTED for row in (_NAMED, _NAMED_FITTING)),
    _TUNED + _NAMED + ")",
    _TUNED + _NAMED_FITTING + ")",
)

_ROW = """if isinstance(config, int) and 0 <= config < len(CONFIGS):
    row = CONFIGS[config]
elif config in CONFIGS:
    row = config
else:
    raise """
_REFUSED = ["reason = _misfit(M, N, K, [row])", "if reason is not None:\n    raise ValueError(reason)"]
_FITTING = "if any((_fits(row, M, N, K) for row in rows)):\n    return None"
_NO_MATRICES = tuple(
    f"if any((not isinstance(x, torch.Tensor) or x.dim() != {dimensions} for x in given)):\n    return None"
    for dimensions in (2, 3)
)
#: The sizes of operands that are matrices, and of batches of them.
_PASSED_ON = (
    "return _misfit(a.shape[0], b.shape[1], a.shape[1], ",
    "return _misfit(a.shape[1], b.shape[2], a.shape[2], ",
)
_OFFERED = (
    "return CONFIGS",
    "return [row for index, row in enumerate(CONFIGS) if index not in TOO_LARGE.get(name, ())]",
)
_TUNABLE = "sizes = {name: value for name, value in row.items() if not name.startswith('num_')}"
_TUNED_BY = "return triton.Config(sizes, num_warps=row['num_warps'], num_stages=row['num_stages']"
_PRUNED = tuple(
    f"rows = [row for row in CONFIGS if {offered}_fits(row, args['M'], args['N'], args['K'])]"
    for offered in ("", "row in offered and ")
)
_KEPT = "return [config for config, row in zip(configs, CONFIGS) if row in rows]"


def heuristics(kernel: ast.FunctionDef) -> Mapping[str, ast.expr]:
    """The expression behind each parameter that `@triton.heuristics` computes from `args`."""
    found: dict[str, ast.expr] = {}
    for decorator in kernel.decorator_list:
        match decorator:
            case ast.Call(ast.Attribute(ast.Name("triton"), "heuristics"), [ast.Dict(keys, rules)], []):
                for key, rule in zip(keys, rules):
                    if not isinstance(rule, ast.Lambda) or ast.unparse(rule.args) != "args" or key is None:
                        raise NotUnderstood(rule.lineno, ast.unparse(rule))
                    found[ast.literal_eval(key)] = rule.body
            case _ if ast.unparse(decorator) != "triton.jit" and not _is_tuner(decorator):
                raise NotUnderstood(decorator.lineno, ast.unparse(decorator).partition("\n")[0])
    return found


def resets(source: Source, names: set[str]) -> None:
    """Raise where a tuner runs the kernel again and again and does not set `names` to zero before each time."""
    tuner = next(filter(_is_tuner, source.kernel.decorator_list), None)
    if tuner is not None and names and f"reset_to_zero={sorted(names)!r}" not in ast.unparse(tuner):
        raise NotUnderstood(tuner.lineno, f"{', '.join(sorted(names))} is not set to zero between the tuner's runs")


def demand(source: Source, choice: str, refuses: bool) -> ast.expr | None:
    """What `_fits` demands of a row and the sizes, None where any row goes; `choice` is one of CHOICES.

    Raises `NotUnderstood` where something else than a row of CONFIGS could reach the kernel, or one that does not fit.
    """
    fitting, tuner = "_fits" in source.functions, next(filter(_is_tuner, source.kernel.decorator_list), None)
    if (tuner is not None) != choice.startswith(_TUNED) or fitting != (_NAMED_FITTING in choice):
        raise NotUnderstood(source.function("gemm").lineno, f"the choice of a row: {choice}")
    for name, known in (
        ("_row", _row(source, fitting)),
        ("_offered", _offered(source)),
        ("_misfit", not fitting or _misfit(source)),
        ("_select", tuner is not None or _select(source, fitting)),
        ("_tunable", tuner is None or _tunable(source)),
        ("_prune", tuner is None or _prune(source, tuner, fitting)),
        ("refusal", tuner is None or not fitting or (refuses and _refusal(source))),
    ):
        if not known:
            line = source.functions[name].lineno if name in source.functions else 1
            raise NotUnderstood(line, f"{name}, through which a row is chosen")
    if not fitting:
        return None
    match statements(source.function("_fits").body):
        case [ast.Return(ast.expr() as demanded)]:
            return demanded
    raise NotUnderstood(source.function("_fits").lineno, "_fits")


def _is_tuner(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("triton.autotune(configs=[_tunable(row) for row in CONFIGS], key=")


def _row(source: Source, fitting: bool) -> bool:
    """It raises for what is no row of CONFIGS, and for one that does not fit."""
    first, *rest = _lines(source, "_row")
    return first.startswith(_ROW) and rest == [*(_REFUSED if fitting else []), "return row"]


def _misfit(source: Source) -> bool:
    """It says None of no row but one that fits."""
    first, *rest = _lines(source, "_misfit")
    others = statements(source.function("_misfit").body)[1:]
    returned = [node.value for part in others for node in ast.walk(part) if isinstance(node, ast.Return)]
    return first == _FITTING and rest[-1].startswith("return ") and all(isinstance(x, ast.JoinedStr) for x in returned)


def _offered(source: Source) -> bool:
    if "_offered" not in source.functions:
        return True
    returned = [ast.unparse(node) for node in ast.walk(source.function("_offered")) if isinstance(node, ast.Return)]
    return set(returned) <= set(_OFFERED)


def _select(source: Source, fitting: bool) -> bool:
    """Its own only return is of a row that fits; its inner function returns what a row costs."""
    lines = _lines(source, "_select")
    rows = ["CONFIGS", "_offered(device)"]
    if fitting:
        rows = [f"[row for row in {each} if _fits(row, M, N, K)]" for each in rows]
    known = [f"return {each}[0]" for each in rows] + [f"return min({each}, key=cost)" for each in rows]
    earlier = statements(source.function("_select").body)[:-1]
    nodes = [node for part in earlier if not isinstance(part, ast.FunctionDef) for node in ast.walk(part)]
    return lines[-1] in known and not any(isinstance(node, ast.Return) for node in nodes)


def _tunable(source: Source) -> bool:
    """It gives the tuner the row, and descriptors another block at most."""
    hooked = f"{_TUNED_BY}, pre_hook=_set_blocks)"
    lines = _lines(source, "_tunable")
    blocks = _lines(source, "_set_blocks") if lines[-1] == hooked else []
    names = "a, b = (args['a_desc'], args['b_desc'])"
    harmless = all(line == names or line.partition(" = ")[0].endswith(".block_shape") for line in blocks)
    return lines in ([_TUNABLE, hooked], [_TUNABLE, f"{_TUNED_BY})"]) and harmless


def _prune(source: Source, tuner: ast.expr, fitting: bool) -> bool:
    """The tuner tries rows that fit. A single row it would not prune: of that one `refusal` tells."""
    if not fitting:
        return True
    given = "prune_configs_by={'early_config_prune': _prune}" in ast.unparse(tuner)
    *_, kept, last = _lines(source, "_prune")
    return given and kept in _PRUNED and last == _KEPT


def _refusal(source: Source) -> bool:
    """It passes on what `_misfit` says, unless it has another reason, or the operands are none that `gemm` admits."""
    *earlier, last = _lines(source, "refusal")
    silent = [line for line in earlier if "return None" in line and line not in _NO_MATRICES]
    return not silent and last.startswith(_PASSED_ON)


def _lines(source: Source, name: str) -> list[str]:
    """A function's statements as text; of a function that is not there, nothing that would be known."""
    return texts(source.functions[name].body) if name in source.functions else ["", ""]
