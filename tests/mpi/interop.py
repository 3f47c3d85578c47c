"""A Python program with mpi4py and libdtl (by ctypes, no mpi.h) in one process: libdtl takes mpi4py's
communicators by their Fortran handles, both send to each other, and either may end first.

    mpiexec -n N python interop.py LIBDTL ORDER     ORDER: dtl-first, mpi-first, dtl-starts

Ends the whole job where something is not as it should be. interop.sh finds the Python and the launcher.
"""
import array
import ctypes
import sys
import traceback

import mpi4py

library, order = sys.argv[1:]
mpi4py.rc.finalize = False
mpi4py.rc.initialize = order != "dtl-starts"
from mpi4py import MPI  # noqa: E402  initialises MPI, with MPI_THREAD_MULTIPLE

try:
    import numpy
except ImportError:
    numpy = None

# ---- dtl.h, as far as it is needed ----

INT64, FLOAT64, SUM, NO_DUP, ANY = 3, 9, 0, 2, -2


class Handle(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64)]


class RecvInfo(ctypes.Structure):
    _fields_ = [
        ("source", ctypes.c_int32),
        ("tag", ctypes.c_int32),
        ("size_bytes", ctypes.c_uint64),
        ("status", ctypes.c_int32),
        ("reserved0", ctypes.c_uint32),
        ("reserved1", ctypes.c_uint64),
    ]


class Desc(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("kind", ctypes.c_char_p),
        ("job", ctypes.c_char_p),
        ("timeout_ns", ctypes.c_uint64),
        ("mpi_comm", ctypes.c_void_p),
        ("rdma", ctypes.c_void_p),
        ("config", ctypes.c_void_p),
        ("over", Handle),
    ]


dtl = ctypes.CDLL(library)
dtl.dtl_last_error.restype = ctypes.c_char_p
dtl.dtl_status_name.restype = ctypes.c_char_p
I32, U64, POINTER = ctypes.c_int32, ctypes.c_uint64, ctypes.c_void_p
for name, arguments in {
    "dtl_comm_from_mpi_fint": [I32, POINTER],
    "dtl_comm_open": [POINTER, POINTER],
    "dtl_comm_destroy": [Handle],
    "dtl_comm_rank": [Handle, POINTER],
    "dtl_comm_size": [Handle, POINTER],
    "dtl_comm_barrier": [Handle],
    "dtl_comm_send": [Handle, POINTER, U64, I32, I32, I32],
    "dtl_comm_recv": [Handle, POINTER, U64, I32, I32, I32, POINTER],
    "dtl_comm_irecv": [Handle, POINTER, U64, I32, I32, I32, POINTER],
    "dtl_comm_iprobe": [Handle, I32, I32, POINTER, POINTER],
    "dtl_request_wait": [Handle, U64, POINTER],
    "dtl_comm_allreduce": [Handle, POINTER, POINTER, U64, I32, I32],
}.items():
    getattr(dtl, name).argtypes = arguments


def status(name, *arguments):
    return dtl.dtl_status_name(getattr(dtl, name)(*arguments)).decode()


def call(name, *arguments, wanted="DTL_SUCCESS"):
    got = status(name, *arguments)
    assert got == wanted, f"{name}: {got}, not {wanted}: {dtl.dtl_last_error().decode()}"


def opened(comm):
    out = Handle()
    call("dtl_comm_from_mpi_fint", comm.py2f(), ctypes.byref(out))
    return out


def opened_as(comm, flags=0, timeout_ns=0):
    fint, out = ctypes.c_int32(comm.py2f()), Handle()
    mpi_comm = ctypes.cast(ctypes.byref(fint), ctypes.c_void_p)
    desc = Desc(ctypes.sizeof(Desc), flags=flags, kind=b"mpi", timeout_ns=timeout_ns, mpi_comm=mpi_comm)
    call("dtl_comm_open", ctypes.byref(desc), ctypes.byref(out))
    return out


def place(comm):
    rank, size = ctypes.c_int32(-1), ctypes.c_int32(-1)
    call("dtl_comm_rank", comm, ctypes.byref(rank))
    call("dtl_comm_size", comm, ctypes.byref(size))
    return rank.value, size.value


def address(values):
    return values.ctypes.data if numpy is not None and isinstance(values, numpy.ndarray) else values.buffer_info()[0]


def numbers(kind, values):
    """An array of numpy's if there is one, else one of Python's own: kind is q or d."""
    return array.array(kind, values) if numpy is None else numpy.array(values, dtype={"q": "i8", "d": "f8"}[kind])


# ---- what must hold ----


def sums(comm, over):
    """The sum over dtl is that of mpi4py."""
    size = over.Get_size()
    for kind, dtype in (("q", INT64), ("d", FLOAT64)):
        mine = numbers(kind, [over.Get_rank() + i for i in range(1000)])
        by_dtl, by_mpi = numbers(kind, [0] * 1000), numbers(kind, [0] * 1000)
        call("dtl_comm_allreduce", comm, address(mine), address(by_dtl), 1000, dtype, SUM)
        over.Allreduce(mine, by_mpi)
        assert list(by_dtl) == list(by_mpi), f"{kind}: {by_dtl[0]} and {by_mpi[0]}"
        assert by_dtl[1] == size * (size - 1) // 2 + size


