"""Communicators from mpi4py and back. Started by an MPI's launcher with mpi4py for that MPI."""

import numpy as np
from mpi4py import MPI

import case
import dtl


class Mpi(case.Case):
    def test_from_mpi4py(self) -> None:
        world = MPI.COMM_WORLD
        with dtl.Comm.from_mpi(world) as comm:
            self.assertEqual((comm.rank, comm.size, comm.kind), (world.rank, world.size, "mpi"))
            total = np.zeros(1)
            comm.allreduce(np.array([comm.rank + 1.0]), total)
            self.assertEqual(total[0], sum(range(1, world.size + 1)))
            room = np.zeros(3)
            receive = comm.irecv(room, (comm.rank - 1) % comm.size)
            comm.send(np.full(3, comm.rank), (comm.rank + 1) % comm.size)
            receive.wait()
            # Messages of mpi4py on its own communicator are not taken by dtl's receives.
            note = world.isend({"rank": world.rank}, (world.rank + 1) % world.size)
            self.assertIsNone(comm.iprobe())
            self.assertEqual(world.recv()["rank"], (world.rank - 1) % world.size)
            note.wait()

    def test_to_mpi4py(self) -> None:
        turned = self.comm.group_create(list(reversed(range(self.size))))
        assert turned is not None
        made = turned.to_mpi()
        self.assertEqual((made.rank, made.size), (turned.rank, turned.size))
        ranks = made.allgather(MPI.COMM_WORLD.rank)
        self.assertEqual(ranks, list(reversed(range(self.size))))
        made.Free()
        half = self.comm.split(self.rank % 2)
        assert half is not None
        part = half.to_mpi()
        self.assertEqual(part.allreduce(1), half.size)
        part.Free()
        half.destroy()
        turned.destroy()

    def test_same_arrays(self) -> None:
        array = np.arange(4.0)
        other = np.zeros(4)
        MPI.COMM_WORLD.Allreduce(array, other)
        mine = np.zeros(4)
        self.comm.allreduce(array, mine)
        np.testing.assert_array_equal(mine, other)


if __name__ == "__main__":
    case.main()
    dtl.finalize()
