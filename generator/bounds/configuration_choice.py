"""How a row of CONFIGS comes to the kernel: that it is one, which sizes it takes, and what is derived from it.

A helper that reads otherwise than it is known may let another row through.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from generator.bounds.patterns import assigned, matched, matches
from generator.bounds.source import JITS, NotUnderstood, Source
from generator.emit.syntax_digest import undocumented


@dataclass(frozen=True)
class Choice:
    """How `plan` chooses a row: without `config` the tuner does, or `_select`; whether the sizes decide which go."""

    tuned: bool
    fitting: bool


_NAMED = {False: ("_row(config)",), True: ("_row(config, M, N, K)", "_row(config, T, N, K)", "_row(config, M, N, T)")}
_SELECTED = "row = _select({}, a.device) if config is None else {}"
_TUNED = "kernel, row = (gemm_kernel, {{}}) if config is None else (gemm_kernel.fn, {})"
#: The sizes that the choice may depend on; without M or K, `_fits` is asked with 0 in its place.
_SIZES = ("M, N, K", "B, M, N, K", "G, T, N, K", "G, M, N, T", "N, K")

_TUNER = "triton.autotune(configs=[_tunable(row) for row in CONFIGS], key=$key, **$options)"
_ROW = """
def _row({}):
    if isinstance(config, int) and 0 <= config < len(CONFIGS):
        row = CONFIGS[config]
    elif config in CONFIGS:
        row = config
    else:
        raise $error{}
    return row
"""
_REFUSED = """
    reason = _misfit(M, N, K, [row])
    if reason is not None:
        raise ValueError(reason)"""
_ROWS = {False: _ROW.format("config", ""), True: _ROW.format("config, M, N, K", _REFUSED)}
_MISFIT = """
def _misfit(M, N, K, rows):
    if any(_fits(row, M, N, K) for row in rows):
        return None
    *$told
    return $last
"""
_OFFERED = (
    "return CONFIGS",
    "return [row for index, row in enumerate(CONFIGS) if index not in TOO_LARGE.get(name, ())]",
)
_TUNABLE = """
def _tunable(row):
    sizes = {{name: value for name, value in row.items() if not name.startswith('num_')}}
    return triton.Config(sizes, num_warps=row['num_warps'], num_stages=row['num_stages']{})
"""
_BLOCK = ("a, b = args['a_desc'], args['b_desc']", "$descriptor.block_shape = $sizes")
_PRUNE = """
def _prune(configs, _, M, N, K, **others):
    *$earlier
    rows = [row for row in CONFIGS if {}_fits(row, M, N, K)]
    return [config for config, row in zip(configs, CONFIGS) if row in rows]
