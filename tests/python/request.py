"""Requests: completion, await, and buffers that outlive their last name in the program."""

import asyncio
import gc
import sys
import time
import weakref

import numpy as np

import case
import dtl
from dtl import request as requests


def interrupt_after(name: str) -> None:
    """Raises KeyboardInterrupt as soon as a function in C with this name returns, like Ctrl-C."""

    def profile(frame: object, event: str, function: object) -> None:
        if event == "c_return" and getattr(function, "__name__", "") == name:
            raise KeyboardInterrupt

    sys.setprofile(profile)  # ends with its exception


class Requests(case.Case):
    def other(self) -> int:
        return 1 - self.rank

    def test_wait_and_test(self) -> None:
        room = np.zeros(3)
        receive = self.comm.irecv(room, self.other(), 4)
        send = self.comm.isend(np.arange(3.0) + self.rank, self.other(), 4)
        info = receive.wait()
        self.assertEqual((info.source, info.tag, info.size_bytes), (self.other(), 4, 24))
        np.testing.assert_array_equal(room, np.arange(3.0) + self.other())
        self.assertTrue(receive.is_complete and receive.test())
        self.assertEqual(receive.wait(), info)
        send.wait(10)
        self.comm.barrier()

    def test_time_limit_and_cancel(self) -> None:
        receive = self.comm.irecv(np.zeros(1), self.other(), 99)
        self.assertFalse(receive.test())
        for limit in (0, 0.01, 0.12):
            with self.refuses(dtl.Status.TIMEOUT):
                receive.wait(limit)
        with self.assertRaisesRegex(ValueError, "not complete"):
            print(receive.info)
        receive.cancel()
        with self.refuses(dtl.Status.CANCELED):
            receive.wait()
        with self.assertRaisesRegex(ValueError, "timeout"):
            self.comm.ibarrier().wait(-1)
        requests.release_pending()
        self.comm.barrier()

    def test_a_buffer_lives_until_its_request_is_complete(self) -> None:
        room = np.zeros(1000)
        alive = weakref.ref(room)
        receive = self.comm.irecv(room, self.other())
        del room
        gc.collect()
        self.assertIsNotNone(alive())
        self.comm.send(np.full(1000, 7.0), self.other())
        receive.wait()
        gc.collect()
        self.assertIsNone(alive(), "a complete request lets its buffer go")

    def test_a_temporary_is_sent_whole(self) -> None:
        # Large enough that the receiver copies it from the sender's memory.
        count, rounds = 1 << 20, 4
        sends = [
            self.comm.isend(np.full(count, i + self.rank), self.other(), i) for i in range(rounds)
        ]
        gc.collect()
        noise = [np.full(count, -1) for _ in range(rounds)]  # would reuse freed memory
        for tag in range(rounds):
            room = np.zeros(count, dtype=int)
            self.comm.recv(room, self.other(), tag)
            self.assertTrue((room == tag + self.other()).all())
        dtl.wait_all(sends)
        del noise

    def test_a_dropped_request_keeps_its_buffer(self) -> None:
        room = np.zeros(5)
        alive = weakref.ref(room)
        self.comm.irecv(room, self.other(), 21)  # dropped at once
        del room
        gc.collect()
        self.assertIsNotNone(alive(), "the library may still write it")
        self.comm.barrier()
        self.comm.send(np.arange(5.0), self.other(), 21)
        self.comm.barrier()
        while requests.release_pending():
            pass
        gc.collect()
        self.assertIsNone(alive())

    def test_a_dropped_send_arrives(self) -> None:
        count = 1 << 20
        self.comm.isend(np.full(count, 5.0 + self.rank), self.other(), 22)
        gc.collect()
        room = np.zeros(count)
        self.comm.recv(room, self.other(), 22)
        self.assertTrue((room == 5.0 + self.other()).all())
        self.comm.barrier()

    def test_a_buffer_in_use_cannot_be_resized(self) -> None:
        room = bytearray(8)
        receive = self.comm.irecv(room, self.other(), 23)
        with self.assertRaises(BufferError):
            room.extend(b"more")
        self.comm.send(bytes(8), self.other(), 23)
        receive.wait()
        room.extend(b"more")

    def test_a_destroyed_communicator_ends_its_requests(self) -> None:
        room = np.zeros(1)
        alive = weakref.ref(room)
        copy = self.comm.dup()
        receive = copy.irecv(room, self.other())
        del room
        copy.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            receive.wait()
        gc.collect()
        self.assertIsNone(alive())
        self.comm.barrier()

    def test_wait_all_and_any(self) -> None:
        rooms = [np.zeros(1, dtype=int) for _ in range(5)]
        receives = [self.comm.irecv(room, self.other(), tag) for tag, room in enumerate(rooms)]
        self.assertFalse(dtl.test_all(receives[:1]))
        with self.refuses(dtl.Status.TIMEOUT):
            dtl.wait_any(receives, 0.06)
        self.comm.barrier()  # both ranks have waited in vain
        self.comm.send(np.array([3]), self.other(), 3)
        self.assertEqual(dtl.wait_any(receives), 3)
        self.comm.barrier()
        for tag in (0, 1, 2, 4):
            self.comm.send(np.array([tag]), self.other(), tag)
        infos = dtl.wait_all(receives)
        self.assertEqual([info.tag for info in infos], [0, 1, 2, 3, 4])
        self.assertEqual([int(room[0]) for room in rooms], [0, 1, 2, 3, 4])
        self.assertIsNone(dtl.wait_any(receives))
        self.comm.barrier()

    def test_failures_in_wait_all(self) -> None:
        small, good = np.zeros(1), np.zeros(4)
        receives = [self.comm.irecv(small, self.other(), 1), self.comm.irecv(good, self.other(), 2)]
        self.comm.send(np.arange(4.0), self.other(), 1)
        self.comm.send(np.arange(4.0), self.other(), 2)
        with self.refuses(dtl.Status.TRUNCATED):
            dtl.wait_all(receives)
        self.assertTrue(receives[0].is_complete and receives[1].is_complete)
        self.assertEqual(good[3], 3)

    def test_a_failure_does_not_end_the_wait_for_the_others(self) -> None:
        room = np.zeros(1)
        if self.rank == 0:
            both = [self.comm.irecv(np.zeros(1), 1, 5), self.comm.irecv(room, 1, 6)]
            with self.refuses(dtl.Status.TRUNCATED):
                dtl.wait_all(both)
            self.assertTrue(both[1].is_complete and room[0] == 7)
        else:
            self.comm.send(np.zeros(2), 0, 5)
            time.sleep(0.3)  # several slices of a wait
            self.comm.send(np.full(1, 7.0), 0, 6)
        self.comm.barrier()

    def test_await(self) -> None:
        async def ping(tag: int) -> int:
            room = np.zeros(1, dtype=int)
            receive = self.comm.irecv(room, self.other(), tag)
            await self.comm.isend(np.array([tag * 10 + self.rank]), self.other(), tag)
            info = await receive
            assert info.tag == tag
            return int(room[0])

        async def all_of_them() -> list[int]:
            return list(await asyncio.gather(*(ping(tag) for tag in range(8))))

        wanted = [tag * 10 + self.other() for tag in range(8)]
        self.assertEqual(asyncio.run(all_of_them()), wanted)

    def test_await_while_another_task_runs(self) -> None:
        order: list[str] = []
        room = np.zeros(1)

        async def late() -> None:
            await asyncio.sleep(0.02)
            order.append("task")
            self.comm.send(np.ones(1), 1, 31)

        async def both() -> None:
            task = asyncio.create_task(late())
            await self.comm.irecv(room, 1, 31)  # the answer to what the task sends
            order.append("received")
            await task

        if self.rank == 0:
            asyncio.run(both())
            self.assertEqual((order, room[0]), (["task", "received"], 2))
        else:
            self.comm.recv(room, 0, 31)
            self.comm.send(room * 2, 0, 31)

    def test_context_manager(self) -> None:
        room = np.zeros(1)
        with self.comm.irecv(room, self.other()), self.comm.isend(np.ones(1), self.other()):
            pass
        self.assertEqual(room[0], 1)

    def test_persistent(self) -> None:
        value, room = np.zeros(1), np.zeros(1)
        alive = weakref.ref(room)
        send = self.comm.send_init(value, self.other(), 41)
        with self.comm.recv_init(room, self.other(), 41) as receive:
            for number in range(3):
                value[0] = number
                receive.start()
                send.start().wait()
                receive.wait()
                self.assertEqual(room[0], number)
            receive.start()
            send.start().wait()
        send.destroy()
        del room
        gc.collect()
        self.assertIsNone(alive())
        with self.refuses(dtl.Status.INVALID_HANDLE):
            receive.start()

    def test_results_of_persistent_requests(self) -> None:
        room, value = np.zeros(2), np.zeros(2)
        receive = self.comm.recv_init(room, self.other())
        self.assertTrue(receive.is_complete and receive.test(), "inactive")
        sends = [self.comm.send_init(value, self.other(), tag) for tag in (1, 2, 3)]
        for tag, how in enumerate(("wait_all", "wait_any", "test"), 1):
            receive.start()
            self.assertFalse(receive.is_complete)
            with self.assertRaisesRegex(ValueError, "not complete"):
                print(receive.info)
            with self.refuses(dtl.Status.INVALID_STATE):
                receive.start()
            self.comm.barrier()
            if how == "wait_all":
                late = self.comm.irecv(np.zeros(1), self.other(), 9)
                sends[0].start()
                with self.refuses(dtl.Status.TIMEOUT):
                    dtl.wait_all([receive, late, sends[0]], 0.2)  # several slices
                self.assertTrue(receive.is_complete and not late.is_complete)
                self.comm.barrier()
                self.comm.send(np.zeros(1), self.other(), 9)
                infos = dtl.wait_all([late, sends[0], receive])
                self.assertEqual((infos[2].tag, infos[2].size_bytes), (tag, 16))
            elif how == "wait_any":
                sends[1].start().wait()
                self.assertEqual(dtl.wait_any([receive]), 0)
                self.assertIsNone(dtl.wait_any([receive]))
            else:
                sends[2].start().wait()
                while not receive.test():
                    pass
            self.assertTrue(receive.is_complete)
            self.assertEqual((receive.info.source, receive.info.tag), (self.other(), tag))
            self.assertEqual(receive.wait(), receive.info, "the latest result")
        self.comm.barrier()
        for request in (receive, *sends):
            request.destroy()
            request.destroy()

    def test_wait_all_with_stale_requests(self) -> None:
        copy = self.comm.dup()
        both = [copy.irecv(np.zeros(1), self.other()), self.comm.ibarrier()]
        persistent = copy.recv_init(np.zeros(1), self.other()).start()
        copy.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            dtl.wait_all([*both, persistent])
        self.assertTrue(both[0].is_complete and both[1].is_complete and persistent.is_complete)

    def test_an_interrupt_after_the_start_keeps_the_buffers(self) -> None:
        def on(name: str, start, *arguments: object) -> None:  # type: ignore[no-untyped-def]
            interrupt_after(name)
            try:
                start(*arguments)
            finally:
                sys.setprofile(None)

        bytes_of_no_protocol = dtl.Array(1)
        cases = [
            ("_irecv", self.comm.irecv, np.zeros(1), self.other(), 71),
            ("dtl_comm_irecv", self.comm.irecv, bytes_of_no_protocol, self.other(), 72),
            ("dtl_comm_iallreduce", self.comm.iallreduce, np.ones(1), np.zeros(1)),
        ]
        for name, start, *arguments in cases:
            with self.assertRaises(KeyboardInterrupt):
                on(name, start, *arguments)
        rooms = [cases[0][2], cases[2][3]]
        alive = [weakref.ref(room) for room in rooms]
        del cases, rooms, arguments
        gc.collect()
        self.assertEqual(requests.release_pending() >= 2, True, "the receives are in progress")
        self.assertIsNotNone(alive[0](), "the library may still write it")
        self.comm.barrier()
        for tag in (71, 72):
            self.comm.send(np.ones(1), self.other(), tag)
        while requests.release_pending():
            pass
        gc.collect()
        self.assertEqual([one() for one in alive], [None, None])
        self.assertEqual(bytes_of_no_protocol.numpy()[0], 1)
        self.comm.barrier()


if __name__ == "__main__":
    case.main()
