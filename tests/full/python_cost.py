"""Time of an 8-byte message from Python, beside mpi4py's in the same processes.

    build/python/venv/bin/python tests/full/python_cost.py [LAUNCHER...]

Starts itself with two ranks by the launcher (default: mpirun.openmpi -n 2). Ranks exchange a
message of 8 bytes; blocks of round trips by mpi4py and by dtl alternate.
The times are half a round trip, in nanoseconds: the fastest block and the lower quartile. Fails if
dtl over shared memory takes more than 1.3 times as long as mpi4py. Two more pairs have no bound: a
request (half of irecv, send and wait) and half an allreduce of 8 bytes.

Calls: MPI is comm.Send([array, MPI.BYTE], dest) and comm.Recv, "shm" is dtl over shared memory, and
"mpi" is dtl over the same MPI. Environment: PYTHONPATH names the folder with the package dtl.
"""

import os
import sys
import time

BLOCKS, TRIPS, BOUND = 60, 2000, 1.3
LAUNCHER = ["mpirun.openmpi", "-n", "2"]


def measure() -> int:
    """Runs on each rank; returns the exit status."""
    import numpy as np
    from mpi4py import MPI

    import dtl

    world = MPI.COMM_WORLD
    rank, other = world.rank, 1 - world.rank
    array = np.zeros(8, dtype="u1")
    sides = {
        "mpi4py, [array, type]": trips_of(world.Send, world.Recv, [array, MPI.BYTE], rank, other),
        "mpi4py, array": trips_of(world.Send, world.Recv, array, rank, other),
    }
    for kind, comm in [("shm", dtl.COMM_WORLD), ("mpi", dtl.Comm.from_mpi(world))]:
        assert comm.kind == kind, f"kind {comm.kind}: expected {kind}"
        sides[f"dtl, {kind}"] = trips_of(comm.send, comm.recv, array, rank, other)
    one, total = np.zeros(1), np.zeros(1)
    room = np.zeros(8, dtype="u1")
    dtl_world = dtl.COMM_WORLD

    def request_of_mpi4py(count: int) -> None:
        for _ in range(count):
            request = world.Irecv(room, other)
            world.Send(array, other)
            request.Wait()

    def request_of_dtl(count: int) -> None:
        for _ in range(count):
            request = dtl_world.irecv(room, other)
            dtl_world.send(array, other)
            request.wait()

    def allreduce_of_mpi4py(count: int) -> None:
        for _ in range(count):
            world.Allreduce(one, total)

    def allreduce_of_dtl(count: int) -> None:
        for _ in range(count):
            dtl_world.allreduce(one, total)

    sides |= {
        "request, mpi4py": request_of_mpi4py,
        "request, dtl shm": request_of_dtl,
        "allreduce, mpi4py": allreduce_of_mpi4py,
        "allreduce, dtl shm": allreduce_of_dtl,
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for block in range(-3, BLOCKS):
        for name, trips in sides.items():
            world.Barrier()
            begin = time.perf_counter_ns()
            trips(TRIPS)
            if block >= 0:
                times[name].append((time.perf_counter_ns() - begin) / TRIPS / 2)
    status = 0
    if rank == 0:
        base = min(min(times[name]) for name in times if name.startswith("mpi4py"))
        for name, all_of_them in times.items():
            ordered = sorted(all_of_them)
            fastest, quartile = ordered[0], ordered[len(ordered) // 4]
            ratio = fastest / base
            print(f"{name:22} {fastest:6.0f} ns  quartile {quartile:6.0f} ns  ratio {ratio:.2f}")
        ratio = min(times["dtl, shm"]) / base
        status = 0 if ratio <= BOUND else 1
        print(f"{'ok' if status == 0 else 'FAILED'}: {ratio:.2f} of mpi4py's time, at most {BOUND}")
    return int(world.bcast(status))


def trips_of(send, recv, buffer, rank, other):  # type: ignore[no-untyped-def]
    """Returns the loop of round trips by two functions."""

    def first(count: int) -> None:
        for _ in range(count):
            send(buffer, other)
            recv(buffer, other)

    def second(count: int) -> None:
        for _ in range(count):
            recv(buffer, other)
            send(buffer, other)

    return second if rank else first


if __name__ == "__main__":
    if "PYTHON_COST_RANK" in os.environ:
        sys.exit(measure())
    launcher = sys.argv[1:] or LAUNCHER
    os.environ["PYTHON_COST_RANK"] = "1"
    os.execvp(launcher[0], [*launcher, sys.executable, __file__])
