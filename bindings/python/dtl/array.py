"""Arrays: memory of any backend with a shape, exchanged with other libraries without copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from . import _fast, buffers
from ._raw import ffi, lib
from .backend import Backend, Device, backend_of
from .constants import DType, MemoryKind
from .error import check
from .handle import Owned
from .lifecycle import new_info

# DLPack's types of devices whose memory CUDA uses.
_CUDA_DEVICES = (2, 3, 13)
_CPU = 1


class _Memory(Owned):
    """The library's array. Destroyed with its last reference: that of an Array or an operation."""

    _noun = "array"

    def __init__(self, handle: Any) -> None:
        self._handle = handle


class Array:
    """Memory with a shape and a dtype.

    numpy.from_dlpack, torch.from_dlpack and others take it without a copy, and `Array.of` takes
    theirs. An Array on a CUDA device has `__cuda_array_interface__`. It is destroyed with its last
    reference; the memory exists until the operations that use it are complete and the arrays made
    from it are gone, too.
    """

    _handle: Any

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: DType | int = DType.FLOAT64,
        *,
        backend: Backend | str | None = None,
        kind: MemoryKind | int = MemoryKind.HOST,
        zero: bool = True,
    ) -> None:
        """Allocates an array on the current device."""
        extents = [shape] if isinstance(shape, int) else list(shape)
        out = ffi.new("dtl_array_t *")
        status = lib.dtl_array_alloc(
            backend_of(backend)._handle, int(kind), ffi.new("int64_t[]", extents or [0]),
            len(extents), int(dtype), lib.DTL_ARRAY_ZERO if zero else 0, out,
        )  # fmt: skip
        check(status)
        self._adopt(out[0])

    def _adopt(self, handle: Any) -> None:
        self._handle = handle
        self._memory: _Memory | None = _Memory(handle)
        info = new_info("dtl_array_info")
        check(lib.dtl_array_info(handle, info))
        self.shape: tuple[int, ...] = tuple(info.shape[i] for i in range(info.ndim))
        # Distances in elements, not bytes.
        self.strides: tuple[int, ...] = tuple(info.strides[i] for i in range(info.ndim))
        self.dtype: int = DType(info.dtype) if info.dtype in set(DType) else int(info.dtype)
        self.kind: int = MemoryKind(info.kind) if info.kind in set(MemoryKind) else int(info.kind)
        self.device = Device(Backend._of(info.backend), info.device)
        self.address = int(ffi.cast("uintptr_t", info.data))
        self.count = int(info.count)
        self.is_read_only = bool(info.flags & lib.DTL_ARRAY_READ_ONLY)
        self.is_contiguous = bool(info.flags & lib.DTL_ARRAY_CONTIGUOUS)

    def destroy(self) -> None:
        """Destroys the array: calls with it raise BufferError, or Error with INVALID_HANDLE.

        The memory is freed at once, or when the last operation that uses it is complete: its
        request was waited for, its stream, or its window was flushed. A second call has no effect.
        """
        self._handle = ffi.new("dtl_array_t *")[0]
        self._memory = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    @classmethod
    def _made(cls, handle: Any) -> Array:
        self = cls.__new__(cls)
        self._adopt(handle)
        return self

    @classmethod
    def of(cls, other: Any, backend: Backend | str | None = None) -> Array:
        """Returns an array over the memory of another library's array (DLPack), without a copy.

        `backend` None is "host" for CPU memory and "cuda" for memory of CUDA.
        """
        if backend is None:
            kind, _ = other.__dlpack_device__()
            if kind != _CPU and kind not in _CUDA_DEVICES:
                raise ValueError(f"DLPack device type {kind}: name the backend of the array")
            backend = "host" if kind == _CPU else "cuda"
        try:
            capsule = other.__dlpack__(max_version=(1, 0))
        except TypeError:
            capsule = other.__dlpack__()  # before DLPack 1
        address, versioned = _fast.tensor_of(capsule)
        out = ffi.new("dtl_array_t *")
        kind_of_tensor = "dtl_dlpack_versioned_t *" if versioned else "dtl_dlpack_managed_t *"
        tensor = ffi.cast(kind_of_tensor, address)
        take = lib.dtl_array_import if versioned else lib.dtl_array_import_unversioned
        check(take(backend_of(backend)._handle, tensor, out))
        _fast.consume(capsule)
        return cls._made(out[0])

    def export_handle(self) -> bytes:
        """Returns a handle by which other processes of the node map the same memory.

        The handle is plain data: send it, or pass it as an argument. It serves any number of
        `from_handle` while this process has the array. The memory is of an exportable kind: SHARED
        on "host". Equivalent: cudaIpcGetMemHandle.
        """
        out = ffi.new("dtl_mem_handle_t *")
        _, _, _, memory = self._span(False)
        check(lib.dtl_mem_export(ffi.cast("void *", self.address), out), memory)
        return bytes(ffi.buffer(out))

    @classmethod
    def from_handle(
        cls,
        handle: Any,
        shape: int | Sequence[int] | None = None,
        dtype: DType | int = DType.FLOAT64,
        *,
        backend: Backend | str | None = "host",
    ) -> Array:
        """Maps memory that another process exported, as an array.

        `handle` is a buffer with the bytes of `export_handle`. Without `shape` the array has one
        axis over the whole memory. The array stays valid when the other process destroys its own or
        ends. Writes are visible to the other processes after a message or a barrier.
        """
        data, room = memoryview(handle).cast("B"), ffi.new("dtl_mem_handle_t *")
        if len(data) != ffi.sizeof(room[0]):
            raise ValueError(f"handle has {len(data)} bytes: one has {ffi.sizeof(room[0])}")
        ffi.buffer(room)[:] = data
        owner = backend_of(backend)
        out, size_bytes = ffi.new("void **"), ffi.new("uint64_t *")
        check(lib.dtl_mem_import(owner._handle, room, out, size_bytes))
        pointer = out[0]

        def unmap() -> None:
            # Fails after dtl.finalize only, which has unmapped it.
            lib.dtl_mem_free(owner._handle, pointer)

        try:
            if shape is None:
                extents = [size_bytes[0] // size_of([1], dtype)]
            else:
                extents = [shape] if isinstance(shape, int) else list(shape)
            needed = size_of(extents, dtype)
            if needed > size_bytes[0]:
                raise ValueError(f"shape {extents} has {needed} bytes, the memory {size_bytes[0]}")
            return lent(pointer, extents, dtype, owner.current_device, unmap)
        except BaseException:
            unmap()
            raise

    def copy(
        self,
        backend: Backend | str | None = None,
        kind: MemoryKind | int = MemoryKind.HOST,
    ) -> Array:
        """Returns a contiguous copy in memory of a backend; None is that of this array."""
        target = self.device.backend if backend is None else backend_of(backend)
        out = ffi.new("dtl_array_t *")
        check(lib.dtl_array_copy(self._handle, target._handle, int(kind), out))
        return Array._made(out[0])

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

    def numpy(self) -> Any:
        """Returns a NumPy array over the memory, which the host can access."""
        import numpy

        return numpy.from_dlpack(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a capsule for from_dlpack. Work that writes the array must be complete."""
        if copy or (dl_device is not None and dl_device != self.__dlpack_device__()):
            raise BufferError("dtl.Array exports its memory without a copy: use Array.copy")
        versioned = max_version is not None and max_version[0] >= 1
        if versioned:
            out = ffi.new("dtl_dlpack_versioned_t **")
            check(lib.dtl_array_export(self._handle, out))
        else:
            out = ffi.new("dtl_dlpack_managed_t **")
            check(lib.dtl_array_export_unversioned(self._handle, out))
        return _fast.capsule_of(int(ffi.cast("uintptr_t", out[0])), versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        tensor = ffi.new("dtl_dlpack_tensor_t *")
        check(lib.dtl_array_view(self._handle, tensor))
        return int(tensor.device.device_type), int(tensor.device.device_id)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__()[0] not in _CUDA_DEVICES:
            raise AttributeError("the array is not in memory of CUDA")
        return interface(self)

    def _span(self, writable: bool) -> tuple[int, int, int, object]:
        memory = self._memory
        if memory is None:
            raise BufferError("the array was destroyed")
        if writable and self.is_read_only:
            raise BufferError("the array is read-only, and the call writes it: pass a copy")
        if not self.is_contiguous:
            raise BufferError(f"the array has strides {self.strides}: send a copy (Array.copy)")
        return self.address, self.count, int(self.dtype), memory


def size_of(extents: Sequence[int], dtype: DType | int) -> int:
    """Returns the size in bytes of the elements of an array."""
    size = ffi.new("uint64_t *")
    check(lib.dtl_dtype_size(int(dtype), size))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"shape {list(extents)}: extents are 0 or more")
    return math.prod(extents) * int(size[0])


# DLPack's codes of types, by the letter of a type string.
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4

# Tensors of memory that is lent to arrays of the library, with what they point to and the function
# that takes the memory back; by their addresses.
_lent: dict[int, tuple[Any, Any, Callable[[], None]]] = {}


@ffi.callback("void(void *)")  # type: ignore[untyped-decorator,unused-ignore]
def _take_back(tensor: Any) -> None:
    """Deleter of the tensors."""
    _, _, take_back = _lent.pop(int(ffi.cast("uintptr_t", tensor)))
    take_back()


def lent(
    pointer: Any,
    extents: Sequence[int],
    dtype: DType | int,
    device: Device,
    take_back: Callable[[], None],
) -> Array:
    """Returns an array over memory, for whose end of use take_back() is called.

    After an exception the memory is still the caller's.
    """
    name = {DType.BYTE: "u1", DType.BFLOAT16: "f2"}.get(DType(dtype)) or buffers.TYPESTR.get(
        DType(dtype)
    )
    if name is None:
        raise ValueError(f"dtype {dtype!r}: arrays over other memory have elements of one number")
    shape = ffi.new("int64_t[]", list(extents) or [0])
    managed = ffi.new("dtl_dlpack_versioned_t *")
    managed.version.major, managed.deleter = lib.DTL_DLPACK_MAJOR, _take_back
    tensor = managed.tensor
    tensor.data, tensor.shape, tensor.ndim = pointer, shape, len(extents)
    tensor.dtype.code = _BFLOAT if dtype == DType.BFLOAT16 else _CODES[name[0]]
    tensor.dtype.bits, tensor.dtype.lanes = 8 * int(name[1:]), 1
    tensor.device.device_type, tensor.device.device_id = device.dlpack
    number = int(ffi.cast("uintptr_t", managed))
    _lent[number] = managed, shape, take_back
    out = ffi.new("dtl_array_t *")
    status = lib.dtl_array_import(device.backend._handle, managed, out)
    if status != 0:
        del _lent[number]
        check(status)
    return Array._made(out[0])


def interface(array: Array) -> dict[str, Any]:
    """Returns the description of an array for `__cuda_array_interface__`, version 3."""
    typestr = buffers.TYPESTR.get(array.dtype)  # type: ignore[call-overload]
    if typestr is None:
        raise AttributeError(f"dtype {array.dtype!r} has no type string")
    order = "|" if typestr[1:] == "1" else "<"
    strides = tuple(stride * array.item_bytes for stride in array.strides)
    return {
        "shape": array.shape,
        "typestr": order + typestr,
        "data": (array.address, array.is_read_only),
        "strides": None if array.is_contiguous else strides,
        "version": 3,
        "stream": None,
    }
