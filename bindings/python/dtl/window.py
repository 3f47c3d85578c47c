"""Windows: memory of each rank that the other ranks read and modify (one-sided communication)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _fast, buffers, text
from ._raw import ffi, lib
from .comm import Comm
from .constants import DType, Op
from .error import check
from .lifecycle import new_info
from .request import Request


class _Operation:
    """An operation whose buffers are in use until a flush, unlock or fence completes it."""

    __slots__ = ("buffers", "is_started", "target")

    def __init__(self, target: int, buffers: tuple[object, ...]) -> None:
        self.target = target
        self.buffers = buffers
        # True once the call has returned. A flush of another thread that began earlier may not have
        # completed the operation.
        self.is_started = False


# Operations of a window, in a dict because its changes are atomic.
_Operations = dict[_Operation, None]

# Memory of windows that are not destroyed: other ranks access it although the program has forgotten
# the window. And the operations in progress. By the number of the handle.
_open: dict[int, tuple[buffers.Span | None, _fast.Block | None, _Operations]] = {}


class Window:
    """A window over a communicator. Creation and destroy are collective.

    Displacements are in elements of the window's dtype. Buffers of put, get and accumulate stay in
    use, and are kept, until a flush, unlock or fence.
    """

    def __init__(self, comm: Comm, buffer: Any) -> None:
        """Creates a window over a buffer of this rank, for example a NumPy array."""
        span = buffers.span(buffer, True)
        item_bytes = buffers.ITEM_BYTES.get(DType(span.dtype), 1)
        out = ffi.new("dtl_win_t *")
        size_bytes = span.count * item_bytes
        pointer = span.pointer if size_bytes else ffi.NULL
        check(lib.dtl_win_create(comm._handle, pointer, size_bytes, item_bytes, out), span)
        self._start(out[0], span.dtype, span, None)

    @classmethod
    def allocate(cls, comm: Comm, count: int, dtype: DType = DType.FLOAT64) -> Window:
        """Creates a window with `count` zeroed elements of this rank, which the library allocates.

        On one node other ranks access this memory directly.
        """
        item_bytes = buffers.ITEM_BYTES[dtype]
        base, out = ffi.new("void **"), ffi.new("dtl_win_t *")
        check(lib.dtl_win_allocate(comm._handle, count * item_bytes, item_bytes, base, out))
        address = int(ffi.cast("uintptr_t", base[0]))
        self = cls.__new__(cls)
        # The memory is the library's, until the window is destroyed.
        block = _fast.Block(address, count * item_bytes, False, cls)
        self._start(out[0], dtype, None, block)
        return self

    def _start(
        self, handle: Any, dtype: int, span: buffers.Span | None, block: _fast.Block | None
    ) -> None:
        self._handle: Any = handle
        self.dtype = DType(dtype)
        self._block = block
        self._used: _Operations = {}
        _open[handle.id] = span, block, self._used

    @property
    def memory(self) -> memoryview:
        """This rank's part, as bytes."""
        if self._block is None:
            raise ValueError("the window was created over a buffer of the program: use that")
        return memoryview(self._block)

    @property
    def array(self) -> Any:
        """This rank's part as a NumPy array. Delete it before destroy."""
        import numpy

        return numpy.frombuffer(self.memory, dtype=buffers.TYPESTR[self.dtype])

    @property
    def path(self) -> str:
        """How operations reach the targets, for humans."""
        info = new_info("dtl_win_info")
        check(lib.dtl_win_info(self._handle, 0, info))
        return text.decode(info.way)

    def _operate(
        self, function: Any, target: int, used: tuple[object, ...], *arguments: Any
    ) -> None:
        # Kept before the call: it may fail after it has started the operation.
        operation = _Operation(target, used)
        self._used[operation] = None
        try:
            check(function(self._handle, *arguments))
        finally:
            operation.is_started = True

    def _complete(self, function: Any, *arguments: Any, target: int | None = None) -> None:
        """Calls a function that completes operations, and releases their buffers."""
        done = [
            operation
            for operation in list(self._used)
            if operation.is_started and target in (None, operation.target)
        ]
        check(function(self._handle, *arguments))
        for operation in done:
            self._used.pop(operation, None)

    def put(self, buffer: Any, target: int, disp: int = 0) -> None:
        """Copies elements to a target's part."""
        span = buffers.span(buffer, False)
        where = span.pointer, span.count, span.dtype, target, disp
        self._operate(lib.dtl_win_put, target, (span,), *where)

    def get(self, buffer: Any, target: int, disp: int = 0) -> None:
        """Copies elements from a target's part; available after a flush, unlock or fence."""
        span = buffers.span(buffer, True)
        where = span.pointer, span.count, span.dtype, target, disp
        self._operate(lib.dtl_win_get, target, (span,), *where)

    def accumulate(self, buffer: Any, target: int, disp: int = 0, op: int = Op.SUM) -> None:
        """Combines elements with those of a target, each atomically."""
        span = buffers.span(buffer, False)
        where = span.pointer, span.count, span.dtype, target, disp, int(op)
        self._operate(lib.dtl_win_accumulate, target, (span,), *where)

    def get_accumulate(
        self, buffer: Any, result: Any, target: int, disp: int = 0, op: int = Op.SUM
    ) -> None:
        """Combines elements with those of a target, and fetches the previous values."""
        span, fetched = buffers.span(buffer, False), buffers.span(result, True)
        _require_room("buffer", span, "result", fetched, span.count)
        where = span.pointer, fetched.pointer, span.count, span.dtype, target, disp, int(op)
        self._operate(lib.dtl_win_get_accumulate, target, (span, fetched), *where)

    def fetch_op(
        self, value: Any, result: Any, target: int, disp: int = 0, op: int = Op.SUM
    ) -> None:
        """Combines one element with that of a target, and fetches the previous value."""
        span, fetched = buffers.span(value, False), buffers.span(result, True)
        _require_room("value", span, "result", fetched, 1)
        where = span.pointer, fetched.pointer, span.dtype, target, disp, int(op)
        self._operate(lib.dtl_win_fetch_op, target, (span, fetched), *where)

    def compare_and_swap(
        self, value: Any, expected: Any, result: Any, target: int, disp: int = 0
    ) -> None:
        """Stores `value` in a target's element if that equals `expected`; fetches the previous."""
        span, old = buffers.span(value, False), buffers.span(expected, False)
        fetched = buffers.span(result, True)
        _require_room("value", span, "expected", old, 1)
        _require_room("value", span, "result", fetched, 1)
        where = span.pointer, old.pointer, fetched.pointer, span.dtype, target, disp
        self._operate(lib.dtl_win_compare_and_swap, target, (span, old, fetched), *where)

    def rput(self, buffer: Any, target: int, disp: int = 0) -> Request:
        """Starts a put; the request is complete when the buffer may be reused."""
        return self._request(lib.dtl_win_rput, buffers.span(buffer, False), target, disp)

    def rget(self, buffer: Any, target: int, disp: int = 0) -> Request:
        """Starts a get; the request is complete when the elements are available."""
        return self._request(lib.dtl_win_rget, buffers.span(buffer, True), target, disp)

    def _request(self, function: Any, span: buffers.Span, target: int, disp: int) -> Request:
        arguments = span.pointer, span.count, span.dtype, target, disp
        return Request()._begin(function, span, self._handle, *arguments)

    def fence(self) -> None:
        """Ends the current epoch on all ranks and opens the next one. Collective."""
        self._complete(lib.dtl_win_fence)

    @contextmanager
    def lock(self, target: int, exclusive: bool = False) -> Iterator[Window]:
        """Locks one target: `with window.lock(1): ...`. The operations are complete at its end."""
        kind = lib.DTL_LOCK_EXCLUSIVE if exclusive else lib.DTL_LOCK_SHARED
        check(lib.dtl_win_lock(self._handle, kind, target))
        try:
            yield self
        finally:
            self._complete(lib.dtl_win_unlock, target, target=target)

    @contextmanager
    def lock_all(self) -> Iterator[Window]:
        """Locks all targets, shared."""
        check(lib.dtl_win_lock_all(self._handle))
        try:
            yield self
        finally:
            self._complete(lib.dtl_win_unlock_all)

    def flush(self, target: int | None = None) -> None:
        """Completes this rank's operations on a target, or on all; the locks stay."""
        if target is None:
            self._complete(lib.dtl_win_flush_all)
        else:
            self._complete(lib.dtl_win_flush, target, target=target)

    def destroy(self) -> None:
        """Destroys the window. Collective.

        Raises BufferError, and destroys nothing, while NumPy arrays use memory of `allocate`.
        """
        if self._handle is None:
            return
        if self._block is not None:
            self._block.close()
        check(lib.dtl_win_destroy(self._handle))
        _open.pop(self._handle.id, None)
        self._handle = None
        self._used.clear()

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After an exception the other ranks may not come: finalize ends the window.
        if kind is None:
            self.destroy()


def _require_room(
    name: str, span: buffers.Span, other_name: str, other: buffers.Span, count: int
) -> None:
    """Raises unless two buffers of an operation have one dtype, and `count` elements."""
    buffers.require_same(name, span, other_name, other)
    for one, found in ((name, span.count), (other_name, other.count)):
        if found < count:
            raise ValueError(f"{one} has {found} elements: the call needs {count}")


def close_all() -> None:
    """Ends the use of all windows' memory, before the library destroys them.

    Raises BufferError while NumPy arrays use memory of `allocate`.
    """
    for _, block, _ in _open.values():
        if block is not None:
            block.close()


def forget_all() -> None:
    """Releases the buffers of all windows. The library is closed, or this is a child."""
    _open.clear()
