"""Attributes, Cartesian grids, neighbour collectives, and memory that several ranks map."""

import gc
import weakref

import numpy as np

import case
import dtl


class Thing:
    """An object with weak references."""


class Attributes(case.Case):
    def test_set_get_delete(self) -> None:
        key, gone = dtl.Key(), dtl.Key()
        self.assertIsNone(self.comm.get_attr(key))
        self.assertEqual(self.comm.get_attr(key, 5), 5)
        thing = Thing()
        alive = weakref.ref(thing)
        self.comm.set_attr(key, thing)
        del thing
        gc.collect()
        self.assertIs(self.comm.get_attr(key), alive())
        with self.comm.dup() as copy:
            self.assertIsNone(copy.get_attr(key), "no copy function")
        self.comm.set_attr(key, None)
        gc.collect()
        self.assertIsNone(alive(), "replaced")
        self.assertIsNone(self.comm.get_attr(key, 5), "it is there, and None")
        self.comm.delete_attr(key)
        self.assertEqual(self.comm.get_attr(key, 5), 5)
        with self.refuses(dtl.Status.NOT_FOUND):
            self.comm.delete_attr(key)
        gone.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            gone.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            self.comm.set_attr(gone, Thing())
        key.destroy()

    def test_copies_and_deletes(self) -> None:
        calls: list[object] = []

        def copy(comm: dtl.Comm, value: int) -> int:
            self.assertEqual(comm.size, self.size)
            return value + 1

        key = dtl.Key(copy, lambda comm, value: calls.append(value))
        self.comm.set_attr(key, 10)
        first = self.comm.dup()
        second = first.dup()
        self.assertEqual([one.get_attr(key) for one in (self.comm, first, second)], [10, 11, 12])
        key.destroy()
        first.destroy()
        self.assertEqual(calls, [11])
        self.assertEqual(second.get_attr(key), 12, "attributes outlive their key")
        with self.refuses(dtl.Status.INVALID_HANDLE):
            first.get_attr(key)
        second.destroy()
        self.comm.delete_attr(key)
        self.assertEqual(calls, [11, 12, 10])

    def test_a_copy_that_fails(self) -> None:
        def copy(comm: dtl.Comm, value: object) -> object:
            raise LookupError("no copy of it")

        key = dtl.Key(copy)
        with self.comm.dup() as own:
            own.set_attr(key, 1)
            with self.refuses(dtl.Status.BACKEND, "LookupError: no copy of it"):
                own.dup()
        key.destroy()


class Grids(case.Case):
    def test_arithmetic(self) -> None:
        self.assertEqual(dtl.compute_dims(12, 2), (4, 3))
        self.assertEqual(dtl.compute_dims(12, [0, 2, 0]), (3, 2, 2))
        grid = dtl.Cart([2, 3], [False, True])
        self.assertEqual((grid.size, grid.dims, grid.periods), (6, (2, 3), (False, True)))
        for rank in range(6):
            self.assertEqual(grid.rank(grid.coords(rank)), rank)
        self.assertEqual(grid.coords(4), (1, 1))
        self.assertEqual(grid.rank((1, -1)), 5)
        self.assertEqual(grid.shift(4, 0), (1, dtl.PROC_NULL))
        self.assertEqual(grid.shift(4, 1, -1), (5, 3))
        self.assertEqual(grid.shift(4, 1).dest, 5)
        self.assertEqual(dtl.Cart([2], True).shift(0, 0), (1, 1))

    def test_what_is_refused(self) -> None:
        with self.refuses(dtl.Status.INVALID_ARGUMENT):
            dtl.compute_dims(12, [5, 0])
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "size"):
            dtl.compute_dims(0, 2)
        for dims in ([], [0, 2], [1] * 17, [1 << 20, 1 << 20]):
            with self.refuses(dtl.Status.INVALID_ARGUMENT):
                dtl.Cart(dims)
        with self.assertRaisesRegex(ValueError, "periods has 1 numbers: the grid has 2"):
            dtl.Cart([2, 3], [True])
        grid = dtl.Cart([2, 3])
        with self.assertRaisesRegex(ValueError, "coords has 3"):
            grid.rank((0, 0, 0))
        with self.refuses(dtl.Status.INVALID_ARGUMENT):
            grid.rank((0, 3))
        with self.refuses(dtl.Status.INVALID_RANK):
            grid.coords(6)
        with self.refuses(dtl.Status.INVALID_RANK):
            grid.shift(6, 0)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "dimension"):
            grid.shift(0, 2)


