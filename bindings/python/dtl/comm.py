"""Communicators: groups of ranks, and the messages between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from . import buffers, text
from ._fast import Messages, RecvInfo
from ._raw import ffi, lib
from .attribute import Attributes
from .collectives import Collectives
from .constants import DType
from .error import check
from .lifecycle import new_info, timeout_ns
from .request import PersistentRequest, Request
from .stream import Event

# A request that a call starts.
_Started = TypeVar("_Started", bound=Request)

ANY_SOURCE: int = lib.DTL_ANY_SOURCE
ANY_TAG: int = lib.DTL_ANY_TAG
PROC_NULL: int = lib.DTL_PROC_NULL
UNDEFINED: int = lib.DTL_UNDEFINED


class Comm(Messages, Collectives, Attributes):
    """A communicator. Its first use of COMM_WORLD opens that one, on all ranks.

    A communicator that a program forgets stays open until dtl.finalize: other ranks may still need
    it. Use `with`, or call destroy.
    """

    def __init__(self, handle: Any) -> None:
        self._handle: Any = handle
        self._id = handle.id
        self._rank: int | None = None
        self._size: int | None = None

    @classmethod
    def open(
        cls,
        kind: str | None = None,
        *,
        job: str | None = None,
        rank: int = 0,
        size: int = 0,
        timeout: float | None = None,
        flags: int = 0,
        over: Comm | None = None,
    ) -> Comm:
        """Opens a communicator. All its ranks call it, with descriptions that agree.

        `timeout` limits each blocking call, in seconds; None takes the limit of DTL_TIMEOUT.
        """
        desc = new_info("dtl_comm_desc")
        texts = text.encode(kind), text.encode(job)
        desc.kind, desc.job = texts
        desc.rank, desc.size, desc.flags = rank, size, flags
        desc.timeout_ns = 0 if timeout is None else timeout_ns(timeout)
        if over is not None:
            desc.over = over._handle
        return cls._made(lib.dtl_comm_open, desc)

    @classmethod
    def threads(cls, size: int, timeout: float | None = None) -> list[Comm]:
        """Opens a communicator whose ranks are threads of this process: one Comm for each."""
        out = ffi.new("dtl_comm_t[]", max(size, 1))
        check(lib.dtl_comm_threads(size, 0 if timeout is None else timeout_ns(timeout), out))
        # Copies: an element of an array does not keep the array.
        return [cls(ffi.new("dtl_comm_t *", out[rank])[0]) for rank in range(size)]

    @classmethod
    def from_mpi(cls, comm: Any) -> Comm:
        """Opens a communicator over the ranks of an mpi4py communicator, in the same order.

        Collective. Destroy it, or call dtl.finalize, before MPI.Finalize.
        """
        return cls._made(lib.dtl_comm_from_mpi_fint, comm.py2f())

    def to_mpi(self, tag: int = 0) -> Any:
        """Returns an mpi4py communicator with the same ranks, in the same order.

        Collective. All ranks are ranks of MPI.COMM_WORLD. The caller frees the result.
        """
        from array import array

        from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

        ranks = array("i", [0] * self.size)
        self.allgather(array("i", [MPI.COMM_WORLD.Get_rank()]), ranks)
        group = MPI.COMM_WORLD.Get_group()
        chosen = group.Incl(list(ranks))
        try:
            return MPI.COMM_WORLD.Create_group(chosen, tag)
        finally:
            chosen.Free()
            group.Free()

    @classmethod
    def _made(cls, function: Any, *arguments: Any) -> Comm:
        out = ffi.new("dtl_comm_t *")
        check(function(*arguments, out))
        return cls(out[0])

    @property
    def rank(self) -> int:
        """Rank of this process, 0 to size - 1."""
        if self._rank is None:
            out = ffi.new("int32_t *")
            check(lib.dtl_comm_rank(self._handle, out))
            self._rank = out[0]
        return self._rank

    @property
    def size(self) -> int:
        """Number of ranks."""
        if self._size is None:
            out = ffi.new("int32_t *")
            check(lib.dtl_comm_size(self._handle, out))
            self._size = out[0]
        return self._size

    def _describe(self) -> Any:
        info = new_info("dtl_comm_info")
        check(lib.dtl_comm_info(self._handle, info))
        return info

    @property
    def kind(self) -> str:
        """Name of the kind, such as "shm"."""
        return text.decode(self._describe().kind)

    @property
    def transport(self) -> str:
        """How the data moves and why."""
        return text.decode(self._describe().transport)

    @property
    def failed_count(self) -> int:
        """Number of ranks that this process has found to have died or left."""
        return int(self._describe().failed_count)

    def destroy(self) -> None:
        """Destroys the communicator. Its requests in flight are cancelled."""
        check(lib.dtl_comm_destroy(self._handle))

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comm) and self._id == other._id

    def __hash__(self) -> int:
        return hash(self._id)

    # Messages of objects without the buffer protocol; see _fast.c.

    def _send_other(self, buffer: Any, dest: int, tag: int) -> None:
        span = buffers.span(buffer, False)
        arguments = self._handle, span.pointer, span.count, span.dtype, dest, tag
        check(lib.dtl_comm_send(*arguments), span)

    def _ssend_other(self, buffer: Any, dest: int, tag: int) -> None:
        span = buffers.span(buffer, False)
        arguments = self._handle, span.pointer, span.count, span.dtype, dest, tag
        check(lib.dtl_comm_ssend(*arguments), span)

    def _recv_other(self, buffer: Any, source: int, tag: int) -> RecvInfo:
        span, info = buffers.span(buffer, True), ffi.new("dtl_recv_info_t *")
        arguments = self._handle, span.pointer, span.count, span.dtype, source, tag, info
        check(lib.dtl_comm_recv(*arguments), span)
        return _info(info)

    def sendrecv(
        self,
        sbuf: Any,
        dest: int,
        rbuf: Any,
        source: int = ANY_SOURCE,
        *,
        stag: int = 0,
        rtag: int = ANY_TAG,
    ) -> RecvInfo:
        """Sends one message and receives another at the same time."""
        send, receive = buffers.span(sbuf, False), buffers.span(rbuf, True)
        if send.dtype != receive.dtype:
            raise TypeError("sbuf and rbuf have elements of different dtypes: pass the same dtype")
        info = ffi.new("dtl_recv_info_t *")
        status = lib.dtl_comm_sendrecv(
            self._handle, send.pointer, send.count, dest, stag,
            receive.pointer, receive.count, source, rtag, send.dtype, info,
        )  # fmt: skip
        check(status, (send, receive))
        return _info(info)

    def probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> RecvInfo:
        """Blocks until there is a message that a receive with these arguments would take."""
        info = ffi.new("dtl_recv_info_t *")
        check(lib.dtl_comm_probe(self._handle, source, tag, info))
        return _info(info)

    def iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> RecvInfo | None:
        """Returns the result of probe, or None if there is no such message. Does not block."""
        found, info = ffi.new("int32_t *"), ffi.new("dtl_recv_info_t *")
        check(lib.dtl_comm_iprobe(self._handle, source, tag, found, info))
        return _info(info) if found[0] else None

    def _message(
        self, request: _Started, function: Any, buffer: Any, writable: bool, peer: int, tag: int
    ) -> _Started:
        span = buffers.span(buffer, writable)
        arguments = self._handle, span.pointer, span.count, span.dtype, peer, tag
        return request._begin(function, span, *arguments)

    def isend(self, buffer: Any, dest: int, tag: int = 0) -> Request:
        """Starts a send. The buffer must stay unchanged until the request is complete."""
        request = Request()
        self._isend(request, buffer, dest, tag)
        return request

    def _isend_other(self, request: Request, buffer: Any, dest: int, tag: int) -> None:
        self._message(request, lib.dtl_comm_isend, buffer, False, dest, tag)

    def issend(self, buffer: Any, dest: int, tag: int = 0) -> Request:
        """Starts a synchronous send: complete when a receive has started to take it."""
        return self._message(Request(), lib.dtl_comm_issend, buffer, False, dest, tag)

    def irecv(self, buffer: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Starts a receive. Do not access the buffer until the request is complete."""
        request = Request()
        self._irecv(request, buffer, source, tag)
        return request

    def _irecv_other(self, request: Request, buffer: Any, source: int, tag: int) -> None:
        self._message(request, lib.dtl_comm_irecv, buffer, True, source, tag)

    def isend_on(self, buffer: Any, dest: int, event: Event, tag: int = 0) -> Request:
        """Starts a send that begins once an event is complete, without waiting for it here."""
        span = buffers.span(buffer, False)
        arguments = self._handle, span.pointer, span.count, span.dtype, dest, tag, event._handle
        return Request()._begin(lib.dtl_comm_isend_on, (span, event), *arguments)

    def mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message:
        """Blocks until there is a message, and matches it: only its recv or irecv receives it."""
        out, info = ffi.new("dtl_message_t *"), ffi.new("dtl_recv_info_t *")
        check(lib.dtl_comm_mprobe(self._handle, source, tag, out, info))
        return Message(out[0], _info(info))

    def improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Message | None:
        """Matches a message as mprobe does; None if there is none. Does not block."""
        found, out = ffi.new("int32_t *"), ffi.new("dtl_message_t *")
        info = ffi.new("dtl_recv_info_t *")
        check(lib.dtl_comm_improbe(self._handle, source, tag, found, out, info))
        return Message(out[0], _info(info)) if found[0] else None

    def send_init(self, buffer: Any, dest: int, tag: int = 0) -> PersistentRequest:
        """Creates an inactive send; start starts it."""
        request = PersistentRequest()
        return self._message(request, lib.dtl_comm_send_init, buffer, False, dest, tag)

    def recv_init(
        self, buffer: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG
    ) -> PersistentRequest:
        """Creates an inactive receive; start starts it."""
        request = PersistentRequest()
        return self._message(request, lib.dtl_comm_recv_init, buffer, True, source, tag)

    def register(self, buffer: Any) -> Registration:
        """Registers a buffer that is used again and again, so that transfers need not."""
        return Registration(self, buffer)

    def dump(self) -> str:
        """Returns what each rank is doing, for the search of a hang."""
        return text.read(lambda *arguments: lib.dtl_comm_dump(self._handle, *arguments))

    def dup(self) -> Comm:
        """Creates a communicator with the same ranks. Collective."""
        return self._made(lib.dtl_comm_dup, self._handle)

    def split(self, color: int, key: int = 0) -> Comm | None:
        """Creates one communicator per color; None for color UNDEFINED. Collective."""
        made = self._made(lib.dtl_comm_split, self._handle, color, key)
        return made if made._id else None

    def split_node(self, key: int = 0) -> Comm:
        """Creates one communicator per node. Collective."""
        return self._made(lib.dtl_comm_split_node, self._handle, key)

    def group_create(self, ranks: Sequence[int]) -> Comm | None:
        """Creates a communicator of the listed ranks; None elsewhere. Collective."""
        listed = ffi.new("int32_t[]", list(ranks))
        made = self._made(lib.dtl_comm_group_create, self._handle, listed, len(ranks))
        return made if made._id else None

    def shrink(self) -> Comm:
        """Creates a communicator of the ranks that survived a failure. Every survivor calls it."""
        return self._made(lib.dtl_comm_shrink, self._handle)

    def grow(self, new_ranks: int) -> Comm:
        """Creates a communicator with new ranks, for each of which a process is started.

        Collective. The processes run the program again with its arguments. There COMM_WORLD is the
        new communicator, whose ranks 0 to size - 1 are those of this one. All ranks of it make the
        same collective calls from then on. dtlrun can start processes; for kind "mpi" MPI does.
        Equivalent: MPI_Comm_spawn and MPI_Intercomm_merge.
        """
        return self._made(lib.dtl_comm_grow, self._handle, new_ranks, 0)

    def revoke(self) -> None:
        """Ends all operations on the communicator, on every rank, with REVOKED."""
        check(lib.dtl_comm_revoke(self._handle))


