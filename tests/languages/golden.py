"""golden: one program in five languages, see golden.c."""

import sys

import numpy as np

import dtl

REPORT_BYTES = 512

TWICE = """
#include "dtl_kernel.h"
DTL_KERNEL(twice, (DTL_GLOBAL float*, x), (unsigned, n))
{
    const DTL_SIZE i = DTL_GLOBAL_ID(0);
    if (i < n) x[i] = 2 * x[i] + 1;
}
"""


def device() -> str:
    numbers, back = np.arange(1000.0), np.zeros(1000)
    there = dtl.Array(1000, backend="host", kind=dtl.MemoryKind.DEVICE)
    there.copy_from(numbers)
    there.copy_to(back)
    return f"device: the sum of the copies is {back.sum():.0f}\n"


def kernel() -> str:
    x = np.arange(4, dtype=np.float32)
    twice = dtl.Module(TWICE, "host").kernel("twice", "pI")
    with dtl.Stream("host") as stream:
        twice.launch(stream, 1, 4, x, 4)
        stream.wait()
    return f"kernel: 2 x + 1 is {x[0]:.0f} {x[1]:.0f} {x[2]:.0f} {x[3]:.0f}\n"


def policy() -> str:
    values: list[int] = []
    with dtl.Policy("round_robin", [10, 20, 30]) as round_robin:
        for _ in range(5):
            round_robin.run(values.append)
    return " ".join(["policy:", *map(str, values)]) + "\n"


def error(world: dtl.Comm) -> str:
    try:
        world.send(np.ones(1, dtype=np.int32), 99)
    except dtl.Error as failure:
        return f"error: {failure}\n"
    return "error: none\n"


def together(world: dtl.Comm) -> None:
    """Prints numbers that every rank must have a part in."""
    rank, size = world.rank, world.size
    total = np.zeros(1)
    world.allreduce(np.array([(rank + 1.0) ** 2]), total)
    mine, received = np.array([rank], dtype=np.int32), np.zeros(1, dtype=np.int32)
    world.sendrecv(mine, (rank + 1) % size, received, (rank - 1) % size, stag=7, rtag=7)
    every = np.zeros(size, dtype=np.int32) if rank == 0 else None
    world.gather(received, every)
    with dtl.Window.allocate(world, 1 if rank == 0 else 0, dtl.DType.INT64) as counter:
        with counter.lock(0):
            counter.fetch_op(np.array([rank + 1]), np.zeros(1, dtype=np.int64), 0)
        world.barrier()
        if every is not None:
            print(f"ranks: {size}\nallreduce: the sum of the squares is {total[0]:.0f}")
            print("ring:", *every)
            print(f"window: the counter is {counter.array[0]}")


def main() -> bool:
    with dtl.init():
        world = dtl.COMM_WORLD
        together(world)
        report = (device() + kernel() + policy() + error(world)).encode()
        # The other languages end their text with NUL.
        mine = report.ljust(REPORT_BYTES, b"\0")
        reports = bytearray(REPORT_BYTES * world.size) if world.rank == 0 else None
        # Elements of C's dtype for bytes, which is not Python's.
        world.gather(
            np.frombuffer(mine, "V1"), None if reports is None else np.frombuffer(reports, "V1")
        )
        good = np.ones(1, dtype=np.int32)
        if reports is not None:
            print(report.decode(), end="")
            for rank in range(world.size):
                other = bytes(reports[rank * REPORT_BYTES : (rank + 1) * REPORT_BYTES])
                if other != mine:
                    print(f"rank {rank} reports:\n{other.rstrip(bytes(1)).decode()}", end="")
                    good[0] = 0
            print("every rank reports the same" if good[0] else "WRONG", flush=True)
        world.bcast(good)
        is_root = world.rank == 0
    if is_root:
        print("finalized")
    return bool(good[0])


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
