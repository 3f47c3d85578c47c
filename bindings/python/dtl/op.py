"""Reduction operations in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import buffers, text
from ._raw import ffi, lib
from .constants import DType
from .error import check

# Handles of the functions of operations that exist: a collective in progress may call them.
_functions: dict[int, Any] = {}


class ReduceOp(int):
    """A reduction operation: `function(lower, upper)` returns the elements of lower op upper.

    Both are NumPy arrays over the operands; the result is an array of as many elements. The
    operation must be associative. An exception in the function is printed, and the elements are
    undefined. It is an int, as members of Op are. Create it once. After `destroy` no collective can
    be started with it; those in progress continue.
    """

    # Keeps the function for a blocking collective, which has this object as its argument.
    _function: Any

    def __new__(
        cls,
        function: Callable[[Any, Any], Any],
        name: str | None = None,
        *,
        commutes: bool = False,
    ) -> ReduceOp:
        out = ffi.new("dtl_reduce_op_t *")
        handle = ffi.new_handle(function)
        label = text.encode(name if name is not None else getattr(function, "__name__", "function"))
        flags = lib.DTL_OP_COMMUTES if commutes else 0
        check(lib.dtl_op_create(lib.python_op, handle, flags, label, out))
        _functions[out[0]] = handle
        self = super().__new__(cls, out[0])
        self._function = handle
        return self

    def destroy(self) -> None:
        """Destroys the operation."""
        check(lib.dtl_op_destroy(int(self)))
        _functions.pop(int(self), None)


def function_of(op: int) -> object:
    """Returns what keeps the function of an operation alive; None for the built-in ones."""
    return _functions.get(op)


@ffi.def_extern()
def python_op(lower: Any, upper: Any, count: int, dtype: int, user: Any) -> None:
    """Reduces elements; the result is where the operand of the upper ranks is."""
    import numpy

    typestr = buffers.TYPESTR[DType(dtype)]
    size_bytes = count * int(typestr[1:])
    operands = [numpy.frombuffer(ffi.buffer(one, size_bytes), typestr) for one in (lower, upper)]
    operands[1][:] = ffi.from_handle(user)(operands[0], operands[1])
