"""Memory of a backend: of a pool, of another process, or (in array.py) an array of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from . import _fast, buffers
from ._raw import ffi, lib
from .backend import Backend, Device, backend_of
from .constants import DType, MemoryKind
from .error import check
from .lifecycle import new_info

# DLPack's types of devices whose memory CUDA uses.
CUDA_DEVICES = (2, 3, 13)


class Lease:
    """Memory that is given back when nothing uses it any more."""

    def __init__(self, give_back: Callable[[], object]) -> None:
        self._give_back = give_back

    def __del__(self) -> None:
        if lib is not None:  # the end of the interpreter
            self._give_back()


class Memory:
    """Memory with a shape and a dtype: from `Pool.memory` or `Memory.from_handle`, or an `Array`.

    It is a buffer of messages, collectives, windows, streams and kernels. It is given back with its
    last reference, when the operations that use it are complete.
    """

    # Owner of the memory, which every operation keeps; None after destroy.
    _memory: object
    shape: tuple[int, ...]
    # Distances between elements along each axis, in elements, not bytes.
    strides: tuple[int, ...]
    dtype: int
    kind: int
    device: Device
    # Address of the first element.
    address: int
    # Number of elements.
    count: int
    is_read_only: bool
    is_contiguous: bool

    @classmethod
    def _over(
        cls,
        pointer: Any,
        extents: Sequence[int],
        dtype: DType | int,
        kind: int,
        device: Device,
        owner: object,
    ) -> Memory:
        self = Memory.__new__(Memory)
        self._memory = owner
        self.shape = tuple(extents)
        self.strides = tuple(math.prod(extents[axis + 1 :]) for axis in range(len(extents)))
        self.dtype = DType(dtype) if dtype in set(DType) else int(dtype)
        self.kind, self.device = kind_of(kind), device
        self.address = int(ffi.cast("uintptr_t", pointer))
        self.count = math.prod(extents)
        self.is_read_only, self.is_contiguous = False, True
        return self

    @classmethod
    def from_handle(
        cls,
        handle: Any,
        shape: int | Sequence[int] | None = None,
        dtype: DType | int = DType.FLOAT64,
        *,
        backend: Backend | str | None = "host",
    ) -> Memory:
        """Maps memory that another process exported.

        `handle` is a buffer with the bytes of `Array.export_handle`. Without `shape` the result has
        one axis over the whole memory. It stays valid when the other process destroys its own or
        ends. Writes are visible to the other processes after a message or a barrier.
        """
        data, room = memoryview(handle).cast("B"), ffi.new("dtl_mem_handle_t *")
        if len(data) != ffi.sizeof(room[0]):
            raise ValueError(f"handle has {len(data)} bytes: one has {ffi.sizeof(room[0])}")
        ffi.buffer(room)[:] = data
        source = backend_of(backend)
        out, size_bytes = ffi.new("void **"), ffi.new("uint64_t *")
        check(lib.dtl_mem_import(source._handle, room, out, size_bytes))
        pointer = out[0]
        # Freeing fails after dtl.finalize only, which has unmapped it.
        owner = Lease(lambda: lib.dtl_mem_free(source._handle, pointer))
        whole = [size_bytes[0] // size_of([1], dtype)]
        extents = whole if shape is None else extents_of(shape)
        needed = size_of(extents, dtype)
        if needed > size_bytes[0]:
            raise ValueError(f"shape {extents} has {needed} bytes, the memory {size_bytes[0]}")
        info = new_info("dtl_mem_info")
        check(lib.dtl_mem_query(pointer, info))
        return cls._over(pointer, extents, dtype, int(info.kind), source.current_device, owner)

    def destroy(self) -> None:
        """Ends the use of the memory: calls with it raise BufferError.

        It is given back at once, or when the last operation that uses it is complete: its request
        was waited for, its stream, or its window was flushed. A second call has no effect.
        """
        self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def numpy(self) -> Any:
        """Returns a NumPy array over the memory, which the host can access. It keeps the memory."""
        import numpy

        _, _, _, memory = self._span(False)
        info = new_info("dtl_mem_kind_info")
        check(lib.dtl_mem_kind_info(self.device.backend._handle, int(self.kind), info))
        if not info.properties & lib.DTL_MEMORY_HOST_ACCESSIBLE:
            raise BufferError("the host cannot access this kind of memory: use copy_to")
        name = {DType.BYTE: "u1"}.get(self.dtype) or buffers.TYPESTR.get(self.dtype)  # type: ignore[call-overload]
        if name is None:
            raise BufferError(f"NumPy has no type for dtype {self.dtype!r}: use copy_to")
        block = memoryview(_fast.Block(self.address, self.size_bytes, False, memory))
        return numpy.frombuffer(block, dtype=name).reshape(self.shape)

    def copy_from(self, source: Any) -> None:
        """Copies the elements of an array or buffer with as many bytes. Blocks."""
        self._transfer(buffers.span(source, False), is_from=True)

    def copy_to(self, target: Any) -> None:
        """Copies the elements to an array or buffer with as many bytes. Blocks."""
        self._transfer(buffers.span(target, True), is_from=False)

    def _transfer(self, other: buffers.Span, is_from: bool) -> None:
        mine = buffers.span(self, is_from)
        size, given = self.size_bytes, other.count * buffers.ITEM_BYTES.get(DType(other.dtype), 1)
        if size != given:
            raise ValueError(f"the other buffer has {given} bytes, the array {size}: pass as many")
        pointers = (mine, other) if is_from else (other, mine)
        check(lib.dtl_mem_copy(pointers[0].pointer, pointers[1].pointer, size))

    @property
    def item_bytes(self) -> int:
        """Size of an element in bytes."""
        return size_of([1], self.dtype)

    @property
    def size_bytes(self) -> int:
        """Size of all elements in bytes."""
        return self.count * self.item_bytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._dlpack_type() not in CUDA_DEVICES:
            raise AttributeError("the memory is not in memory of CUDA")
        return interface(self)

    def _dlpack_type(self) -> int:
        return self.device.dlpack[0]

    def _span(self, writable: bool) -> tuple[int, int, int, object]:
        memory = self._memory
        if memory is None:
            raise BufferError("the memory was destroyed")
        if writable and self.is_read_only:
            raise BufferError("the array is read-only, and the call writes it: pass a copy")
        if not self.is_contiguous:
            raise BufferError(f"the array has strides {self.strides}: send a copy (Array.copy)")
        return self.address, self.count, int(self.dtype), memory


def extents_of(shape: int | Sequence[int]) -> list[int]:
    """Returns the extents of a shape."""
    return [shape] if isinstance(shape, int) else list(shape)


def kind_of(kind: int) -> int:
    """Returns a memory kind as a member of MemoryKind, if it is one."""
    return MemoryKind(kind) if kind in set(MemoryKind) else int(kind)


def size_of(extents: Sequence[int], dtype: DType | int) -> int:
    """Returns the size in bytes of the elements of an array."""
    size = ffi.new("uint64_t *")
    check(lib.dtl_dtype_size(int(dtype), size))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape {list(extents)}: extents are 0 or more")
    return math.prod(extents) * int(size[0])


def interface(memory: Memory) -> dict[str, Any]:
    """Returns the description of an array for `__cuda_array_interface__`, version 3."""
    typestr = buffers.TYPESTR.get(memory.dtype)  # type: ignore[call-overload]
    if typestr is None:
        raise AttributeError(f"dtype {memory.dtype!r} has no type string")
    order = "|" if typestr[1:] == "1" else "<"
    strides = tuple(stride * memory.item_bytes for stride in memory.strides)
    return {
        "shape": memory.shape,
        "typestr": order + typestr,
        "data": (memory.address, memory.is_read_only),
        "strides": None if memory.is_contiguous else strides,
        "version": 3,
        "stream": None,
    }
