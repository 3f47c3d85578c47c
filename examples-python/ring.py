"""ring: a token travels around all ranks, and each rank adds its number.

Run: dtlrun -n 4 python ring.py
Prints on rank 0 the sum and "correct".
"""

import numpy as np

import dtl


def main() -> None:
    comm = dtl.COMM_WORLD
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    token = np.zeros(1, dtype=np.int64)
    if comm.rank == 0:
        # The receive is started first, so that a ring of one rank works, too.
        arrival = comm.irecv(token, left)
        comm.send(np.zeros(1, dtype=np.int64), right)
        arrival.wait()
        wanted = comm.size * (comm.size - 1) // 2
        print(f"sum {token[0]} of {comm.size} ranks:", "correct" if token[0] == wanted else "WRONG")
    else:
        comm.recv(token, left)
        token += comm.rank
        comm.send(token, right)


if __name__ == "__main__":
    main()
