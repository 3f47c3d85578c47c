"""heat: the heat equation on a square, cut into strips of rows, one for each rank.

Each step computes the inner rows while the border rows travel (requests). The result is compared
with the same computation on one rank.

Run: dtlrun -n 4 python heat.py [rows [steps]]
Prints the temperature of the centre from both, and "correct".
"""

import sys

import numpy as np
from numpy.typing import NDArray

import dtl

Grid = NDArray[np.float64]


def start(rows: int) -> Grid:
    """Returns a cold square with a hot upper edge."""
    square = np.zeros((rows, rows))
    square[0, :] = 100.0
    return square


def relax(new: Grid, old: Grid, begin: int, end: int) -> None:
    """Computes rows begin to end - 1 of the next step."""
    above, below = old[begin - 1 : end - 1, 1:-1], old[begin + 1 : end + 1, 1:-1]
    left, right = old[begin:end, :-2], old[begin:end, 2:]
    new[begin:end, 1:-1] = 0.25 * (above + below + left + right)


def strips(comm: dtl.Comm, rows: int, steps: int) -> Grid | None:
    """Computes with all ranks; returns the square on rank 0."""
    counts = [rows // comm.size + (rank < rows % comm.size) for rank in range(comm.size)]
    first = sum(counts[: comm.rank])
    mine = counts[comm.rank]
    # One row above and one below belong to the neighbours.
    old = np.zeros((mine + 2, rows))
    old[1:-1] = start(rows)[first : first + mine]
    new = old.copy()
    up = comm.rank - 1 if comm.rank > 0 else dtl.PROC_NULL
    down = comm.rank + 1 if comm.rank + 1 < comm.size else dtl.PROC_NULL
    # The square's own upper and lower rows stay as they are.
    top, bottom = (2 if comm.rank == 0 else 1), (mine if down == dtl.PROC_NULL else mine + 1)
    for _ in range(steps):
        border = [
            comm.irecv(old[0], up, 1),
            comm.irecv(old[-1], down, 2),
            comm.isend(old[1], up, 2),
            comm.isend(old[-2], down, 1),
        ]
        relax(new, old, 2, mine)
        dtl.wait_all(border)
        for row in {1, mine} & set(range(top, bottom)):
            relax(new, old, row, row + 1)
        old, new = new, old
    square = np.zeros((rows, rows)) if comm.rank == 0 else None
    comm.gatherv(old[1:-1], square, [count * rows for count in counts])
    return square


def alone(rows: int, steps: int) -> Grid:
    """Computes on one rank."""
    old = start(rows)
    new = old.copy()
    for _ in range(steps):
        relax(new, old, 1, rows - 1)
        old, new = new, old
    return old


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    if rows < dtl.COMM_WORLD.size:
        sys.exit(f"rows is {rows}: at least one for each of {dtl.COMM_WORLD.size} ranks")
    square = strips(dtl.COMM_WORLD, rows, steps)
    if square is not None:
        wanted = alone(rows, steps)
        verdict = "correct" if np.array_equal(square, wanted) else "WRONG"
        middle = rows // 2, rows // 2
        print(f"centre {square[middle]:.6f}, alone {wanted[middle]:.6f}: {verdict}")


if __name__ == "__main__":
    main()
