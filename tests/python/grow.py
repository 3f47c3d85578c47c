"""Two ranks start a third one, which runs this program, too."""

import os

import numpy as np

import dtl

comm = dtl.COMM_WORLD
is_new = os.environ["DTL_JOB"].startswith("grow-")
if is_new:
    grown = comm
else:
    try:
        comm.grow(0)
    except dtl.Error as error:
        assert error.status == dtl.Status.INVALID_ARGUMENT and "new_ranks" in error.text, error
    else:
        raise AssertionError("0 new ranks")
    grown = comm.grow(1)
    assert grown.rank == comm.rank
assert grown.size == 3
state = np.array([42 if grown.rank == 0 else 0])
grown.bcast(state)
total = np.zeros(1, dtype=int)
grown.allreduce(state, total)
assert total[0] == 126, total
grown.barrier()
if not is_new:
    try:
        with dtl.Comm.threads(1)[0] as alone:
            alone.grow(1)
    except dtl.Error as error:
        assert error.status == dtl.Status.NOT_SUPPORTED, error
    else:
        raise AssertionError("threads cannot grow")
    grown.destroy()