class Message:
    """A message that mprobe has matched; `info` describes it."""

    def __init__(self, handle: Any, info: RecvInfo) -> None:
        self._handle: Any = handle
        self.info = info

    def recv(self, buffer: Any) -> RecvInfo:
        """Receives the message."""
        span, info = buffers.span(buffer, True), ffi.new("dtl_recv_info_t *")
        arguments = self._handle, span.pointer, span.count, span.dtype, info
        check(lib.dtl_comm_mrecv(*arguments), span)
        return _info(info)

    def irecv(self, buffer: Any) -> Request:
        """Starts to receive the message."""
        span = buffers.span(buffer, True)
        arguments = self._handle, span.pointer, span.count, span.dtype
        return Request()._begin(lib.dtl_comm_imrecv, span, *arguments)


class Registration:
    """A buffer that is registered with a communicator, until deregister or the end of `with`."""

    def __init__(self, comm: Comm, buffer: Any) -> None:
        span = buffers.span(buffer, True)
        size_bytes = span.count * buffers.ITEM_BYTES.get(DType(span.dtype), 1)
        check(lib.dtl_comm_register(comm._handle, span.pointer, size_bytes), span)
        self._comm = comm
        self._span: buffers.Span | None = span
        # The memory stays registered if the program forgets this object.
        _registrations.append(span)

    def deregister(self) -> None:
        """Ends the registration."""
        if self._span is not None:
            check(lib.dtl_comm_deregister(self._comm._handle, self._span.pointer))
            if self._span in _registrations:  # not after finalize, nor in a forked child
                _registrations.remove(self._span)
            self._span = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.deregister()


# Buffers that are registered.
_registrations: list[buffers.Span] = []


def forget_registrations() -> None:
    """Releases the buffers of all registrations. The library is closed, or this is a child."""
    _registrations.clear()


def _info(info: Any) -> RecvInfo:
    return RecvInfo((info.source, info.tag, info.size_bytes))


COMM_WORLD = Comm(lib.DTL_COMM_WORLD)
COMM_SELF = Comm(lib.DTL_COMM_SELF)
