"""Collectives over NumPy arrays and other buffers, blocking and as requests."""

import gc
import weakref

import numpy as np

import case
import dtl


class Collectives(case.Case):
    def test_reductions(self) -> None:
        mine, result = np.arange(4.0) + self.rank, np.zeros(4)
        total = np.arange(4.0) * self.size + sum(range(self.size))
        self.comm.allreduce(mine, result)
        np.testing.assert_array_equal(result, total)
        self.comm.allreduce(op=dtl.Op.MIN, rbuf=result, sbuf=mine)
        np.testing.assert_array_equal(result, np.arange(4.0))
        self.comm.iallreduce(mine, result, dtl.Op.MAX).wait()
        np.testing.assert_array_equal(result, np.arange(4.0) + self.size - 1)
        self.comm.allreduce(dtl.IN_PLACE, mine)
        np.testing.assert_array_equal(mine, total)
        root = self.size - 1
        for start in (self.comm.reduce, lambda *a: self.comm.ireduce(*a).wait()):
            room = np.zeros(1, dtype="i4") if self.rank == root else None
            start(np.array([self.rank], dtype="i4"), room, dtl.Op.SUM, root)
            if room is not None:
                self.assertEqual(room[0], sum(range(self.size)))

    def test_scans(self) -> None:
        one, room = np.array([self.rank + 1]), np.zeros(1, dtype=int)
        self.comm.scan(one, room)
        self.assertEqual(room[0], sum(range(self.rank + 2)))
        self.comm.iexscan(one, room).wait()
        if self.rank > 0:
            self.assertEqual(room[0], sum(range(self.rank + 1)))

    def test_operation_in_python(self) -> None:
        op = dtl.ReduceOp(lambda lower, upper: lower * 10 + upper, "digits")
        room = np.zeros(2, dtype=int)
        self.comm.allreduce(np.array([self.rank + 1, 1]), room, op)
        digits = "".join(str(rank + 1) for rank in range(self.size))
        self.assertEqual(room[0], int(digits))
        self.comm.barrier()
        op.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE, "destroyed"):
            self.comm.allreduce(np.array([1, 1]), room, op)

    def test_a_destroyed_operation_serves_collectives_in_progress(self) -> None:
        def add(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
            return lower + upper

        alive = weakref.ref(add)
        op, one, room = dtl.ReduceOp(add), np.ones(1), np.zeros(1)
        part, ones = np.zeros(1), np.ones(self.size)
        if self.rank == 0:
            self.comm.recv(bytearray(1), 1)
        both = [
            self.comm.iallreduce(one, room, op),
            self.comm.ireduce_scatter(ones, part, [1] * self.size, op),
        ]
        op.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE, "was destroyed"):
            op.destroy()
        del add, op
        gc.collect()
        self.assertIsNotNone(alive(), "the collectives call it")
        if self.rank == 1:  # rank 0 takes part only from now on
            self.comm.send(bytes(1), 0)
        dtl.wait_all(both)
        self.assertEqual((room[0], part[0]), (self.size, self.size))
        del both
        gc.collect()
        self.assertIsNone(alive())

    def test_blocks(self) -> None:
        mine = np.array([self.rank, -self.rank])
        every = np.zeros(2 * self.size, dtype=int)
        wanted = np.array([[rank, -rank] for rank in range(self.size)]).ravel()
        self.comm.allgather(mine, every)
        np.testing.assert_array_equal(every, wanted)
        every[:] = 0
        self.comm.igather(mine, every if self.rank == 0 else None).wait()
        if self.rank == 0:
            np.testing.assert_array_equal(every, wanted)
        room = np.zeros(2, dtype=int)
        self.comm.scatter(wanted if self.rank == 0 else None, room)
        np.testing.assert_array_equal(room, mine)
        turned = np.zeros(self.size, dtype=int)
        self.comm.alltoall(np.arange(self.size) + 10 * self.rank, turned)
        np.testing.assert_array_equal(turned, np.arange(self.size) * 10 + self.rank)
        part = np.zeros(2)
        self.comm.reduce_scatter_block(np.arange(2.0 * self.size), part)
        np.testing.assert_array_equal(part, (np.arange(2) + 2 * self.rank) * self.size)

    def test_bcast(self) -> None:
        data = np.arange(10) if self.rank == 0 else np.zeros(10, dtype=int)
        if self.rank == 0:
            data.flags.writeable = False  # the root's buffer is only read
        self.comm.bcast(data)
        np.testing.assert_array_equal(data, np.arange(10))
        text = bytearray(b"x" * 4) if self.rank else bytearray(b"text")
        self.comm.ibcast(text).wait()
        self.assertEqual(text, b"text")

    def test_vectors(self) -> None:
        counts = [rank + 1 for rank in range(self.size)]
        mine = np.full(self.rank + 1, self.rank)
        wanted = np.concatenate([np.full(rank + 1, rank) for rank in range(self.size)])
        every = np.zeros(sum(counts), dtype=int)
        self.comm.allgatherv(mine, every, counts)
        np.testing.assert_array_equal(every, wanted)
        room = np.zeros(sum(counts), dtype=int) if self.rank == 0 else None
        self.comm.gatherv(mine, room, counts)
        if room is not None:
            np.testing.assert_array_equal(room, wanted)
        part = np.zeros(self.rank + 1)
        self.comm.reduce_scatter(wanted * 1.0, part, counts)
        np.testing.assert_array_equal(part, np.full(self.rank + 1, self.rank * self.size))
        back = np.zeros(self.rank + 1, dtype=int)
        self.comm.scatterv(wanted if self.rank == 0 else None, back, counts)
        np.testing.assert_array_equal(back, mine)
        ones = [1] * self.size
        turned = np.zeros(self.size, dtype=int)
        self.comm.alltoallv(np.arange(self.size) + 10 * self.rank, ones, turned, ones)
        np.testing.assert_array_equal(turned, np.arange(self.size) * 10 + self.rank)

    def test_vectors_as_requests(self) -> None:
        counts = [rank + 1 for rank in range(self.size)]
        mine, ones = np.full(self.rank + 1, self.rank), [1] * self.size
        wanted = np.concatenate([np.full(rank + 1, rank) for rank in range(self.size)])
        is_root = self.rank == 0
        every, room = np.zeros(sum(counts), dtype=int), np.zeros(sum(counts), dtype=int)
        back, turned = np.zeros(self.rank + 1, dtype=int), np.zeros(self.size, dtype=int)
        part = np.zeros(1)
        self.comm.iallgatherv(mine, every, counts).wait()
        self.comm.igatherv(mine, room if is_root else None, counts).wait()
        self.comm.iscatterv(wanted if is_root else None, back, counts).wait()
        self.comm.ialltoallv(np.full(self.size, self.rank), ones, turned, ones).wait()
        self.comm.ireduce_scatter(np.ones(self.size), part, ones).wait()
        np.testing.assert_array_equal(every, wanted)
        np.testing.assert_array_equal(room, wanted if is_root else 0 * wanted)
        np.testing.assert_array_equal(back, mine)
        np.testing.assert_array_equal(turned, np.arange(self.size))
        self.assertEqual(part[0], self.size)

    def test_what_is_refused(self) -> None:
        four, three = np.zeros(4), np.zeros(3)
        with self.assertRaisesRegex(ValueError, "sbuf has 4 elements, rbuf 3"):
            self.comm.allreduce(four, three)
        with self.assertRaisesRegex(TypeError, "FLOAT64.*INT32"):
            self.comm.allreduce(four, np.zeros(4, dtype="i4"))
        with self.assertRaisesRegex(ValueError, "rbuf has 4 elements: the call needs"):
            self.comm.allgatherv(four, four, [5] * self.size)
        with self.assertRaisesRegex(ValueError, "one for each"):
            self.comm.allgatherv(four, four, [1] * (self.size + 1))
        # Checked on this rank, before the communicator takes part.
        whole, small = np.zeros(4 * self.size), np.zeros(4 * self.size, dtype="i1")
        with self.assertRaisesRegex(TypeError, "FLOAT64.*INT8"):
            self.comm.gather(four, small, self.rank)
        with self.assertRaisesRegex(TypeError, "INT8.*FLOAT64"):
            self.comm.scatter(whole, small[:4], self.rank)
        with self.assertRaisesRegex(TypeError, "FLOAT64.*INT8"):
            self.comm.gatherv(four, small, [4] * self.size, root=self.rank)
        with self.assertRaisesRegex(ValueError, "the call needs"):
            wrapping = np.full(self.size, 200, dtype="u1")
            self.comm.allgatherv(four, np.zeros(150), wrapping)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "overlap"):
            self.comm.allreduce(four, four)
        with self.refuses(dtl.Status.TYPE):
            self.comm.allreduce(four, np.zeros(4), dtl.Op.BAND)
        with self.refuses(dtl.Status.INVALID_RANK, "root"):
            self.comm.bcast(four, self.size)

    def test_a_request_of_a_collective_keeps_its_buffers(self) -> None:
        room = np.zeros(1 << 16)
        request = self.comm.iallreduce(np.ones(1 << 16), room)
        request.wait()
        self.assertTrue((room == self.size).all())
        self.comm.ibarrier().wait()


if __name__ == "__main__":
    case.main()