def adoption(world):
    dup = world.Dup()
    backwards = world.Split(0, -world.Get_rank())
    half = world.Split(world.Get_rank() % 2, 0)
    for theirs in (world, dup, backwards, half):
        comm = opened(theirs)
        assert place(comm) == (theirs.Get_rank(), theirs.Get_size())
        sums(comm, theirs)
        call("dtl_comm_destroy", comm)
    # Freed by mpi4py while it is in use here.
    comm = opened(dup)
    dup.Free()
    sums(comm, world)
    call("dtl_comm_destroy", comm)
    backwards.Free()
    half.Free()
    out = Handle()
    call("dtl_comm_from_mpi_fint", MPI.COMM_NULL.py2f(), ctypes.byref(out), wanted="DTL_ERROR_INVALID_ARGUMENT")


def exchange(world):
    """On a communicator that is not duplicated, messages of the two meet."""
    shared = world.Dup()
    rank, size = shared.Get_rank(), shared.Get_size()
    after, before = (rank + 1) % size, (rank + size - 1) % size
    comm, beside = opened_as(shared, flags=NO_DUP), opened(shared)
    info, got = RecvInfo(), numbers("d", [0, 0, 0])

    # mpi4py sends, dtl receives: waiting, and as a request posted before.
    request = Handle()
    call("dtl_comm_irecv", comm, address(got), 3, FLOAT64, ANY, 4, ctypes.byref(request))
    shared.Send([numbers("d", [rank, 0.5]), MPI.DOUBLE], dest=after, tag=4)
    call("dtl_request_wait", request, 2**64 - 1, ctypes.byref(info))
    assert list(got) == [before, 0.5, 0] and (info.source, info.tag, info.size_bytes) == (before, 4, 16)
    sending = shared.Isend([numbers("d", [rank, 1.5, 7]), MPI.DOUBLE], dest=after, tag=5)
    call("dtl_comm_recv", comm, address(got), 3, FLOAT64, before, 5, ctypes.byref(info))
    sending.Wait()
    assert list(got) == [before, 1.5, 7] and info.size_bytes == 24

    # dtl sends, mpi4py receives, small and large. dtl's data is bytes to MPI.
    for count in (3, 1 << 16):
        data, into = numbers("d", [rank] * count), numbers("d", [-1] * count)
        receiving = shared.Irecv([into, 8 * count, MPI.BYTE], source=MPI.ANY_SOURCE, tag=6)
        call("dtl_comm_send", comm, address(data), count, FLOAT64, after, 6)
        told = MPI.Status()
        receiving.Wait(told)
        assert into[0] == into[count - 1] == before and told.Get_source() == before
        assert told.Get_count(MPI.BYTE) == 8 * count

    # The duplicate sees none of it.
    sending = shared.Isend([numbers("d", [1, 2, 3]), MPI.DOUBLE], dest=after, tag=7)
    shared.Barrier()
    found = ctypes.c_int32(-1)
    call("dtl_comm_iprobe", beside, ANY, -1, ctypes.byref(found), ctypes.byref(info))
    assert found.value == 0
    shared.Recv([got, MPI.DOUBLE], source=before, tag=7)
    sending.Wait()
    sums(comm, shared)
    call("dtl_comm_destroy", comm)
    call("dtl_comm_destroy", beside)
    shared.Free()


def limits(world):
    """With a time limit, what does not come is a status, and the communicator goes on."""
    comm = opened_as(world, timeout_ns=100_000_000)
    got = numbers("d", [0])
    if world.Get_rank() == 0:
        call("dtl_comm_recv", comm, address(got), 1, FLOAT64, 0, 9, None, wanted="DTL_ERROR_TIMEOUT")
    world.Barrier()
    call("dtl_comm_destroy", comm)
    comm = opened_as(world, timeout_ns=30_000_000_000)
    sums(comm, world)
    call("dtl_comm_destroy", comm)


def main():
    if order == "dtl-starts":
        assert not MPI.Is_initialized()
        comm = Handle()
        desc = Desc(ctypes.sizeof(Desc), kind=b"mpi")
        call("dtl_comm_open", ctypes.byref(desc), ctypes.byref(comm))
        assert MPI.Is_initialized() and MPI.Query_thread() == MPI.THREAD_MULTIPLE
    world = MPI.COMM_WORLD
    adoption(world)
    exchange(world)
    limits(world)
    rank, last = world.Get_rank(), opened(world)
    if order == "mpi-first":
        MPI.Finalize()
        call("dtl_comm_barrier", last, wanted="DTL_ERROR_INVALID_STATE")
        assert b"MPI is finalised" in dtl.dtl_last_error()
        call("dtl_comm_destroy", last)
        call("dtl_finalize")
    else:
        call("dtl_comm_barrier", last)
        call("dtl_finalize")
        assert MPI.Is_finalized() == (order == "dtl-starts")
        if not MPI.Is_finalized():
            world.Barrier()  # mpi4py's own goes on
            MPI.Finalize()
    if rank == 0:
        print(f"interop {order}: mpi4py {mpi4py.__version__}, {'numpy' if numpy else 'no numpy'}: all as it should be")


try:
    main()
except BaseException:
    traceback.print_exc()
    sys.stderr.flush()
    if MPI.Is_initialized() and not MPI.Is_finalized():
        MPI.COMM_WORLD.Abort(1)
    sys.exit(1)
