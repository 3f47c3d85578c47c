"""Memory pools: memory of a backend that is reused without a call of its allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._raw import ffi, lib
from .array import Array, lent, size_of
from .backend import Backend, backend_of
from .constants import DType, MemoryKind
from .error import check
from .handle import Owned
from .lifecycle import new_info

# Cache without a limit: value of keep_bytes.
NO_LIMIT = 2**64 - 1


class MemoryStats(NamedTuple):
    """Allocations of a pool: number, bytes, and bytes that it has from its backend."""

    live_count: int
    live_bytes: int
    reserved_bytes: int


class Pool(Owned):
    """A cache of freed memory of one kind, for later arrays. Equivalent: cudaMemPool_t.

    Arrays of the pool keep it alive. `destroy` raises Error with BUSY while there are any.
    """

    _noun = "pool"

    def __init__(
        self,
        backend: Backend | str | None = None,
        kind: MemoryKind | int = MemoryKind.HOST,
        *,
        keep_bytes: int = 0,
    ) -> None:
        """Creates a pool of memory on the current device.

        `keep_bytes` is the maximum number of unused bytes that it caches: 0 is 256 MiB, NO_LIMIT
        sets none.
        """
        owner = backend_of(backend)
        desc = new_info("dtl_pool_desc")
        desc.keep_bytes = keep_bytes
        out = ffi.new("dtl_pool_t *")
        check(lib.dtl_pool_create(owner._handle, int(kind), desc, out))
        self._handle = out[0]
        self.device = owner.current_device

    def array(
        self,
        shape: int | Sequence[int],
        dtype: DType | int = DType.FLOAT64,
        *,
        alignment: int = 0,
    ) -> Array:
        """Returns an array in memory of the pool. Its elements are not initialised.

        The memory returns to the pool when the array is destroyed and no operation uses it any
        more. `alignment` is a power of two in bytes; 0 is 64, or what the kind needs.
        """
        extents = [shape] if isinstance(shape, int) else list(shape)
        out = ffi.new("void **")
        check(lib.dtl_pool_alloc(self._handle, size_of(extents, dtype), alignment, out))
        pointer = out[0]

        def give_back() -> None:
            # Fails after dtl.finalize only, which has freed the memory.
            lib.dtl_pool_free(self._handle, pointer)

        try:
            return lent(pointer, extents, dtype, self.device, give_back)
        except BaseException:
            give_back()
            raise

    def trim(self, keep_bytes: int = 0) -> None:
        """Returns unused memory to the backend until at most `keep_bytes` are cached."""
        check(lib.dtl_pool_trim(self._handle, keep_bytes))

    @property
    def stats(self) -> MemoryStats:
        """Allocations that are live."""
        stats: Any = new_info("dtl_mem_stats")
        check(lib.dtl_pool_stats(self._handle, stats))
        return MemoryStats(stats.live_count, stats.live_bytes, stats.reserved_bytes)
