"""The launches of a backward pass, which later ones of the same signature repeat.

The first backward pass of a signature calls the functions of its products, which cache their launches. `Launches` are
those of the whole pass: a later one makes no views and finds no signature for each product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .launch import Repeat

#: A gradient that is added up: the place of the tensor, the dimensions along which, and the type.
Sum = tuple[int, tuple[int, ...], torch.dtype]
#: A product: its launch, with the addresses of the tensors at two places.
Product = tuple[Repeat, int, int]


class Launches(NamedTuple):
    """The launches of a backward pass, called with a list: the incoming gradients, then the saved operands.

    `chain` runs the chain backwards, if there is one, with what the list has at the places `read`. The gradient of the
    sum is then the result at `summed` of the chain's list, otherwise what the call's list has there; it is put at the
    end of that list, of which `products` read two places each, and `sums` add up along dimensions. `results` has for
    each of the operator's arguments the place of its gradient in the chain's list, or None; those of the products and
    sums are at -1, -2 and so on.
    """

    chain: Repeat | None
    read: Sequence[int]
    summed: int
    products: Sequence[Product]
    sums: Sequence[Sum]
    results: Sequence[int | None]

    def __call__(self, given: list[Any]) -> list[Tensor | None]:
        """The gradients, None for an argument that needs none."""
        made: list[Any] = given
        if self.chain is not None:
            # The last operand of a chain's kernel says which gradients are needed, which its launch has fixed.
            made = self.chain.made_of([*[given[place] for place in self.read], None])
        given.append(made[self.summed])
        found = []
        for repeat, left, right in self.products:
            found.append(repeat.made_of([given[left], given[right], None])[3])
        for place, dims, dtype in self.sums:
            found.append(total(given[place], dims, dtype))
        return [None if place is None else made[place] if place >= 0 else found[-1 - place] for place in self.results]


def launches(
    chain: Repeat | None,
    made: Mapping[str, int],
    names: Sequence[str],
    read: Sequence[str],
    products: Mapping[str, tuple[Any, str, str, bool]],
    sums: Mapping[str, Sum],
    wanted: Mapping[str, bool],
) -> Launches | None:
    """The launches of a pass; None where a product is not one repeated launch, as one with copied operands.

    `names` are those of the call's list, and of the gradient of the sum behind it, of which `read` are the chain's
    operands. `made` has the place of each gradient in the chain's list, or that of the sum's in the call's. `products`
    has for the gradients of `a` and `b` the cached call, what it reads, and whether it makes the transposed gradient;
    `sums` those of other operands. `wanted` says of each argument whether its gradient is needed.
    """
    places = {name: place for place, name in enumerate(names)}
    repeated: list[Product] = []
    results = {name: made.get(name) for name in wanted}
    for name, (call, left, right, turned) in products.items():
        # `a`, `b` and `out` are in front of what the call makes, of which its result is the first.
        if not isinstance(call, Repeat) or call.result != 3:
            return None
        repeated.append((call.transposed() if turned else call, places[left], places[right]))
        results[name] = -len(repeated)
    results |= {name: -1 - len(repeated) - place for place, name in enumerate(sums)}
    every = [results[name] if needs else None for name, needs in wanted.items()]
    return Launches(chain, [places[name] for name in read], made["sum"], repeated, [*sums.values()], every)


def total(x: Tensor, dims: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor in another type, added up in fp32 along some dimensions."""
    if not dims:
        return x.to(dtype)
    # In its own type torch adds up in fp32 too, and rounds once.
    return x.sum(dims) if x.dtype == dtype else x.sum(dims, dtype=torch.float32).to(dtype)
