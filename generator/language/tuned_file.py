"""Read the file of winners that `tune` writes, and check every value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from generator.files.checked_json import Schema
from generator.language import measured_values as values
from generator.language.measured_values import Unfit
from generator.language.measured_winners import Fitted, Measured, Rates, Winner

#: The format of the file. Format 1, whose rates have no exponents, is read too; others are refused.
FORMAT = 2
#: The rates that are positive, of which the first is a whole number, and the exponents after them. Two more, which are
#: positive too, may follow.
_POSITIVE, _EXPONENTS, _MORE = 6, 2, 2

_EXPONENT = {"type": "number", "minimum": -1, "exclusiveMinimum": True, "maximum": 1, "exclusiveMaximum": True}
_PROGRAMS = {"type": "number", "minimum": 1, "maximum": 1 << 20, "multipleOf": 1}
_RATES = {
    "type": "array",
    "items": [_PROGRAMS, *[values.ABOVE_0] * (_POSITIVE - 1), *[_EXPONENT] * _EXPONENTS, *[values.ABOVE_0] * _MORE],
    "additionalItems": False,
    "minItems": _POSITIVE,
}
#: A kernel and a configuration, with the seconds of a call (`generator.tune.outcome.Timed`).
TIMED = values.mapping({"kernel": values.NAME, "config": values.CONFIG, "seconds": values.SECONDS})
#: The winner of one contract and size (`generator.tune.outcome.ConfirmedWinner`).
_WINNER = {
    "contract": values.NAME,
    **dict.fromkeys(("m", "n", "k"), values.SIZE),
    "kernel": values.NAME,
    "config": values.CONFIG,
    "seconds": values.SECONDS,
    "library_seconds": values.or_null(values.SECONDS),
    "runner_up": values.or_null(TIMED),
    "batch": values.PRODUCTS,
    "divided": values.SWITCH,
    "routing": values.TEXT,
    "inner": values.SWITCH,
}
_USUAL = ("library_seconds", "runner_up", "batch", "divided", "routing", "inner")
WINNER = values.mapping(_WINNER, optional=_USUAL)
#: The device and versions that measurements are of (`generator.tune.winners.Place`).
PLACE = {"device": values.NAME, "multiprocessors": values.SIZE, "torch": values.NAME, "triton": values.NAME}
#: What the comparisons of a rule read of a call (`generator.runtime.aten_product.features`).
FEATURES = ("M", "N", "K", "work", "intensity", "tiles", "filled", "aligned", "a_column", "b_row")
_NEXT = {"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["triton", "aten"]}]}
_COMPARISON = {
    "type": "array",
    "items": [{"enum": list(FEATURES)}, {"type": "number"}, _NEXT, _NEXT],
    "additionalItems": False,
    "minItems": 4,
}
#: What only `tune` reads.
OF_TUNE = ("multiprocessors", "torch", "triton", "kernels")
SCHEMA = Schema(
    values.mapping(
        {
            "format": {"type": "integer", "enum": [1, FORMAT]},
            **PLACE,
            "error": values.SHARE,
            "regret": values.SHARE,
            "kernels": values.by_name(values.TEXT),
            # A family needs no times; `tune`, which does, asks for them (`generator.tune.winners.read`).
            "winners": values.entries(values.mapping(_WINNER, optional=("seconds", *_USUAL))),
            "rates": values.entries(
                values.mapping(
                    {"contract": values.NAME, "kernel": values.NAME, "config": values.CONFIG, "rates": _RATES}
                )
            ),
            "aten": values.by_name(values.entries(_COMPARISON, 1)),
        },
        # A family needs no more than the device; `tune` asks for the others, too.
        optional=(*OF_TUNE, "aten"),
    )
)


def parse(text: str) -> Measured:
    """The measurements in the text of a file; raise ValueError with line and reason if it is not such a file."""
    return values.parsed(text, SCHEMA, _measured)


def _measured(data: Any) -> Measured:
    tables = contents(data)
    winners = tuple(
        Winner(
            entry["contract"],
            (*((entry["batch"],) if "batch" in entry else ()), entry["m"], entry["n"], entry["k"]),
            _how(entry["kernel"]),
            entry["config"],
            *(None if entry.get(key) is None else float(entry[key]) for key in ("seconds", "library_seconds")),
        )
        for entry in tables["winners"]
    )
    fitted = tuple(
        Fitted(entry["contract"], _how(entry["kernel"]), entry["config"], tuple(entry["rates"]))
        for entry in tables["rates"]
    )
    rules = {name: tuple(map(tuple, rule)) for name, rule in tables.get("aten", {}).items()}
    return Measured(tables["device"], winners, fitted, float(tables["error"]), float(tables["regret"]), rules)


def contents(data: Any) -> Any:
    """The data of a file that has the schema; of format 1 as of the format now, with exponents of 0.

    Rates are then less accurate until `tune --again` has fitted them to the journal. Raises `Unfit` for values that no
    file has.
    """
    rows = set()
    for index, entry in enumerate(data["winners"]):
        check_winner(entry, "winners", index)
        if "batch" in entry and not entry["batch"]:
            raise Unfit("a batch has at least 1 product; one product has no `batch`", "winners", index, "batch")
    for index, entry in enumerate(data["rates"]):
        values.of_contract(entry["kernel"], entry["contract"], "rates", index, "kernel")
        values.configuration(entry["config"], "rates", index, "config")
        _check_rates(entry["rates"], data["format"], "rates", index, "rates")
        row = entry["contract"], entry["kernel"], tuple(sorted(entry["config"].items()))
        if row in rows:
            raise Unfit("rates of the same configuration are above", "rates", index)
        rows.add(row)
    for name, rule in data.get("aten", {}).items():
        for index, (*_, below, above) in enumerate(rule):
            if any(isinstance(x, int) and not index < x < len(rule) for x in (below, above)):
                raise Unfit("goes on to no later comparison", "aten", name, index)
    if data["format"] == 1:
        rates = [{**entry, "rates": [*entry["rates"], *[0.0] * _EXPONENTS]} for entry in data["rates"]]
        return {**data, "format": FORMAT, "rates": rates}
    return data


def check_winner(entry: Mapping[str, Any], *steps: str | int) -> None:
    """Raise `Unfit`, with `steps` to the winner, for one that the schema `WINNER` accepts and that no file has."""
    for name, own in (("kernel", entry), ("runner_up", entry.get("runner_up"))):
        if own is not None:
            at = (*steps, name) if name == "runner_up" else steps
            values.of_contract(own["kernel"], entry["contract"], *at, "kernel")
            values.configuration(own["config"], *at, "config")
    batch, divided, inner = entry.get("batch", 0), entry.get("divided", False), entry.get("inner", False)
    if divided and not batch:
        raise Unfit("groups have their number as `batch`", *steps, "divided")
    if inner and not divided:
        raise Unfit("only groups are `inner`", *steps, "inner")
    if divided and entry["k" if inner else "m"] * batch > values.LARGEST_SIZE:
        raise Unfit(f"all groups together are larger than {values.LARGEST_SIZE}", *steps, "k" if inner else "m")


def _check_rates(rates: Rates, number: int, *steps: str | int) -> None:
    exponents = _EXPONENTS if number == FORMAT else 0
    legal = {_POSITIVE + exponents, _POSITIVE + exponents + (_MORE if exponents else 0)}
    if len(rates) not in legal:
        raise Unfit(f"there are {len(rates)} rates; expected {' or '.join(map(str, sorted(legal)))}", *steps)


def _how(kernel: str) -> str:
    """The implementation part of a kernel's name, by which one contract's measurements serve others too."""
    return kernel.partition("__")[2]
