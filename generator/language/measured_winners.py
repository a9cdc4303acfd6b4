"""What was measured on devices, for `select: table` and `fastest`: winners, and the rates of a fitted model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The rates of one configuration, for `generator.cost.fitted.seconds`.
Rates = tuple[float, ...]


@dataclass(frozen=True)
class Winner:
    """The kernel and configuration that were fastest at one size."""

    contract: str
    sizes: tuple[int, ...]
    how: str
    row: Mapping[str, int]
    #: Measured seconds of a call, and of the vendor's library, if the file has them.
    seconds: float | None = None
    library_seconds: float | None = None


@dataclass(frozen=True)
class Fitted:
    """The rates of one configuration of a kernel."""

    contract: str
    how: str
    row: Mapping[str, int]
    rates: Rates


#: Comparisons of features with limits (`generator.runtime.aten_product.Rule`).
Rule = tuple[tuple[str, float, int | str, int | str], ...]


@dataclass(frozen=True)
class Measured:
    """What was measured on one device."""

    device: str
    winners: tuple[Winner, ...]
    fitted: tuple[Fitted, ...]
    #: The fitted model's median relative error, and the mean loss of its choice, on its own measurements.
    error: float
    regret: float
    #: At which sizes torch's product is faster: rules, by the contracts that share one.
    aten: Mapping[str, Rule] = field(default_factory=dict, hash=False)
    #: The name of the file, as the spec has it; None for a file that the package ships.
    file: str | None = None
