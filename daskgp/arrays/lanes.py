"""Vectors of eight numbers for compiled code: eight small problems side by side.

Inside functions compiled by numba, ``load`` gives eight float64 numbers from memory, arithmetic
acts on all of them, and ``store`` puts them back.  They are LLVM vectors, so the code is that of
the processor's vector unit whatever the compiler makes of loops.  Memory is a pointer: parts that
pass arrays to one another take several times as long to compile.  Importing this needs numba.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set")

LANES = 8
"""Numbers in a vector."""
NUMBERS = ir.VectorType(ir.DoubleType(), LANES)
BITS = ir.VectorType(ir.IntType(64), LANES)
ALIGN = 8
"""Bytes on whose multiples numbers lie."""


class LanesType(types.Type):
    """Type of eight numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


lanes = LanesType()


@register_model(LanesType)
class LanesModel(models.PrimitiveModel):
    """Representation of eight numbers as an LLVM vector."""

    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, NUMBERS)


numbers = types.CPointer(types.float64)
"""Type of a pointer to numbers."""


SETTINGS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def part(function: Callable[..., Any], inline: bool = False) -> Any:
    """Compile a function that only compiled functions call, when they are."""
    return numba.njit(
        function,
        forceinline=inline,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        **SETTINGS,
    )


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function as ``part``, to be taken in wherever it is called."""
    return part(function, inline=True)


def entry(*arguments: Any) -> Callable[..., Any]:
    """Compile a function of some types without a result that Python calls.

    What is compiled is kept in a file for later processes if there is a folder to keep it in.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(types.void(*arguments), cache=True, **SETTINGS)(function)
        except (RuntimeError, OSError):
            return numba.njit(types.void(*arguments), **SETTINGS)(function)

    return decorate


@intrinsic
def pointer(typing_context: Any, array: Any) -> Any:
    """Return a pointer to the numbers of a contiguous array, which the caller has to keep."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.bitcast(data, context.get_value_type(signature.return_type))

    return types.CPointer(array.dtype)(array), code


@intrinsic
def moved(typing_context: Any, start: Any, offset: Any) -> Any:
    """Return a pointer some numbers further on."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return numbers(numbers, types.int64), code


def _lanes_at(builder: Any, start: Any, offset: Any) -> Any:
    return builder.bitcast(builder.gep(start, [offset]), NUMBERS.as_pointer())


@intrinsic
def load(typing_context: Any, start: Any, offset: Any) -> Any:
    """Return eight numbers from ``offset`` on."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_lanes_at(builder, *arguments), align=ALIGN)

    return lanes(numbers, types.int64), code


@intrinsic
def store(typing_context: Any, start: Any, offset: Any, values: Any) -> Any:
    """Put eight numbers from ``offset`` on."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _lanes_at(builder, *arguments[:2]), align=ALIGN)
        return context.get_dummy_value()

    return types.void(numbers, types.int64, lanes), code


@intrinsic
def fill(typing_context: Any, value: Any) -> Any:
    """Return eight times the same number."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _filled(builder, arguments[0])

    return lanes(types.float64), code


def _filled(builder: Any, value: Any) -> Any:
    zero = ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(ir.Constant(NUMBERS, ir.Undefined), value, zero)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(NUMBERS, ir.Undefined), mask)


def _called(name: str, count: int) -> Any:
    """Return an intrinsic that is LLVM's own of that name and number of arguments."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(NUMBERS, [NUMBERS] * count)
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.{name}.v8f64")
        return builder.call(function, arguments)

    return code


@intrinsic
def muladd(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a b + c, rounded once where the processor can."""
    return lanes(lanes, lanes, lanes), _called("fmuladd", 3)


@intrinsic
def root(typing_context: Any, a: Any) -> Any:
    """Return the square roots, NaN of negative numbers."""
    return lanes(lanes), _called("sqrt", 1)


@intrinsic
def negative(typing_context: Any, a: Any) -> Any:
    """Return -a."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fneg(arguments[0])

    return lanes(lanes), code


@intrinsic
def largest(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the larger of each pair; the second if one is NaN."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *arguments), *arguments)

    return lanes(lanes, lanes), code


@intrinsic
def smallest(typing_context: Any, a: Any, b: Any) -> Any:
    """Return the smaller of each pair; the second if one is NaN."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return lanes(lanes, lanes), code


@intrinsic
def total(typing_context: Any, a: Any) -> Any:
    """Return the sum of eight numbers, added pairwise."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        parts = [
            builder.extract_element(arguments[0], ir.Constant(ir.IntType(32), i))
            for i in range(LANES)
        ]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
        return parts[0]

    return types.float64(lanes), code


@intrinsic
def _power_of_two_times(typing_context: Any, a: Any, shifted: Any) -> Any:
    """Return a 2^n for a near 1 and shifted = 1.5 2^52 + n, by adding n to the exponent of a."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, n = (builder.bitcast(x, BITS) for x in arguments)
        moved = builder.shl(n, ir.Constant(BITS, [52] * LANES))
        return builder.bitcast(builder.add(number, moved), NUMBERS)

    return lanes(lanes, lanes), code


def _add_operator(symbol: Callable[..., Any], name: str) -> None:
    """Have an operator between two vectors, an instruction of LLVM."""

    class Between(ConcreteTemplate):
        cases: ClassVar[list[Any]] = [signature(lanes, lanes, lanes)]

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, name)(*arguments)

    infer_global(symbol)(Between)
    lower_builtin(symbol, lanes, lanes)(code)


_add_operator(operator.add, "fadd")
_add_operator(operator.sub, "fsub")
_add_operator(operator.mul, "fmul")
_add_operator(operator.truediv, "fdiv")


@inlined
def exponential(x: Any) -> Any:
    """Return exp(x) for x up to 700; at least exp(-200), so that products stay normal numbers.

    NaN of NaN: ``f`` is NaN then, while adding to the exponent of one may make it a number.

    x = n log 2 + f with |f| at most half of log 2, and exp(f) is its series.
    """
    x = largest(fill(-200.0), x)
    shift = fill(6755399441055744.0)  # 1.5 2^52: adding it rounds to a whole number
    shifted = muladd(x, fill(1.4426950408889634), shift)
    n = shifted - shift
    f = muladd(n, fill(-6.93147180369123816490e-01), x)
    f = muladd(n, fill(-1.90821492927058770002e-10), f)
    s = fill(1.0 / 6227020800.0)
    s = muladd(s, f, fill(1.0 / 479001600.0))
    s = muladd(s, f, fill(1.0 / 39916800.0))
    s = muladd(s, f, fill(1.0 / 3628800.0))
    s = muladd(s, f, fill(1.0 / 362880.0))
    s = muladd(s, f, fill(1.0 / 40320.0))
    s = muladd(s, f, fill(1.0 / 5040.0))
    s = muladd(s, f, fill(1.0 / 720.0))
    s = muladd(s, f, fill(1.0 / 120.0))
    s = muladd(s, f, fill(1.0 / 24.0))
    s = muladd(s, f, fill(1.0 / 6.0))
    s = muladd(s, f, fill(0.5))
    s = muladd(s, f, fill(1.0))
    s = muladd(s, f, fill(1.0))
    return muladd(f, fill(0.0), _power_of_two_times(s, shifted))
