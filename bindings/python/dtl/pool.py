"""Memory pools: memory of a backend that is reused without a call of its allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._raw import ffi, lib
from .backend import Backend, backend_of
from .constants import DType, MemoryKind
from .error import check
from .handle import Owned
from .lifecycle import new_info
from .memory import Lease, Memory, extents_of, size_of

# Cache without a limit: value of keep_bytes.
NO_LIMIT = 2**64 - 1


class MemoryStats(NamedTuple):
    """Allocations of a pool: number, bytes, and bytes that it has from its backend."""

    live_count: int
    live_bytes: int
    reserved_bytes: int


class Pool(Owned):
    """A cache of freed memory of one kind, for later allocations. Equivalent: cudaMemPool_t.

    Memory of the pool keeps it alive. `destroy` raises Error with BUSY while there is any.
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
        self.kind = int(kind)
        self.device = owner.current_device

    def memory(
        self,
        shape: int | Sequence[int],
        dtype: DType | int = DType.FLOAT64,
        *,
        alignment: int = 0,
    ) -> Memory:
        """Allocates memory from the pool. Its elements are not initialised.

        It returns to the pool when it is destroyed and no operation uses it any more. `alignment`
        is a power of two in bytes; 0 is 64, or what the kind needs.
        """
        extents = extents_of(shape)
        out = ffi.new("void **")
        check(lib.dtl_pool_alloc(self._handle, size_of(extents, dtype), alignment, out))
        pointer = out[0]
        # Freeing fails after dtl.finalize only, which has freed it.
        owner = Lease(lambda: lib.dtl_pool_free(self._handle, pointer))
        return Memory._over(pointer, extents, dtype, self.kind, self.device, owner)

    def trim(self, keep_bytes: int = 0) -> None:
        """Returns unused memory to the backend until at most `keep_bytes` are cached."""
        check(lib.dtl_pool_trim(self._handle, keep_bytes))

    @property
    def stats(self) -> MemoryStats:
        """Allocations that are live."""
        stats: Any = new_info("dtl_mem_stats")
        check(lib.dtl_pool_stats(self._handle, stats))
        return MemoryStats(stats.live_count, stats.live_bytes, stats.reserved_bytes)
