"""Streams and events: work of a device in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import buffers, callbacks
from ._raw import ffi, lib
from .backend import Backend, Device, backend_of
from .constants import DType
from .error import check
from .handle import Owned
from .lifecycle import timeout_ns


class Stream(Owned):
    """In-order queue of work on a device. Destroyed, after its work, with its last reference."""

    _noun = "stream"

    def __init__(self, backend: Backend | Device | str | None = None) -> None:
        """Creates a stream on a device, or on the current device of a backend."""
        # Buffers and kernels' arguments that queued work may use.
        self._used: list[object] = []
        device = backend if isinstance(backend, Device) else backend_of(backend).current_device
        out = ffi.new("dtl_stream_t *")
        check(lib.dtl_stream_create(device.backend._handle, device.index, 0, out))
        self._handle = out[0]
        self.device = device

    def _keep(self, *used: object) -> None:
        if len(self._used) > 256 and self.query():
            self._used.clear()
        self._used.extend(used)

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the work is complete; raises its first failure."""
        status = lib.dtl_stream_wait(self._handle, timeout_ns(timeout))
        if status != lib.DTL_ERROR_TIMEOUT:
            self._used.clear()
        check(status)

    def query(self) -> bool:
        """Returns true if the work is complete."""
        done = ffi.new("int32_t *")
        check(lib.dtl_stream_query(self._handle, done))
        return bool(done[0])

    def wait_event(self, event: Event) -> None:
        """Makes later work of the stream wait for an event."""
        check(lib.dtl_stream_wait_event(self._handle, event._handle))

    def record(self, event: Event | None = None) -> Event:
        """Records an event at the current end of the stream; creates one if none is given."""
        event = Event(self.device.backend) if event is None else event
        check(lib.dtl_event_record(event._handle, self._handle))
        return event

    def copy(self, target: Any, source: Any) -> None:
        """Queues a copy between two buffers of the same size, which must stay unchanged."""
        into, start = buffers.span(target, True), buffers.span(source, False)
        sizes = [one.count * buffers.ITEM_BYTES.get(DType(one.dtype), 1) for one in (into, start)]
        if sizes[0] != sizes[1]:
            raise ValueError(f"the target has {sizes[0]} bytes, the source {sizes[1]}")
        self._keep(into, start)
        check(lib.dtl_mem_copy_async(self._handle, into.pointer, start.pointer, sizes[0]))

    def call(self, function: Callable[[], object]) -> None:
        """Queues a call of a function without arguments.

        An exception is a failure of the stream.
        """
        handle = callbacks.handle_once(function)
        status = lib.dtl_stream_host_callback(self._handle, lib.python_task, handle)
        if status != 0:
            callbacks.withdraw(handle)
        check(status)

    def fill(self, target: Any, value: int) -> None:
        """Queues a fill: sets each byte of a buffer to a value."""
        span = buffers.span(target, True)
        size_bytes = span.count * buffers.ITEM_BYTES.get(DType(span.dtype), 1)
        self._keep(span)
        check(lib.dtl_mem_fill_async(self._handle, span.pointer, value, size_bytes))

    @classmethod
    def wrap(cls, backend: Backend | str, native: int) -> Stream:
        """Returns a stream over the backend's own one, such as `torch.cuda.Stream.cuda_stream`.

        The native stream must exist until this one is destroyed, which does not destroy it.
        """
        self = cls.__new__(cls)
        self._used = []
        owner = backend_of(backend)
        out = ffi.new("dtl_stream_t *")
        check(lib.dtl_stream_wrap(owner._handle, ffi.cast("void *", native), out))
        self._handle = out[0]
        self.device = owner.current_device
        return self

    @property
    def native(self) -> int:
        """The backend's own stream (a CUstream, a cl_command_queue) as a number."""
        out = ffi.new("void **")
        check(lib.dtl_stream_native(self._handle, out))
        return int(ffi.cast("uintptr_t", out[0]))

    def destroy(self) -> None:
        """Destroys the stream after its work is complete."""
        super().destroy()
        self._used.clear()


class Event(Owned):
    """A point in the work of a stream."""

    _noun = "event"

    def __init__(self, backend: Backend | str | None = None) -> None:
        out = ffi.new("dtl_event_t *")
        check(lib.dtl_event_create(backend_of(backend)._handle, 0, out))
        self._handle = out[0]

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until the work before the latest record is complete."""
        check(lib.dtl_event_wait(self._handle, timeout_ns(timeout)))

    def query(self) -> bool:
        """Returns true if the work before the latest record is complete."""
        done = ffi.new("int32_t *")
        check(lib.dtl_event_query(self._handle, done))
        return bool(done[0])

    def seconds_since(self, start: Event) -> float:
        """Returns the time between the records of two complete events, in seconds."""
        out = ffi.new("uint64_t *")
        check(lib.dtl_event_elapsed_ns(start._handle, self._handle, out))
        return float(out[0]) * 1e-9
