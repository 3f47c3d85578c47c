"""Executors: functions and loops on threads of the host.

Functions in Python run in parallel only while they release the interpreter lock, as NumPy's
operations on large arrays and system calls do.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import buffers, callbacks
from ._raw import ffi, lib
from .backend import Backend, backend_of
from .error import check
from .handle import Owned
from .lifecycle import new_info, timeout_ns
from .stream import Event

_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class ExecutorKind(enum.IntEnum):
    """Kind of an executor."""

    # That of the backend if it has one, otherwise POOL.
    DEFAULT = 0
    # Runs everything immediately in the calling thread.
    INLINE = lib.DTL_EXECUTOR_INLINE
    # Runs one function after another in a thread of its own.
    SEQUENTIAL = lib.DTL_EXECUTOR_SEQUENTIAL
    # Runs loops on several threads, including the calling one.
    POOL = lib.DTL_EXECUTOR_POOL
    # Uses the host execution of the backend.
    BACKEND = lib.DTL_EXECUTOR_BACKEND


class Executor(Owned):
    """Threads that run functions and loops.

    Destroyed with its last reference, after the functions of run_async have run.
    """

    _noun = "executor"

    def __init__(
        self,
        kind: ExecutorKind | int = ExecutorKind.DEFAULT,
        *,
        threads: int = 0,
        backend: Backend | str | None = "host",
    ) -> None:
        """Creates an executor.

        `threads` is the size of a pool, including the calling thread. 0 is OMP_NUM_THREADS, or as
        many as the process may use.
        """
        desc = new_info("dtl_executor_desc")
        desc.kind, desc.threads = int(kind), threads
        out = ffi.new("dtl_executor_t *")
        check(lib.dtl_executor_create(backend_of(backend)._handle, desc, out))
        self._handle = out[0]

    def _info(self) -> Any:
        info = new_info("dtl_executor_info")
        check(lib.dtl_executor_info(self._handle, info))
        return info

    @property
    def kind(self) -> ExecutorKind:
        """Kind of the executor, never DEFAULT."""
        return ExecutorKind(self._info().kind)

    @property
    def max_parallelism(self) -> int:
        """Maximum number of iterations that run at the same time."""
        return int(self._info().max_parallelism)

    @property
    def suggested_parallelism(self) -> int:
        """Recommended number of chunks of a loop."""
        return int(self._info().suggested_parallelism)

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Runs a function, and returns its result or raises its exception."""
        results: list[_Result] = []
        call = callbacks.Call(lambda: results.append(function()))
        handle = callbacks.handle_once(call.run)
        try:
            call.check(lib.dtl_executor_run(self._handle, lib.python_task, handle))
        finally:
            callbacks.withdraw(handle)
        return results[0]

    def run_async(self, function: Callable[[], object], event: Event | None = None) -> None:
        """Starts a function without arguments.

        An exception is a failure that the next `wait` raises as Error, and that `event` reports.
        The event is complete when the function has run; it belongs to a backend without events of
        its own, such as "host".
        """
        recorded = ffi.new("dtl_event_t *")[0] if event is None else event._handle
        handle = callbacks.handle_once(function)
        status = lib.dtl_executor_run_async(self._handle, lib.python_task, handle, recorded)
        if status != 0:
            callbacks.withdraw(handle)
        check(status)

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the functions of run_async have run; raises their first failure."""
        check(lib.dtl_executor_wait(self._handle, timeout_ns(timeout)))

    def parallel_for(
        self, begin: int, end: int, function: Callable[[int, int], object], grain: int = 0
    ) -> None:
        """Calls function(first, after_last) for chunks of the range begin to end - 1.

        Returns when all have run. `grain` is the number of iterations of a chunk; 0 is four chunks
        per thread. Raises the first exception; chunks that had not started are skipped.
        """
        call = callbacks.Call(function)
        call.check(lib.dtl_executor_parallel_for(
            self._handle, begin, end, grain, lib.python_range, call.handle
        ))  # fmt: skip

    def for_each(
        self, function: Callable[[_Item], object], items: Sequence[_Item], grain: int = 1
    ) -> None:
        """Calls function(item) for each item of a sequence. The rules are those of parallel_for."""

        def chunk(first: int, after_last: int) -> None:
            for index in range(first, after_last):
                function(items[index])

        self.parallel_for(0, len(items), chunk, grain)

    def parallel_reduce(
        self,
        begin: int,
        end: int,
        fold: Callable[[int, int, Any], object],
        combine: Callable[[Any, Any], object],
        identity: Any,
        grain: int = 0,
    ) -> Any:
        """Reduces the range begin to end - 1 to an array, which is the result.

        `identity` is a NumPy array, from a copy of which each partial result starts. fold(first,
        after_last, partial) adds the iterations of a chunk to an array in place.
        combine(into, partial) adds a partial result to the one of the lower iterations, in place.
        The chunks depend on `grain` alone (0: a 64th of the range), so the result is the same for
        every number of threads.
        """
        import numpy

        start = numpy.ascontiguousarray(identity)
        result = numpy.empty_like(start)

        def view(address: Any) -> Any:
            memory = ffi.buffer(address, start.nbytes)
            return numpy.frombuffer(memory, start.dtype).reshape(start.shape)

        call = callbacks.Call(
            lambda first, after_last, partial: fold(first, after_last, view(partial)),
            lambda into, partial: combine(view(into), view(partial)),
        )
        source, target = buffers.span(start, False), buffers.span(result, True)
        call.check(lib.dtl_executor_parallel_reduce(
            self._handle, begin, end, grain, start.nbytes, source.pointer, lib.python_fold,
            lib.python_combine, call.handle, target.pointer,
        ))  # fmt: skip
        return result


@ffi.def_extern(error=callbacks.FAILED)
def python_range(begin: int, end: int, user: Any) -> int:
    """Runs a chunk of a loop."""
    call: callbacks.Call = ffi.from_handle(user)
    return call.run(begin, end)


@ffi.def_extern(error=callbacks.FAILED)
def python_fold(begin: int, end: int, acc: Any, user: Any) -> int:
    """Folds a chunk of a reduction."""
    call: callbacks.Call = ffi.from_handle(user)
    return call.run(begin, end, acc)


@ffi.def_extern()
def python_combine(into: Any, partial: Any, user: Any) -> None:
    """Combines two partial results of a reduction."""
    call: callbacks.Call = ffi.from_handle(user)
    if call.exception is None:
        call.run(into, partial, index=1)
