"""Collectives of a communicator: blocking, and (with an i before the name) as requests.

All ranks make the same calls in the same order. Buffers are described in buffers.py. `op` is a
member of Op or a `ReduceOp`. With IN_PLACE as `sbuf`, the data is in `rbuf`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import buffers
from ._raw import ffi, lib
from .constants import Op
from .error import fail
from .op import function_of
from .request import Request

# Call of a collective: the arguments after the communicator, and what they use.
_Call = tuple[tuple[Any, ...], object]
# Counts or displacements, one for each rank.
_Numbers = Sequence[int] | None

_IN_PLACE = ffi.cast("void *", -1)


class Collectives:
    """Collectives of dtl.Comm."""

    _handle: Any

    @property
    def size(self) -> int:
        """Number of ranks."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """Rank of this process."""
        raise NotImplementedError

    def _run(self, name: str, call: _Call) -> None:
        arguments, used = call
        status = getattr(lib, "dtl_comm_" + name)(self._handle, *arguments)
        if status != 0:
            fail(status, used)

    def _start(self, name: str, call: _Call) -> Request:
        arguments, used = call
        return Request()._begin(getattr(lib, f"dtl_comm_{name}"), used, self._handle, *arguments)

    def barrier(self) -> None:
        """Blocks until every rank has called it."""
        self._run("barrier", ((), None))

    def ibarrier(self) -> Request:
        """Starts a barrier."""
        return self._start("ibarrier", ((), None))

    def bcast(self, buffer: Any, root: int = 0) -> None:
        """Copies the buffer of the root to the buffer of every rank."""
        self._run("bcast", self._bcast(buffer, root))

    def ibcast(self, buffer: Any, root: int = 0) -> Request:
        """Starts a bcast."""
        return self._start("ibcast", self._bcast(buffer, root))

    def _bcast(self, buffer: Any, root: int) -> _Call:
        span = buffers.span(buffer, self.rank != root)
        return (span.pointer, span.count, span.dtype, root), span

    def reduce(self, sbuf: Any, rbuf: Any, op: int = Op.SUM, root: int = 0) -> None:
        """Reduces the elements of every rank into the `rbuf` of the root; None elsewhere."""
        self._run("reduce", self._reduce(sbuf, rbuf, op, root))

    def ireduce(self, sbuf: Any, rbuf: Any, op: int = Op.SUM, root: int = 0) -> Request:
        """Starts a reduce."""
        return self._start("ireduce", self._reduce(sbuf, rbuf, op, root))

    def _reduce(self, sbuf: Any, rbuf: Any, op: int, root: int) -> _Call:
        arguments, used = self._pair(sbuf, rbuf)
        return (*arguments, int(op), root), (used, function_of(op))

    def _allreduce_other(self, sbuf: Any, rbuf: Any, op: int) -> None:
        """Performs what `allreduce` (in _fast.c) does not: IN_PLACE, other buffers, errors."""
        self._run("allreduce", self._reduction(sbuf, rbuf, op))

    def iallreduce(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> Request:
        """Starts an allreduce."""
        return self._start("iallreduce", self._reduction(sbuf, rbuf, op))

    def scan(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> None:
        """Reduces the elements of ranks 0 to this one."""
        self._run("scan", self._reduction(sbuf, rbuf, op))

    def iscan(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> Request:
        """Starts a scan."""
        return self._start("iscan", self._reduction(sbuf, rbuf, op))

    def exscan(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> None:
        """Reduces the elements of the ranks before this one. Rank 0's `rbuf` is unchanged."""
        self._run("exscan", self._reduction(sbuf, rbuf, op))

    def iexscan(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> Request:
        """Starts an exscan."""
        return self._start("iexscan", self._reduction(sbuf, rbuf, op))

    def _reduction(self, sbuf: Any, rbuf: Any, op: int) -> _Call:
        arguments, used = self._pair(sbuf, rbuf)
        return (*arguments, int(op)), (used, function_of(op))

    def reduce_scatter_block(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> None:
        """Reduces blocks of every rank; rank r gets block r, in `rbuf`."""
        self._run("reduce_scatter_block", self._scattered(sbuf, rbuf, op))

    def ireduce_scatter_block(self, sbuf: Any, rbuf: Any, op: int = Op.SUM) -> Request:
        """Starts a reduce_scatter_block."""
        return self._start("ireduce_scatter_block", self._scattered(sbuf, rbuf, op))

    def _scattered(self, sbuf: Any, rbuf: Any, op: int) -> _Call:
        send, receive = _spans(sbuf, rbuf)
        count = receive.count // self.size if send is None else receive.count
        _require("sbuf", send, count * self.size)
        arguments = (_pointer(send), receive.pointer, count, receive.dtype, int(op))
        return arguments, (send, receive, function_of(op))

    def gather(self, sbuf: Any, rbuf: Any = None, root: int = 0) -> None:
        """Collects one block of every rank in the `rbuf` of the root; None elsewhere."""
        self._run("gather", self._gathered(sbuf, rbuf, root))

    def igather(self, sbuf: Any, rbuf: Any = None, root: int = 0) -> Request:
        """Starts a gather."""
        return self._start("igather", self._gathered(sbuf, rbuf, root))

    def _gathered(self, sbuf: Any, rbuf: Any, root: int) -> _Call:
        send = buffers.in_place(sbuf, False)
        receive = None if rbuf is None else buffers.span(rbuf, True)
        count, dtype = self._block(send, receive, "rbuf")
        return (_pointer(send), count, _null(receive), dtype, root), (send, receive)

    def allgather(self, sbuf: Any, rbuf: Any) -> None:
        """Collects one block of every rank in the `rbuf` of every rank."""
        self._run("allgather", self._all(sbuf, rbuf, False))

    def iallgather(self, sbuf: Any, rbuf: Any) -> Request:
        """Starts an allgather."""
        return self._start("iallgather", self._all(sbuf, rbuf, False))

    def alltoall(self, sbuf: Any, rbuf: Any) -> None:
        """Sends block r of `sbuf` to rank r; receives one block of every rank in `rbuf`."""
        self._run("alltoall", self._all(sbuf, rbuf, True))

    def ialltoall(self, sbuf: Any, rbuf: Any) -> Request:
        """Starts an alltoall."""
        return self._start("ialltoall", self._all(sbuf, rbuf, True))

    def _all(self, sbuf: Any, rbuf: Any, is_whole: bool) -> _Call:
        send, receive = _spans(sbuf, rbuf)
        count = receive.count // self.size
        _require("rbuf", receive, count * self.size)
        _require("sbuf", send, count * self.size if is_whole else count)
        return (_pointer(send), count, receive.pointer, receive.dtype), (send, receive)

    def scatter(self, sbuf: Any, rbuf: Any, root: int = 0) -> None:
        """Distributes the blocks in the `sbuf` of the root (None elsewhere) to `rbuf`."""
        self._run("scatter", self._distributed(sbuf, rbuf, root))

    def iscatter(self, sbuf: Any, rbuf: Any, root: int = 0) -> Request:
        """Starts a scatter."""
        return self._start("iscatter", self._distributed(sbuf, rbuf, root))

    def _distributed(self, sbuf: Any, rbuf: Any, root: int) -> _Call:
        send = None if sbuf is None else buffers.span(sbuf, False)
        receive = buffers.in_place(rbuf, True)
        count, dtype = self._block(receive, send, "sbuf")
        return (_null(send), count, _pointer(receive), dtype, root), (send, receive)

    def _block(
        self, block: buffers.Span | None, whole: buffers.Span | None, name: str
    ) -> tuple[int, int]:
        """Returns the number of elements of a rank's block, and their dtype."""
        count, dtype = _own(block, whole)
        if block is None and whole is not None:
            count = whole.count // self.size
        _require(name, whole, count * self.size)
        return count, dtype

    def gatherv(
        self,
        sbuf: Any,
        rbuf: Any = None,
        counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> None:
        """Collects blocks of `counts[r]` elements at `displs[r]` in the `rbuf` of the root."""
        self._run("gatherv", self._gathered_v(sbuf, rbuf, counts, displs, root))

    def igatherv(
        self,
        sbuf: Any,
        rbuf: Any = None,
        counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> Request:
        """Starts a gatherv."""
        return self._start("igatherv", self._gathered_v(sbuf, rbuf, counts, displs, root))

    def _gathered_v(
        self, sbuf: Any, rbuf: Any, counts: _Numbers, displs: _Numbers, root: int
    ) -> _Call:
        send = buffers.in_place(sbuf, False)
        receive = None if rbuf is None else buffers.span(rbuf, True)
        sizes, places = _numbers(counts), _numbers(displs)
        count, dtype = _own(send, receive)
        self._room("rbuf", receive, counts, displs)
        arguments = (_pointer(send), count, _null(receive), sizes, places, dtype, root)
        return arguments, (send, receive, sizes, places)

    def allgatherv(
        self, sbuf: Any, rbuf: Any, counts: Sequence[int], displs: _Numbers = None
    ) -> None:
        """Collects blocks of `counts[r]` elements at `displs[r]` in the `rbuf` of every rank."""
        self._run("allgatherv", self._all_v(sbuf, rbuf, counts, displs))

    def iallgatherv(
        self, sbuf: Any, rbuf: Any, counts: Sequence[int], displs: _Numbers = None
    ) -> Request:
        """Starts an allgatherv."""
        return self._start("iallgatherv", self._all_v(sbuf, rbuf, counts, displs))

    def _all_v(self, sbuf: Any, rbuf: Any, counts: Sequence[int], displs: _Numbers) -> _Call:
        send, receive = _spans(sbuf, rbuf)
        sizes, places = _numbers(counts), _numbers(displs)
        self._room("rbuf", receive, counts, displs)
        count = 0 if send is None else send.count
        arguments = (_pointer(send), count, receive.pointer, sizes, places, receive.dtype)
        return arguments, (send, receive, sizes, places)

    def scatterv(
        self,
        sbuf: Any,
        rbuf: Any,
        counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> None:
        """Distributes blocks of `counts[r]` elements at `displs[r]` of the root's `sbuf`."""
        self._run("scatterv", self._distributed_v(sbuf, rbuf, counts, displs, root))

    def iscatterv(
        self,
        sbuf: Any,
        rbuf: Any,
        counts: Sequence[int] | None = None,
        displs: Sequence[int] | None = None,
        root: int = 0,
    ) -> Request:
        """Starts a scatterv."""
        return self._start("iscatterv", self._distributed_v(sbuf, rbuf, counts, displs, root))

    def _distributed_v(
        self, sbuf: Any, rbuf: Any, counts: _Numbers, displs: _Numbers, root: int
    ) -> _Call:
        send = None if sbuf is None else buffers.span(sbuf, False)
        receive = buffers.in_place(rbuf, True)
        sizes, places = _numbers(counts), _numbers(displs)
        self._room("sbuf", send, counts, displs)
        count, dtype = _own(receive, send)
        arguments = (_null(send), sizes, places, _pointer(receive), count, dtype, root)
        return arguments, (send, receive, sizes, places)

    def alltoallv(
        self,
        sbuf: Any,
        scounts: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: Sequence[int] | None = None,
        rdispls: Sequence[int] | None = None,
    ) -> None:
        """Sends `scounts[r]` elements to rank r; receives `rcounts[r]` elements of rank r."""
        self._run("alltoallv", self._all_to_all_v(sbuf, scounts, rbuf, rcounts, sdispls, rdispls))

    def ialltoallv(
        self,
        sbuf: Any,
        scounts: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: Sequence[int] | None = None,
        rdispls: Sequence[int] | None = None,
    ) -> Request:
        """Starts an alltoallv."""
        call = self._all_to_all_v(sbuf, scounts, rbuf, rcounts, sdispls, rdispls)
        return self._start("ialltoallv", call)

    def _all_to_all_v(
        self,
        sbuf: Any,
        scounts: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: _Numbers,
        rdispls: _Numbers,
    ) -> _Call:
        send, receive = _spans(sbuf, rbuf)
        self._room("sbuf", send, scounts, sdispls)
        self._room("rbuf", receive, rcounts, rdispls)
        numbers = [_numbers(one) for one in (scounts, sdispls, rcounts, rdispls)]
        arguments = (
            _pointer(send), numbers[0], numbers[1],
            receive.pointer, numbers[2], numbers[3], receive.dtype,
        )  # fmt: skip
        return arguments, (send, receive, numbers)

    def neighbor_alltoallv(
        self,
        dests: Sequence[int],
        sbuf: Any,
        scounts: Sequence[int],
        sources: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: Sequence[int] | None = None,
        rdispls: Sequence[int] | None = None,
    ) -> None:
        """Sends `scounts[i]` elements to rank `dests[i]`, receives `rcounts[i]` of `sources[i]`.

        Every rank calls it, with lists of its own neighbours: a rank is as often in `dests` as this
        one is in its `sources`. PROC_NULL is skipped. Blocks are one after the other, or at
        `sdispls` and `rdispls`.
        """
        call = self._neighbors(dests, sbuf, scounts, sources, rbuf, rcounts, sdispls, rdispls)
        self._run("neighbor_alltoallv", call)

    def ineighbor_alltoallv(
        self,
        dests: Sequence[int],
        sbuf: Any,
        scounts: Sequence[int],
        sources: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: Sequence[int] | None = None,
        rdispls: Sequence[int] | None = None,
    ) -> Request:
        """Starts a neighbor_alltoallv."""
        call = self._neighbors(dests, sbuf, scounts, sources, rbuf, rcounts, sdispls, rdispls)
        return self._start("ineighbor_alltoallv", call)

    def _neighbors(
        self,
        dests: Sequence[int],
        sbuf: Any,
        scounts: Sequence[int],
        sources: Sequence[int],
        rbuf: Any,
        rcounts: Sequence[int],
        sdispls: _Numbers,
        rdispls: _Numbers,
    ) -> _Call:
        send, receive = buffers.span(sbuf, False), buffers.span(rbuf, True)
        buffers.require_same("sbuf", send, "rbuf", receive)
        _fit("sbuf", send, scounts, sdispls, len(dests), f"{len(dests)} dests")
        _fit("rbuf", receive, rcounts, rdispls, len(sources), f"{len(sources)} sources")
        ranks = [ffi.new("int32_t[]", [int(one) for one in each]) for each in (dests, sources)]
        numbers = [_numbers(one) for one in (scounts, sdispls, rcounts, rdispls)]
        arguments = (
            ranks[0], len(dests), send.pointer, numbers[0], numbers[1],
            ranks[1], len(sources), receive.pointer, numbers[2], numbers[3], receive.dtype,
        )  # fmt: skip
        return arguments, (send, receive, ranks, numbers)

    def reduce_scatter(self, sbuf: Any, rbuf: Any, counts: Sequence[int], op: int = Op.SUM) -> None:
        """Reduces the elements of every rank; rank r gets block r, of `counts[r]` elements."""
        self._run("reduce_scatter", self._scattered_v(sbuf, rbuf, counts, op))

    def ireduce_scatter(
        self, sbuf: Any, rbuf: Any, counts: Sequence[int], op: int = Op.SUM
    ) -> Request:
        """Starts a reduce_scatter."""
        return self._start("ireduce_scatter", self._scattered_v(sbuf, rbuf, counts, op))

    def _scattered_v(self, sbuf: Any, rbuf: Any, counts: Sequence[int], op: int) -> _Call:
        send, receive = _spans(sbuf, rbuf)
        self._room("sbuf" if send is not None else "rbuf", send or receive, counts, None)
        if send is not None:
            _require("rbuf", receive, int(counts[self.rank]))
        sizes = _numbers(counts)
        arguments = (_pointer(send), receive.pointer, sizes, receive.dtype, int(op))
        return arguments, (send, receive, sizes, function_of(op))

    def _room(
        self,
        name: str,
        span: buffers.Span | None,
        counts: Sequence[int] | None,
        displs: Sequence[int] | None,
    ) -> None:
        _fit(name, span, counts, displs, self.size, f"{self.size} ranks")

    def _pair(self, sbuf: Any, rbuf: Any) -> _Call:
        """Returns the buffers of a reduction with the count and dtype of both."""
        if rbuf is None:
            send = buffers.span(sbuf, False)
            return (send.pointer, ffi.NULL, send.count, send.dtype), send
        given, receive = _spans(sbuf, rbuf)
        if given is not None and given.count != receive.count:
            raise ValueError(f"sbuf has {given.count} elements, rbuf {receive.count}: pass as many")
        return (_pointer(given), receive.pointer, receive.count, receive.dtype), (given, receive)


def _spans(sbuf: Any, rbuf: Any) -> tuple[buffers.Span | None, buffers.Span]:
    """Returns the memory of both buffers of a call. Their dtypes are equal."""
    send, receive = buffers.in_place(sbuf, False), buffers.span(rbuf, True)
    if send is not None:
        buffers.require_same("sbuf", send, "rbuf", receive)
    return send, receive


def _own(block: buffers.Span | None, whole: buffers.Span | None) -> tuple[int, int]:
    """Returns the number of elements of this rank's block, 0 in place, and their dtype."""
    if block is not None and whole is not None:
        buffers.require_same("this rank's block", block, "the buffer of all blocks", whole)
    if block is not None:
        return block.count, block.dtype
    if whole is None:
        raise ValueError("both buffers are absent: one of them has the data of this rank")
    return 0, whole.dtype


def _require(name: str, span: buffers.Span | None, count: int) -> None:
    if span is not None and span.count < count:
        raise ValueError(f"{name} has {span.count} elements: the call needs {count}")


def _fit(
    name: str,
    span: buffers.Span | None,
    counts: _Numbers,
    displs: _Numbers,
    blocks: int,
    of_what: str,
) -> None:
    """Raises ValueError if blocks leave the buffer, or if there is not one for each rank."""
    if span is None or counts is None:
        return
    # Numbers of NumPy would wrap.
    counts = [int(count) for count in counts]
    displs = None if displs is None else [int(start) for start in displs]
    for what, numbers in (("counts", counts), ("displs", displs)):
        if numbers is not None and len(numbers) != blocks:
            raise ValueError(f"{what} has {len(numbers)} numbers: one for each of {of_what}")
        for index, number in enumerate(numbers or ()):
            if number < 0:
                raise ValueError(f"{what}[{index}] is {number}: numbers of elements are 0 or more")
    starts = displs if displs is not None else [sum(counts[:rank]) for rank in range(len(counts))]
    end = max((start + count for start, count in zip(starts, counts, strict=True)), default=0)
    _require(name, span, end)


def _pointer(span: buffers.Span | None) -> Any:
    return _IN_PLACE if span is None else span.pointer


def _null(span: buffers.Span | None) -> Any:
    return ffi.NULL if span is None else span.pointer


def _numbers(values: Sequence[int] | None) -> Any:
    if values is None:
        return ffi.NULL
    return ffi.new("uint64_t[]", [int(value) for value in values])