class Neighbors(case.Case):
    def test_halo_of_a_line(self) -> None:
        source, dest = dtl.Cart([self.size]).shift(self.rank, 0)
        mine, got = np.full(2, self.rank), np.full(2, -1)
        arguments = ([dest], mine, [2], [source], got, [2])
        wanted = [self.rank - 1] * 2 if self.rank else [-1, -1]
        self.comm.neighbor_alltoallv(*arguments)
        self.assertEqual(got.tolist(), wanted)
        got[:] = -1
        request = self.comm.ineighbor_alltoallv(*arguments)
        del arguments
        gc.collect()
        request.wait()
        self.assertEqual(got.tolist(), wanted)

    def test_displacements(self) -> None:
        right, left = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        mine, got = np.arange(4) + 10 * self.rank, np.full(4, -1)
        self.comm.neighbor_alltoallv(
            [right, left], mine, [1, 1], [left, right], got, [1, 1], [3, 1], [2, 0]
        )
        self.assertEqual(got.tolist(), [10 * right + 1, -1, 10 * left + 3, -1])
        self.comm.neighbor_alltoallv([], mine, [], [], got, [])

    def test_what_is_refused(self) -> None:
        four = np.zeros(4)
        with self.assertRaisesRegex(ValueError, "counts has 2 numbers: one for each of 1 dests"):
            self.comm.neighbor_alltoallv([0], four, [1, 1], [], np.zeros(1), [])
        with self.assertRaisesRegex(ValueError, "displs has 0 numbers: one for each of 1 sources"):
            self.comm.neighbor_alltoallv([], four, [], [0], np.zeros(1), [1], None, [])
        with self.assertRaisesRegex(ValueError, "sbuf has 4 elements: the call needs 5"):
            self.comm.neighbor_alltoallv([0], four, [5], [], np.zeros(1), [])
        with self.assertRaisesRegex(ValueError, r"counts\[0\] is -1"):
            self.comm.neighbor_alltoallv([0], four, [-1], [], np.zeros(1), [])
        with self.assertRaisesRegex(TypeError, "FLOAT64.*INT8"):
            self.comm.neighbor_alltoallv([], four, [], [], np.zeros(1, dtype="i1"), [])
        with self.refuses(dtl.Status.INVALID_RANK, "dests"):
            self.comm.neighbor_alltoallv([self.size], four, [1], [], np.zeros(1), [])


class SharedMemory(case.Case):
    def test_both_ranks_map_it(self) -> None:
        handle = np.zeros(128, dtype="u1")
        if self.rank == 0:
            table = dtl.Array((2, 500), backend="host", kind=dtl.MemoryKind.SHARED)
            handle[:] = bytearray(table.export_handle())
        self.comm.bcast(handle)
        if self.rank != 0:
            table = dtl.Memory.from_handle(handle, (2, 500))
        self.assertEqual(table.shape, (2, 500))
        seen = table.numpy()
        self.comm.barrier()
        seen.ravel()[self.rank :: self.size] = self.rank + 1
        self.comm.barrier()
        self.assertEqual(seen.sum(), 1000 / 2 * 3)
        if self.rank == 1:
            flat = dtl.Memory.from_handle(bytes(handle), dtype=dtl.DType.INT32)
            self.assertEqual(flat.shape, (2000,))
            with self.assertRaisesRegex(ValueError, "the memory"):
                dtl.Memory.from_handle(bytes(handle), 1 << 30)
        self.comm.barrier()
        table.destroy()
        if self.rank == 1:
            flat.destroy()
        self.assertEqual(seen[1, 1], seen[0, 1], "mapped as long as NumPy uses it")
        del seen
        gc.collect()
        self.comm.barrier()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            dtl.Memory.from_handle(handle)

    def test_what_is_refused(self) -> None:
        with self.refuses(dtl.Status.NOT_SUPPORTED, "SHARED"):
            dtl.Array(4, backend="host").export_handle()
        lent = dtl.Array.of(np.zeros(1))
        with self.refuses(dtl.Status.NOT_FOUND):
            lent.export_handle()
        lent.destroy()
        with self.assertRaisesRegex(BufferError, "destroyed"):
            lent.export_handle()
        with self.assertRaisesRegex(ValueError, "handle has 5 bytes: one has 128"):
            dtl.Memory.from_handle(b"short")
        with self.refuses(dtl.Status.INVALID_HANDLE, "null"):
            dtl.Memory.from_handle(bytes(128))
        with self.refuses(dtl.Status.INVALID_ARGUMENT):
            dtl.Memory.from_handle(b"x" * 128)


if __name__ == "__main__":
    case.main()
