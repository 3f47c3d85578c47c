"""Messages between two ranks: buffers of every kind, dtypes, results and error texts."""

import array
import sys
import threading

import numpy as np

import case
import dtl


class Messages(case.Case):
    def other(self) -> int:
        return 1 - self.rank

    def exchange(self, sent: object, received: object, **named: int) -> dtl.RecvInfo:
        """Sends to the other rank and receives from it."""
        if self.rank == 0:
            self.comm.send(sent, self.other(), **named)
            return self.comm.recv(received, self.other(), **named)
        info = self.comm.recv(received, self.other(), **named)
        self.comm.send(sent, self.other(), **named)
        return info

    def test_every_dtype_of_numpy(self) -> None:
        for name in [
            "i1",
            "i2",
            "i4",
            "i8",
            "u1",
            "u2",
            "u4",
            "u8",
            "f2",
            "f4",
            "f8",
            "c8",
            "c16",
            "?",
        ]:
            sent = (np.arange(6) + self.rank).astype(name).reshape(2, 3)
            received = np.zeros_like(sent)
            info = self.exchange(sent, received)
            self.assertEqual((info.source, info.tag), (self.other(), 0))
            self.assertEqual(info.size_bytes, sent.nbytes)
            np.testing.assert_array_equal(
                received, (np.arange(6) + self.other()).astype(name).reshape(2, 3)
            )

    def test_other_buffers(self) -> None:
        record = np.array([(self.rank, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
        taken = np.zeros_like(record)
        self.exchange(record, taken)
        self.assertEqual(taken[0]["a"], self.other())
        room = bytearray(16)
        self.assertEqual(self.exchange(b"hello %d" % self.rank, room).size_bytes, 7)
        self.assertEqual(room[:7], b"hello %d" % self.other())
        numbers = array.array("d", [0.0, 0.0])
        self.exchange(array.array("d", [1.5, self.rank]), numbers)
        self.assertEqual(numbers.tolist(), [1.5, self.other()])
        self.assertEqual(self.exchange(b"", bytearray(0)).size_bytes, 0)
        column = np.asfortranarray(np.arange(6.0).reshape(2, 3))
        same = np.asfortranarray(np.zeros((2, 3)))
        self.exchange(column, same)
        np.testing.assert_array_equal(column, same)

    def test_tags_and_names_of_arguments(self) -> None:
        value = np.zeros(1)
        if self.rank == 0:
            for tag in (5, 6):
                self.comm.send(np.array([float(tag)]), dest=1, tag=tag)
            self.comm.ssend(tag=7, dest=np.int64(1), buffer=np.array([7.0]))
        else:
            for tag in (6, 5, 7):
                info = self.comm.recv(value, source=0, tag=tag)
                self.assertEqual((info.tag, value[0]), (tag, tag))
        for wrong in ({"destination": 1}, {"buffer": value, "dest": 0}):
            with self.assertRaises(TypeError):
                self.comm.send(value, **wrong)  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            self.comm.send(value)  # type: ignore[call-arg]
        with self.assertRaises(OverflowError):
            self.comm.send(value, 1 << 40)

    def test_sendrecv_and_probe(self) -> None:
        mine, other = np.array([self.rank]), np.array([-1])
        info = self.comm.sendrecv(mine, self.other(), other, self.other(), stag=3)
        self.assertEqual((other[0], info.tag), (self.other(), 3))
        if self.rank == 0:
            self.comm.send(np.arange(9.0), 1, tag=11)
        else:
            info = self.comm.probe(tag=11)
            room = np.zeros(info.size_bytes // 8)
            self.assertEqual(self.comm.iprobe(0, 11), info)
            self.comm.recv(room, info.source, info.tag)
            self.assertEqual(room[8], 8)
            self.assertIsNone(self.comm.iprobe(0, 11))

    def test_what_is_refused(self) -> None:
        with self.refuses(dtl.Status.INVALID_RANK, "dest 9", "ranks 0 to 1"):
            self.comm.send(np.zeros(1), 9)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "tag"):
            self.comm.recv(np.zeros(1), 0, -7)
        with self.assertRaisesRegex(BufferError, "contiguous"):
            self.comm.send(np.zeros((4, 4))[:, 1], 1)
        objects = np.array([{}, {}])
        for call in (self.comm.send, self.comm.isend, self.comm.recv, self.comm.irecv):
            with self.assertRaisesRegex(TypeError, "Python objects.*pickle"):
                call(objects, 1)
        fields = np.zeros(1, dtype=[("O", "i4"), ("Other", "f8")])  # names only
        dtl.COMM_SELF.isend(fields, 0)
        dtl.COMM_SELF.recv(fields, 0)
        with self.assertRaisesRegex(TypeError, "int"):
            self.comm.send(3, 1)
        with self.assertRaisesRegex(BufferError, "read-only|not writable|writable"):
            self.comm.recv(b"constant", 0)
        error = dtl.Error(dtl.Status.NOT_FOUND, "no such thing")
        self.assertEqual(str(error), "DTL_ERROR_NOT_FOUND: no such thing")

    def test_no_references_are_left(self) -> None:
        sent, received = np.zeros(4), np.zeros(4)
        before = sys.getrefcount(sent), sys.getrefcount(received)
        for _ in range(100):
            request = dtl.COMM_SELF.isend(sent, 0)
            dtl.COMM_SELF.recv(received, 0)
            request.wait()
            for wrong in (9, "nobody"):
                with self.assertRaises((dtl.Error, TypeError)):
                    dtl.COMM_SELF.send(sent, wrong)  # type: ignore[arg-type]
                with self.assertRaises((dtl.Error, TypeError)):
                    dtl.COMM_SELF.recv(received, wrong)  # type: ignore[arg-type]
        del request
        self.assertEqual((sys.getrefcount(sent), sys.getrefcount(received)), before)

    def test_truncation(self) -> None:
        if self.rank == 0:
            self.comm.send(np.arange(4), 1)
        else:
            room = np.zeros(2, dtype=int)
            with self.refuses(dtl.Status.TRUNCATED):
                self.comm.recv(room, 0)
            np.testing.assert_array_equal(room, [0, 1])

    def test_other_threads_run_while_a_rank_waits(self) -> None:
        room = np.zeros(1)
        if self.rank == 0:
            waiting = threading.Thread(target=self.comm.recv, args=(room, 1))
            waiting.start()
            self.comm.send(np.ones(1), 1)  # rank 1 sends only after it
            waiting.join()
            self.assertEqual(room[0], 2)
        else:
            self.comm.recv(room, 0)
            self.comm.send(room * 2, 0)

    def test_matched_messages(self) -> None:
        if self.rank == 0:
            for number in range(2):
                self.comm.send(np.full(number + 1, 5.0), 1, 12)
        else:
            message = self.comm.mprobe(0, 12)
            room = np.zeros(message.info.size_bytes // 8)
            other = self.comm.improbe(0, 12)
            while other is None:
                other = self.comm.improbe(0, 12)
            more = np.zeros(2)
            self.assertEqual(other.irecv(more).wait().size_bytes, 16)
            self.assertEqual(message.recv(room), message.info)
            self.assertEqual((room.tolist(), more.tolist()), ([5], [5, 5]))
            with self.refuses(dtl.Status.INVALID_HANDLE):
                message.recv(room)

    def test_a_send_waits_for_an_event(self) -> None:
        gate, value = threading.Event(), np.zeros(1)
        if self.rank == 0:
            stream = dtl.Stream("host")
            stream.call(lambda: gate.wait() and value.fill(3))
            send = self.comm.isend_on(value, 1, stream.record(), 13)
            self.assertFalse(send.test())
            gate.set()
            send.wait()
        else:
            self.comm.recv(value, 0, 13)
            self.assertEqual(value[0], 3)

    def test_registered_buffers(self) -> None:
        data = np.zeros(4096)
        with self.comm.register(data) as registration:
            with self.refuses(dtl.Status.ALREADY_EXISTS):
                self.comm.register(data[1:])
            self.comm.bcast(data)
        registration.deregister()
        self.assertIn("rank 0", self.comm.dump())

    def test_communicators(self) -> None:
        with self.comm.dup() as copy:
            self.assertEqual((copy.rank, copy.size, copy.kind), (self.rank, 2, self.comm.kind))
            self.assertNotEqual(copy, self.comm)
        with self.refuses(dtl.Status.INVALID_HANDLE):
            copy.send(np.zeros(1), 0)
        alone = self.comm.split(self.rank)
        assert alone is not None
        self.assertEqual(alone.size, 1)
        alone.destroy()
        none = self.comm.split(0 if self.rank else dtl.UNDEFINED)
        self.assertEqual(none is None, self.rank == 0)
        turned = self.comm.group_create([1, 0])
        assert turned is not None
        self.assertEqual(turned.rank, self.other())
        node = self.comm.split_node()
        self.assertEqual(node.size, 2)
        self.assertTrue(self.comm.transport)
        self.assertEqual(dtl.COMM_SELF.size, 1)

    def test_ranks_that_are_threads(self) -> None:
        ranks = dtl.Comm.threads(3)
        sums = [np.zeros(1) for _ in ranks]

        def run(comm: dtl.Comm) -> None:
            comm.allreduce(np.array([comm.rank + 1.0]), sums[comm.rank])

        threads = [threading.Thread(target=run, args=(comm,)) for comm in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([float(one[0]) for one in sums], [6, 6, 6])
        # The handles are no parts of an array that is freed.
        for _ in range(100):
            bytearray(24)
        self.assertEqual([comm.size for comm in ranks], [3, 3, 3])
        for comm in ranks:
            comm.destroy()


if __name__ == "__main__":
    case.main()
