"""Arrays: memory of any backend with a shape, exchanged with other libraries without copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _fast
from ._raw import ffi, lib
from .backend import Backend, Device, backend_of
from .constants import DType, MemoryKind
from .error import check
from .handle import Owned
from .lifecycle import new_info
from .memory import CUDA_DEVICES, Memory, extents_of, kind_of

# DLPack's type of the memory of the CPU.
_CPU = 1


class _Handle(Owned):
    """The library's array. Destroyed with its last reference: that of an Array or an operation."""

    _noun = "array"

    def __init__(self, handle: Any) -> None:
        self._handle = handle


class Array(Memory):
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
        extents = extents_of(shape)
        out = ffi.new("dtl_array_t *")
        status = lib.dtl_array_alloc(
            backend_of(backend)._handle, int(kind), ffi.new("int64_t[]", extents or [0]),
            len(extents), int(dtype), lib.DTL_ARRAY_ZERO if zero else 0, out,
        )  # fmt: skip
        check(status)
        self._adopt(out[0])

    def _adopt(self, handle: Any) -> None:
        self._handle = handle
        self._memory = _Handle(handle)
        info = new_info("dtl_array_info")
        check(lib.dtl_array_info(handle, info))
        self.shape = tuple(info.shape[i] for i in range(info.ndim))
        self.strides = tuple(info.strides[i] for i in range(info.ndim))
        self.dtype = DType(info.dtype) if info.dtype in set(DType) else int(info.dtype)
        self.kind = kind_of(info.kind)
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
        super().destroy()
        self._handle = ffi.new("dtl_array_t *")[0]

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
            if kind != _CPU and kind not in CUDA_DEVICES:
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
        `Memory.from_handle` while this process has the array. The memory is of an exportable kind:
        SHARED on "host". Equivalent: cudaIpcGetMemHandle.
        """
        out = ffi.new("dtl_mem_handle_t *")
        _, _, _, memory = self._span(False)
        check(lib.dtl_mem_export(ffi.cast("void *", self.address), out), memory)
        return bytes(ffi.buffer(out))

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

    def _dlpack_type(self) -> int:
        return self.__dlpack_device__()[0]

    def __dlpack_device__(self) -> tuple[int, int]:
        tensor = ffi.new("dtl_dlpack_tensor_t *")
        check(lib.dtl_array_view(self._handle, tensor))
        return int(tensor.device.device_type), int(tensor.device.device_id)