"""
_PRUNES = tuple(_PRUNE.format(offered) for offered in ("", "row in offered and "))
#: `refusal` passes on what `_misfit` says of matrices, and of batches of them.
_REFUSALS = tuple(
    f"*$earlier\nreturn _misfit({sizes}, $rows)"
    for sizes in ("a.shape[0], b.shape[1], a.shape[1]", "a.shape[1], b.shape[2], a.shape[2]")
)
_NO_MATRICES = tuple(
    f"if any(not isinstance(x, torch.Tensor) or x.dim() != {dimensions} for x in given):\n    return None"
    for dimensions in (2, 3)
)
#: Where it passes on what another one says.
_GUARDED = "if reason is not None:\n    return reason"


def chosen(statement: ast.stmt) -> Choice | None:
    """How a statement chooses a row; None for another statement."""
    for fitting, calls in _NAMED.items():
        if matches(statement, *(_SELECTED.format(sizes, named) for sizes in _SIZES for named in calls)):
            return Choice(False, fitting)
        if matches(statement, *(_TUNED.format(named) for named in calls)):
            return Choice(True, fitting)
    return None


def heuristics(kernel: ast.FunctionDef) -> Mapping[str, ast.expr]:
    """The expression behind each parameter that `@triton.heuristics` computes from `args`."""
    found: dict[str, ast.expr] = {}
    for decorator in kernel.decorator_list:
        match decorator:
            case ast.Call(ast.Attribute(ast.Name("triton"), "heuristics"), [ast.Dict(keys, rules)], []):
                for key, rule in zip(keys, rules):
                    computed = matched(rule, "lambda args: $rule")
                    if computed is None or key is None:
                        raise NotUnderstood(rule.lineno, ast.unparse(rule))
                    found[ast.literal_eval(key)] = computed["rule"]
            case _ if not matches(decorator, *JITS, _TUNER):
                raise NotUnderstood(decorator.lineno, ast.unparse(decorator).partition("\n")[0])
    return found


def resets(source: Source, names: set[str]) -> None:
    """Raise where a tuner runs the kernel again and again and does not set `names` to zero before each time."""
    options = _tuner(source)
    if options is not None and names and not _option(options, "reset_to_zero", repr(sorted(names))):
        told = f"{', '.join(sorted(names))} is not set to zero between the tuner's runs"
        raise NotUnderstood(source.kernel.lineno, told)


def demand(source: Source, choice: Choice | None, refuses: bool) -> ast.expr | None:
    """What `_fits` demands of a row and the sizes, None where any row goes.

    Raises `NotUnderstood` where something else than a row of CONFIGS could reach the kernel, or one that does not fit.
    """
    fitting, tuner = "_fits" in source.functions, _tuner(source)
    if choice != Choice(tuner is not None, fitting):
        raise NotUnderstood(source.function("plan").lineno, "the choice of a row")
    for name, known in (
        ("_row", matches(source.function("_row"), _ROWS[fitting])),
        ("_offered", _offered(source)),
        ("_misfit", not fitting or _misfit(source)),
        ("_select", tuner is not None or _select(source, fitting)),
        ("_tunable", tuner is None or _tunable(source)),
        ("_prune", tuner is None or not fitting or _prune(source, tuner)),
        ("refusal", tuner is None or not fitting or (refuses and _refusal(source))),
    ):
        if not known:
            line = source.functions[name].lineno if name in source.functions else 1
            raise NotUnderstood(line, f"{name}, through which a row is chosen")
    if not fitting:
        return None
    found = matched(source.function("_fits"), "def _fits(row, M, N, K):\n    return $demanded")
    if found is None:
        raise NotUnderstood(source.function("_fits").lineno, "_fits")
    demanded: ast.expr = found["demanded"]
    for size in "MK" if tuner is None else "":
        if size not in _parameters(source.function("_select")) and size in names(demanded):
            told = f"_fits, which depends on {size}, where the choice does not"
            raise NotUnderstood(source.function("_fits").lineno, told)
    return demanded


def _tuner(source: Source) -> Mapping[str | None, ast.expr] | None:
    """What the tuner is told besides the rows; None where there is none."""
    for decorator in source.kernel.decorator_list:
        found = matched(decorator, _TUNER)
        if found is not None:
            return {option.arg: option.value for option in found["options"]}
    return None


def _option(options: Mapping[str | None, ast.expr], name: str, value: str) -> bool:
    return name in options and matches(options[name], value)


def _misfit(source: Source) -> bool:
    """It says None of no row but one that fits."""
    found = matched(source.function("_misfit"), _MISFIT)
    if found is None:
        return False
    returned = [found["last"], *(node.value for node in _returns(found["told"]))]
    return all(isinstance(value, ast.JoinedStr) for value in returned)


def _offered(source: Source) -> bool:
    """Where there is one, it returns rows of CONFIGS."""
    body = source.functions["_offered"].body if "_offered" in source.functions else []
    return all(matches(node, *_OFFERED) for node in _returns(body)) and "CONFIGS" not in assigned(body)


def _select(source: Source, fitting: bool) -> bool:
    """Its own only return is of a row that fits; its inner functions return numbers to compare rows by."""
    function = source.function("_select")
    parameters = _parameters(function)
    rows = ["CONFIGS", "_offered(device)"]
    if fitting:
        m, k = (size if size in parameters else "0" for size in "MK")
        rows = [f"[row for row in {each} if _fits(row, {m}, N, {k})]" for each in rows]
    known = [f"return {each}[0]" for each in rows] + [f"return min({each}, key=cost)" for each in rows]
    *earlier, last = undocumented(function)
    if "M" not in parameters and matches(last, "return min(rows, key=slowdown)"):
        # The rows are named once.
        named = [part for part in earlier if matches(part, *(f"rows = {each}" for each in rows))]
        earlier = [part for part in earlier if part not in named]
        if len(named) != 1 or "rows" in assigned(earlier):
            return False
    elif not matches(last, *known):
        return False
    returns = _returns(part for part in earlier if not isinstance(part, ast.FunctionDef))
    given = ", ".join(parameters) in (f"{sizes}, device" for sizes in _SIZES)
    return given and not returns and not assigned(earlier) & {"CONFIGS", *parameters}


def _tunable(source: Source) -> bool:
    """It gives the tuner the row, and descriptors another block at most."""
    function = source.function("_tunable")
    if matches(function, _TUNABLE.format("")):
        return True
    blocks = matched(source.function("_set_blocks"), "def _set_blocks(args):\n    *$blocks")
    hooked = matches(function, _TUNABLE.format(", pre_hook=_set_blocks"))
    return hooked and blocks is not None and all(matches(block, *_BLOCK) for block in blocks["blocks"])


def _prune(source: Source, tuner: Mapping[str | None, ast.expr]) -> bool:
    """The tuner tries rows that fit. A single row it would not prune: of that one `refusal` tells."""
    found = matched(source.function("_prune"), *_PRUNES)
    if found is None or assigned(found["earlier"]) & {"CONFIGS", "M", "N", "K", "configs"}:
        return False
    return _option(tuner, "prune_configs_by", "{'early_config_prune': _prune}")


def _refusal(source: Source) -> bool:
    """It passes on what `_misfit` says, unless it has another reason, or the operands are none that `gemm` admits."""
    function = source.function("refusal")
    found = matched(undocumented(function), *_REFUSALS)
    if found is None or _parameters(function) != ["a", "b"] or assigned(found["earlier"]) & {"a", "b"}:
        return False
    spoken = [part for part in found["earlier"] if not matches(part, *_NO_MATRICES)]
    guarded = [
        node for part in spoken for node in ast.walk(part) if isinstance(node, ast.If) and matches(node, _GUARDED)
    ]
    passed_on = _returns(guarded)
    return all(node in passed_on or _is_text(node.value) for node in _returns(spoken))


def _is_text(node: ast.expr | None) -> bool:
    """Whether an expression is a text, and so a reason."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _returns(body: Iterable[ast.stmt]) -> list[ast.Return]:
    return [node for part in body for node in ast.walk(part) if isinstance(node, ast.Return)]


def names(node: ast.expr) -> set[str]:
    """The names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _parameters(function: ast.FunctionDef) -> list[str]:
    """The names of the parameters that are given by place."""
    return [parameter.arg for parameter in (*function.args.posonlyargs, *function.args.args)]
