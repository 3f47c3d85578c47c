"""Buffers of messages: what the library reads and writes, without copies.

A buffer is an object with Python's buffer protocol (NumPy arrays, bytearray, array.array), memory
of a device with `__cuda_array_interface__` (CuPy, torch, numba), or a `dtl.Array`. Its dtype and
number of elements are those of the object; elements that the library has no dtype for are sent as
bytes.
"""

from __future__ import annotations

from typing import Any

from . import _fast
from ._raw import ffi
from .constants import DType


class InPlace:
    """Type of IN_PLACE."""

    def __repr__(self) -> str:
        return "dtl.IN_PLACE"


# Buffer of a collective: this rank's data is in the other buffer. Equivalent: MPI_IN_PLACE.
IN_PLACE = InPlace()

# Dtypes of the type strings of __cuda_array_interface__, without their byte order.
_BY_TYPESTR = {
    "i1": DType.INT8, "i2": DType.INT16, "i4": DType.INT32, "i8": DType.INT64,
    "u1": DType.UINT8, "u2": DType.UINT16, "u4": DType.UINT32, "u8": DType.UINT64,
    "f2": DType.FLOAT16, "f4": DType.FLOAT32, "f8": DType.FLOAT64,
    "c8": DType.COMPLEX64, "c16": DType.COMPLEX128, "b1": DType.BOOL,
}  # fmt: skip
TYPESTR = {dtype: name for name, dtype in _BY_TYPESTR.items()}
ITEM_BYTES = {dtype: int(name[1:]) for name, dtype in _BY_TYPESTR.items()} | {
    DType.BYTE: 1,
    DType.BFLOAT16: 2,
}


# Looked up once: these are on the path of each message.
_ADDRESS = ffi.typeof("void *")
_BYTE = int(DType.BYTE)


class Span:
    """Address, number and dtype of elements, and the object that keeps them alive."""

    __slots__ = ("count", "dtype", "owner", "pointer")

    def __init__(self, address: int, count: int, dtype: int, owner: object) -> None:
        self.pointer: Any = ffi.cast(_ADDRESS, address)
        self.count = count
        self.dtype = dtype
        self.owner = owner


def span(buffer: Any, writable: bool) -> Span:
    """Returns the memory of a buffer. The buffer stays in use as long as the result exists."""
    try:
        found = _fast.Buffer(buffer, writable)
    except (TypeError, BufferError, ValueError) as error:
        return _other(buffer, writable, error)
    if found.dtype == _BYTE and getattr(buffer, "dtype", None) == "bfloat16":
        return Span(found.address, found.count // 2, DType.BFLOAT16, found)
    return Span(found.address, found.count, found.dtype, found)


def _other(buffer: Any, writable: bool, error: Exception) -> Span:
    found = getattr(buffer, "_span", None)
    if found is not None:
        return Span(*found(writable))
    try:
        interface = buffer.__cuda_array_interface__
    except AttributeError:
        dtype = getattr(buffer, "dtype", None)
        if str(dtype) == "bfloat16" and hasattr(buffer, "view"):
            half = span(buffer.view("uint16"), writable)
            return Span(int(ffi.cast("uintptr_t", half.pointer)), half.count, DType.BFLOAT16, half)
        reason = str(error).rstrip(".")
        why = (
            f"a buffer is {type(buffer).__name__}: {reason}. Pass a contiguous object with the "
            "buffer protocol (a NumPy array, bytearray), a dtl.Array, or device memory with "
            "__cuda_array_interface__."
        )
        raise (TypeError if isinstance(error, TypeError) else BufferError)(why) from error
    return _of_cuda(buffer, interface, writable)


def _of_cuda(buffer: Any, interface: dict[str, Any], writable: bool) -> Span:
    shape, typestr = interface["shape"], interface["typestr"]
    address, read_only = interface["data"]
    if writable and read_only:
        raise BufferError("the device array is read-only, and the call writes it")
    count = 1
    for extent in shape:
        count *= extent
    item_bytes = int(typestr[2:])
    strides = interface.get("strides")
    if strides is not None and count > 0:
        expected = item_bytes
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent != 1 and stride != expected:
                raise BufferError(f"the device array has strides {strides}: make it contiguous")
            expected *= extent
    dtype = _BY_TYPESTR.get(typestr[1:], DType.BYTE)
    return Span(address, count if dtype != DType.BYTE else count * item_bytes, dtype, buffer)


def require_same(name: str, one: Span, other_name: str, other: Span) -> None:
    """Raises TypeError unless two buffers of one call have the same dtype."""
    if one.dtype != other.dtype:
        first, second = DType(one.dtype).name, DType(other.dtype).name
        raise TypeError(
            f"{name} has elements of {first}, {other_name} of {second}: pass the same dtype"
        )


def in_place(buffer: Any, writable: bool) -> Span | None:
    """Returns the memory of a buffer, or None for IN_PLACE."""
    return None if isinstance(buffer, InPlace) else span(buffer, writable)
