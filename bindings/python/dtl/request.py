"""Requests: operations in progress. Each keeps its buffers alive until it is complete."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Self

from . import _fast
from ._fast import RecvInfo
from ._raw import ffi, lib
from .error import Error, check, fail
from .lifecycle import INFINITE, timeout_ns

# One wait inside the library. Between two, Python handles signals (Ctrl-C). Below 100 ms the
# library asks no other rank for its state.
_SLICE_NS = 50_000_000

_REQUEST = ffi.typeof("dtl_request_t *")

# Looked up once: these are on the path of each message.
_TIMEOUT: int = lib.DTL_ERROR_TIMEOUT
_BUSY: int = lib.DTL_ERROR_BUSY
# Status in a result that the library has not written.
_UNWRITTEN = -1
_EMPTY = RecvInfo((0, 0, 0))

# Operations whose Request was dropped before they were complete, with their buffers.
_pending: deque[tuple[int, object]] = deque()


class Request(_fast.Operation):
    """An operation in progress.

    Wait for it with `wait`, or `await` it. A request that is dropped before its operation is
    complete leaves the operation running; its buffers are kept until it is complete.
    """

    # The base has the number of the handle, which is 0 unless an operation is in progress, and the
    # buffers that the operation uses.
    __slots__ = ("__weakref__", "_info")

    def __init__(self) -> None:
        self._info = _EMPTY
        if _pending:
            release_pending()

    def _begin(self, function: Callable[..., int], buffers: object, *arguments: Any) -> Self:
        """Starts the operation by function(*arguments, out).

        The buffers are kept before the call, and the library writes the handle into this object.
        So an exception between the start and the next line, such as Ctrl-C, loses neither.
        """
        self._buffers = buffers
        status = function(*arguments, ffi.cast(_REQUEST, self._address))
        if status != 0:
            fail(status, buffers)
        return self

    @property
    def is_complete(self) -> bool:
        """True once wait, test or await has found the operation complete."""
        return self._number == 0

    def wait(self, timeout: float | None = None) -> RecvInfo:
        """Waits until the operation is complete, for at most `timeout` seconds.

        Returns the result of a receive. Raises Error with TIMEOUT if the time passed: the operation
        continues.
        """
        if self._number == 0:
            return self._info
        left = INFINITE if timeout is None else timeout_ns(timeout)
        while True:
            part = left if left < _SLICE_NS else _SLICE_NS
            status, info = _fast.wait(self._number, part)
            if status == _TIMEOUT and left > part:
                if timeout is not None:
                    left -= part
                continue
            if status in (_TIMEOUT, _BUSY):
                fail(status)
            return self._end(status, info)

    def test(self) -> bool:
        """Returns true if the operation is complete. Does not block."""
        if self._number == 0:
            return True
        status, done, info = _fast.test(self._number)
        if status == _BUSY:
            fail(status)
        if status == 0 and not done:
            return False
        self._end(status, info)
        return True

    @property
    def info(self) -> RecvInfo:
        """Result of a complete receive."""
        if self._number != 0:
            raise ValueError("the request is not complete: wait for it first")
        return self._info

    def cancel(self) -> None:
        """Attempts to cancel an operation that has not been matched. Wait for it afterwards."""
        if self._number != 0:
            check(lib.dtl_request_cancel(_handle(self._number)))

    def _end(self, status: int, info: RecvInfo) -> RecvInfo:
        """Records that the operation is complete, and returns its result."""
        buffers = self._buffers
        self._number, self._buffers, self._info = 0, None, info
        if status != 0:
            fail(status, buffers)
        return info

    def _complete(self, status: int, info: RecvInfo) -> None:
        """Records the result of the operation, and releases its buffers."""
        self._number, self._buffers, self._info = 0, None, info

    def __await__(self) -> Generator[Any, None, RecvInfo]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> RecvInfo:
        # A test makes progress. Sleep longer and longer, up to 1 ms, so that a long operation
        # leaves the processor to others.
        tests = 0
        while not self.test():
            tests += 1
            await asyncio.sleep(0 if tests < 100 else min(1e-3, 1e-6 * tests))
        return self._info

    def __enter__(self) -> Request:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After an exception the operation continues like that of a dropped request.
        if kind is None:
            self.wait()

    def __del__(self) -> None:
        if self._number != 0:
            _pending.append((self._number, self._buffers))


class PersistentRequest(Request):
    """A message that is started again and again. Equivalent: MPI_Send_init, MPI_Recv_init.

    It counts as complete while it is inactive; `info` is then the result of the latest message.
    """

    # Number of the handle, which stays valid when a message is complete; 0 after destroy.
    __slots__ = ("_persistent",)

    def __init__(self) -> None:
        super().__init__()
        self._persistent = 0

    def _begin(self, function: Callable[..., int], buffers: object, *arguments: Any) -> Self:
        super()._begin(function, buffers, *arguments)
        self._persistent, self._number = self._number, 0
        return self

    def start(self) -> PersistentRequest:
        """Starts the message."""
        was, self._number = self._number, self._persistent
        status = lib.dtl_request_start(_handle(self._persistent))
        if status != 0:
            self._number = was
            fail(status)
        return self

    def destroy(self) -> None:
        """Destroys the request; a message in flight is cancelled. A second call has no effect."""
        if self._persistent != 0:
            check(lib.dtl_request_destroy(_handle(self._persistent)))
            self._forget()

    def _forget(self) -> None:
        self._persistent, self._number, self._buffers = 0, 0, None

    def _end(self, status: int, info: RecvInfo) -> RecvInfo:
        buffers = self._buffers
        self._complete(status, info)
        if status != 0:
            fail(status, buffers)
        return info

    def _complete(self, status: int, info: RecvInfo) -> None:
        self._number, self._info = 0, info
        if status == lib.DTL_ERROR_INVALID_HANDLE:  # its communicator was destroyed
            self._forget()

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.wait()
        self.destroy()

    def __del__(self) -> None:
        # After an exception in _begin only the other number is set.
        self._number = self._persistent or self._number
        if self._number != 0 and lib.dtl_request_destroy(_handle(self._number)) != 0:
            super().__del__()


def wait_all(requests: Sequence[Request], timeout: float | None = None) -> list[RecvInfo]:
    """Waits until all requests are complete, and returns their results.

    Raises the first failure; the others are complete nevertheless. Raises Error with TIMEOUT if the
    time passed: those that are not complete continue.
    """
    left = timeout_ns(timeout)
    handles = _handles(requests)
    infos = ffi.new("dtl_recv_info_t[]", max(len(requests), 1))
    failure: Error | None = None
    while True:
        part = min(left, _SLICE_NS)
        for index in range(len(requests)):
            infos[index].status = _UNWRITTEN
        status = lib.dtl_request_wait_all(handles, len(requests), part, infos)
        buffers = [request._buffers for request in requests]
        for index, request in enumerate(requests):
            # The handle of a persistent request does not become null.
            if infos[index].status not in (_UNWRITTEN, _BUSY):
                handles[index].id = 0
            if request._number != 0 and handles[index].id == 0:
                request._complete(infos[index].status, _result(infos[index]))
        if status not in (0, _TIMEOUT):
            # A failure ends the slice's wait before the other requests are complete.
            try:
                fail(status, buffers)
            except Error as error:
                failure = failure or error
            if status == _BUSY:  # this call is inside one that polls a request
                raise failure
            if status == lib.DTL_ERROR_INVALID_HANDLE:
                _end_stale(requests, handles)
        is_late = any(request._number != 0 for request in requests)
        if is_late and left > part:
            if timeout is not None:
                left -= part
            continue
        if failure is not None:
            raise failure
        check(status, buffers)
        return [request._info for request in requests]


def _end_stale(requests: Sequence[Request], handles: Any) -> None:
    """Ends the requests whose handles are stale: with one of them, the library does not wait."""
    for index, request in enumerate(requests):
        if request._number != 0:
            with contextlib.suppress(Error):  # the caller has the failure
                request.test()
            handles[index].id = request._number


def wait_any(requests: Sequence[Request], timeout: float | None = None) -> int | None:
    """Waits until one of the requests is complete; returns its index, None if none is active."""
    left = timeout_ns(timeout)
    handles = _handles(requests)
    index = ffi.new("uint64_t *", lib.DTL_NO_INDEX)
    info = ffi.new("dtl_recv_info_t *")
    while True:
        part = min(left, _SLICE_NS)
        status = lib.dtl_request_wait_any(handles, len(requests), part, index, info)
        if status == lib.DTL_ERROR_TIMEOUT and left > part:
            if timeout is not None:
                left -= part
            continue
        if index[0] == lib.DTL_NO_INDEX:
            check(status)
            return None
        request = requests[index[0]]
        buffers = request._buffers
        if status != _BUSY:
            request._complete(status, _result(info))
        check(status, buffers)
        return int(index[0])


def test_all(requests: Sequence[Request]) -> bool:
    """Returns true if all requests are complete. Does not block."""
    done = [request.test() for request in requests]
    return all(done)


def _handle(number: int) -> Any:
    """Returns a request's handle by its number."""
    return ffi.new("dtl_request_t *", [number])[0]


def _handles(requests: Sequence[Request]) -> Any:
    handles = ffi.new("dtl_request_t[]", max(len(requests), 1))
    for index, request in enumerate(requests):
        handles[index].id = request._number
    return handles


def _result(info: Any) -> RecvInfo:
    return RecvInfo((info.source, info.tag, info.size_bytes))


def release_pending() -> int:
    """Releases the buffers of dropped requests that are complete; returns how many are left."""
    for _ in range(len(_pending)):
        try:
            number, buffers = _pending.popleft()
        except IndexError:  # another thread releases them
            break
        status, done, _ = _fast.test(number)
        if status == _BUSY or (status == 0 and not done):
            _pending.append((number, buffers))
        elif status != 0:
            with contextlib.suppress(Error):  # nobody waits for this operation
                fail(status, buffers)
    return len(_pending)


def forget_pending() -> None:
    """Releases the buffers of all dropped requests. The library is closed, or this is a child."""
    _pending.clear()
