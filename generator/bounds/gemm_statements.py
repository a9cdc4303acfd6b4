"""The statements of `plan`, and `gemm`, which launches by it: what is admitted, chosen, made and passed.

Every statement must be one whose meaning is known here, and every helper that a fact is taken from must read as it is
known: a fact that cannot be read is not assumed, and what needs it is then not proved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from generator.bounds import configuration_choice, helpers
from generator.bounds.helpers import SIZES
from generator.bounds.launch_tensors import BETWEEN, SUMS, Operand, Tensors
from generator.bounds.patterns import matched, matches
from generator.bounds.plain_arithmetic import condition_of
from generator.bounds.source import NotUnderstood
from generator.bounds.symbolic_values import Descriptor
from generator.bounds.terms import Condition, equal, negation, poly, variable
from generator.emit.syntax_digest import undocumented

#: `gemm` asks for the plan, and launches by it unless there is nothing to launch.
_GEMM = """
launch = plan(a, b, **$given)
if launch.grid is not None:
    with torch.cuda.device_of(a):
        *$inside
return $returned
"""
_CLEAR = "for name in launch.cleared:\n    launch.results[name].zero_()"
_LAUNCH = "launch.kernel[launch.grid](**launch.arguments)"
_THEN = "launch.then.kernel[launch.then.grid](**launch.then.arguments)"
#: The constants that a launch passes which has no configuration: sizes of its own tiles, and what it needs of a row.
OF_ROW = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT")
#: How many partial sums there are of each element.
_SPLIT = 'row["SPLIT"]'
_REDUCE = "for name, reduce, parts in launch.reduced:\n    reduce(launch.parts[parts], -2, out=launch.results[name])"
_RETURNED = ('launch.results["out"]', "tuple(launch.results.values())")


@dataclass
class Gemm(Tensors):
    """What `plan` says of a launch, and what `gemm` does before it."""

    #: The operands whose extent decides between INDEX of 32 and of 64 bits.
    indexed: frozenset[str] = frozenset()
    facts: list[Condition] = field(default_factory=list)
    _scalars: set[str] = field(default_factory=set)
    _rows: dict[str, tuple[ast.expr, bool]] = field(default_factory=dict)
    _descriptors: dict[str, Descriptor] = field(default_factory=dict)
    _refuses: bool = False
    _choice: configuration_choice.Choice | None = None
    #: The columns of a partial sum for each of the result's, where room is made for the sums of every tile, and a
    #: counter at zero for each; 0 where it is not.
    _workspace: int = 0
    #: Whether the result is zero when the kernel starts.
    zeroed: bool = False
    _furthest: ast.expr | None = None
    #: The fields of what `plan` returns.
    _plan: dict[str, ast.expr] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether programs count themselves, tile by tile."""
        return self._workspace > 0

    @property
    def line(self) -> int:
        """Where the launch is planned."""
        return self._plan["arguments"].lineno

    @property
    def grid(self) -> ast.expr:
        """The grid of the launch."""
        return self._plan["grid"]

    @property
    def arguments(self) -> Mapping[str, ast.expr]:
        """What the launch passes to the kernel's parameters besides a row of CONFIGS, and tells the compiler."""
        match self._plan["arguments"]:
            case ast.Dict([*keys, None], [*values, ast.Name("row")]) if self.source.configured:
                named = _named(keys, values)
            case ast.Dict(keys, values) if not self.source.configured:
                named = _named(keys, values)
            case _:
                named = None
        if named is None:
            raise NotUnderstood(self.line, "the arguments, with the row of CONFIGS behind them")
        return named

    def read(self) -> None:
        """Take in the statements of `plan` and of `gemm`, each of which must be known."""
        function = self.source.function("plan")
        for statement in undocumented(function):
            if self._plan or not self._known(statement):
                raise NotUnderstood(statement.lineno, ast.unparse(statement).partition("\n")[0])
        if not self._plan:
            raise NotUnderstood(function.lineno, "plan returns no launch")
        self._launch(self.source.function("gemm"), function)
        configuration_choice.resets(
            self.source, {"counters_ptr"} if self._workspace else {"c_ptr"} if self.zeroed else set()
        )

    def _launch(self, gemm: ast.FunctionDef, plan: ast.FunctionDef) -> None:
        """Take in `gemm`, which must do what `plan` says, and no more."""
        found = matched(undocumented(gemm), _GEMM)
        names = [[x.arg for x in (*function.args.args, *function.args.kwonlyargs)] for function in (gemm, plan)]
        if found is None or names[0] != names[1] or names[0][:2] != ["a", "b"]:
            raise NotUnderstood(gemm.lineno, "gemm, which launches what plan returns")
        same = [keyword.arg for keyword in found["given"] if keyword.arg and matches(keyword.value, keyword.arg)]
        self.zeroed = "cleared" in self._plan
        launches = [_LAUNCH, _THEN][: len(self.source.launches)]
        inside = [*([_CLEAR] if self.zeroed else []), *launches, *([_REDUCE] if "reduced" in self._plan else [])]
        known = same == names[0][2:] and matches(found["inside"], "\n".join(inside))
        if not known or not matches(found["returned"], _RETURNED[bool(self.beside)]):
            raise NotUnderstood(gemm.lineno, "gemm, which launches what plan returns")

    def _planned(self, fields: Mapping[str, ast.expr]) -> bool:
        """Take in what `plan` returns: every field that a launch, or another by the same plan, goes by."""
        vectors = [name for name in self.beside if name in self.vectors]
        wanted = {
            "kernel": (self.source.launches[0], "kernel"),
            "results": self._results,
            "cleared": ('["out"]',),
            "workspace": ('{"work": work, "counters": counters}',) if self._workspace else (),
            "parts": (_entries(sorted(self.parts, key=lambda name: name not in BETWEEN)),) if self.parts else (),
            "reduced": ("$all",) if self._reductions(fields.get("reduced")) == vectors else (),
        }
        needed = {"kernel", "grid", "arguments", "slots", "results"}
        needed |= {"workspace"} if self._workspace else set()
        needed |= {"parts", "reduced"} if vectors else set()
        needed |= {"parts", "then"} if len(self.source.launches) > 1 else set()
        reduced = [name for name in self.parts if name not in BETWEEN]
        known = needed <= fields.keys() <= {*needed, "cleared"} and len(reduced) == len(vectors)
        if not known or not all(matches(fields[name], *wanted[name]) for name in fields.keys() & wanted.keys()):
            return False
        self._plan = dict(fields)
        return len(self.source.launches) == 1 or self._planned_then(fields["then"])

    def _planned_then(self, then: ast.expr) -> bool:
        """Take in the second launch, which is of the other kernel."""
        match then:
            case ast.Call(ast.Name("SimpleNamespace"), [], keywords):
                fields = {field.arg: field.value for field in keywords if field.arg is not None}
                between = BETWEEN & self.parts.keys()
                if fields.keys() != {"kernel", "grid", "arguments", "slots"} or len(between) != 1:
                    return False
                if SUMS in between:
                    self._same_parts(fields["arguments"])
                self.results = self.results - between if self.source.launched_second else set(between)
                if self.source.launched_second:
                    self._plan |= fields
                return matches(fields["kernel"], self.source.launches[1])
        return False

    def _same_parts(self, arguments: ast.expr) -> None:
        """Raise unless as many parts of K are stored as there is room for, and as are added."""
        match self._plan["grid"], arguments:
            case ast.Tuple([_, launched]), ast.Dict(keys, values):
                counts = [launched, self.parts[SUMS][0], (_named(keys, values) or {}).get("SPLIT")]
                wrong = [count for count in counts if count is None or not matches(count, _SPLIT)]
                if not wrong:
                    return
        raise NotUnderstood(arguments.lineno, f"parts of K, not {_SPLIT} of them in all places")

    @property
    def _results(self) -> tuple[str, ...]:
        """What the results may read as: under their names."""
        return ("results",) if self.beside else ('{"out": out}',)

    @property
    def _empty(self) -> tuple[str, ...]:
        """What a plan without a launch returns."""
        return tuple(f"return SimpleNamespace(grid=None, results={results})" for results in self._results)

    def _reductions(self, node: ast.expr | None) -> list[str]:
        """The vectors that torch makes of their parts, which the kernel has written by then."""
        found = []
        for entry in node.elts if isinstance(node, ast.List) else ():
            match entry:
                case ast.Tuple([ast.Constant(str(name)), how, ast.Constant(str(parts))]):
                    if matches(how, "torch.sum", "torch.amax") and parts == f"{name}_parts" in self.parts:
                        found.append(name)
        return found

    def _known(self, statement: ast.stmt) -> bool:
        """Take in a statement, if its meaning is known."""
        match statement:
            case ast.Expr(ast.Call(ast.Name("_check"))):
                return self.admit(statement.value)
            case ast.If(test, [ast.Assign([ast.Name("out")], made)], orelse) if matches(test, "out is None"):
                return self.output(made, orelse)
            case ast.If(test, [ast.Expr(check)], []) if matches(test, "rows is not None"):
                return self.admit(check) and "rows" in self.operands
            case ast.If(test, [ast.Raise()], []) if matches(test, "out is None", "_overlapping(out)"):
                return True
            case ast.If(ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]), [ast.Assign()], [_, *_]):
                return self.output_beside(name, statement)
            case ast.If(test, [ast.Raise()], []) if matches(test, "reason is not None"):
                self._refuses = True
                refusal = self.source.function("refusal").body
                if any(matches(part, "if rows is not None:\n    return $why") for part in refusal):
                    self.facts.append(equal(variable(helpers.NAMED), 0))
                return True
            case ast.If(test, [returned], []) if matches(test, "not _launchable(**$given)"):
                return matches(returned, *self._empty)
            case ast.If(test, [*emptied, ast.Return() as returned], []) if matches(returned, *self._empty):
                if not matches(emptied, "\n".join(f"{name}.zero_()" for name in self.vectors)):
                    return False
                self.facts.append(negation(condition_of(test, {name: variable(name) for name in SIZES}, {})))
                return True
            case ast.Assign([ast.Name(target)], bound):
                return self._chosen(statement) or self._bind(target, bound)
            case ast.Assign():
                return self._chosen(statement) or self._unpacked(statement)
            case ast.Return(ast.Call(ast.Name("SimpleNamespace"), [], fields)):
                return self._planned({field.arg: field.value for field in fields if field.arg is not None})
        return False

    def _chosen(self, statement: ast.stmt) -> bool:
        """Whether a row is chosen."""
        choice = configuration_choice.chosen(statement)
        self._choice = choice or self._choice
        return choice is not None

    def _unpacked(self, statement: ast.stmt) -> bool:
        """Take in what several names are assigned."""
        for names, read in helpers.READ.items():
            if matches(statement, f"{', '.join(names)} = _sizes({read})"):
                self.sizes = names
                self.facts += helpers.sizes(self.source, names)
                return True
        room = matched(statement, "work, counters = $room")
        if room is not None:
            self._workspace = helpers.workspace(self.source, room["room"])
            return True
        # With K = 0 a small matrix of zeros, which has a shape and strides of its own.
        summed = self.sizes[-1] if self.sizes else "K"
        turned = matched(statement, f"a_rows, b_rows = ($a, $b) if {summed} else $zeros")
        if turned is not None:
            self._rows = {"a_rows": self.flip(turned["a"]), "b_rows": self.flip(turned["b"])}
        return turned is not None

    def _bind(self, target: str, node: ast.expr) -> bool:
        """Take in what a name is assigned."""
        match target:
            case "reason" if matches(node, "refusal(a, b, **$others)"):
                self._refuses = False
            case "R" if matches(node, "a.shape[0]"):
                pass
            case "results" if self.beside:
                return matches(node, _entries(["out", *self.beside]))
            case "blocks" if matches(node, "row or CONFIGS[0]"):
                pass
            case "furthest":
                self._furthest = node
            case "index":
                self.indexed = helpers.indexed(self.source, node, self.operands, self._furthest)
            case _ if target.endswith("_parts") or target in BETWEEN:
                return self.room(target, node)
            case _ if matches(node, f"_scalar('{target}', {target}, a.device)"):
                helpers.scalar(self.source)
                self._scalars.add(target)
                self.operands[target] = Operand(target, (poly(1),), 0)
            case _:
                return target.endswith("_desc") and self._describe(target, node)
        return True

    def _describe(self, target: str, node: ast.expr) -> bool:
        """`a_desc = _describe(a.T, ...)`: the operand's own shape and strides, if its last dimension has stride 1."""
        found = matched(node, "_describe($matrix, $block)")
        if found is None:
            return False
        helpers.describe(self.source, self.sizes)
        matrix, flipped = self.flip(found["matrix"])
        if isinstance(matrix, ast.Name) and matrix.id in self._rows and not flipped:
            matrix, flipped = self._rows[matrix.id]
        if not isinstance(matrix, ast.Name) or matrix.id not in self.operands:
            return False
        name, block = matrix.id, found["block"]
        dimensions, stride = len(self.operands[name].shape), self.operands[name].unit
        unit = dimensions - (2 if flipped else 1)
        fault = None if stride == unit else f"described with stride 1 along dimension {unit}, admitted with {stride}"
        sizes = tuple(block.elts) if isinstance(block, ast.Tuple) else ()
        self._descriptors[target] = Descriptor(name, dimensions, fault, sizes, flipped)
        return True


def _named(keys: Iterable[ast.expr | None], values: list[ast.expr]) -> dict[str, ast.expr] | None:
    """The values of a dictionary by their names; None if some have none, or another's."""
    named = {str(key.value): value for key, value in zip(keys, values) if isinstance(key, ast.Constant)}
    return named if len(named) == len(values) else None


def _entries(names: Iterable[str]) -> str:
    """A dictionary of variables by their names."""
    return "{" + ", ".join(f'"{name}": {name}' for name in names) + "}"
