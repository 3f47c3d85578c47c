"""Windows as NumPy arrays: put, get, accumulate and atomic operations of two ranks."""

import gc
import os
import threading
import unittest.mock
import weakref
from collections.abc import Callable

import numpy as np

import case
import dtl


class Calls:
    """The library's functions, of which one runs a function before or after its work."""

    def __init__(self, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.name, self.before, self.after = name, before, after

    def __getattr__(self, name: str) -> object:
        function = getattr(dtl.raw.lib, name)
        if name != self.name:
            return function

        def call(*arguments: object) -> int:
            self.name = ""  # once
            self.before()
            status = int(function(*arguments))
            self.after()
            return status

        return call


def in_thread(function: Callable[..., None], *arguments: object) -> None:
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


class Windows(case.Case):
    def other(self) -> int:
        return 1 - self.rank

    def test_put_and_fence(self) -> None:
        with dtl.Window.allocate(self.comm, 4) as window:
            mine = window.array
            self.assertEqual((mine.dtype, mine.tolist()), (np.float64, [0, 0, 0, 0]))
            window.fence()
            window.put(np.array([1.0, 2.0]) + self.rank, self.other(), 1)
            window.fence()
            self.assertEqual(mine.tolist(), [0, 1 + self.other(), 2 + self.other(), 0])
            self.assertTrue(window.path)
            del mine

    def test_locks_and_atomics(self) -> None:
        with dtl.Window.allocate(self.comm, 2, dtl.DType.INT64) as window:
            one, old = np.array([1]), np.array([-1])
            for _ in range(10):
                with window.lock(0):
                    window.fetch_op(one, old, 0)
            self.comm.barrier()
            with window.lock_all():
                window.get(old, 0)
                window.flush(0)
                self.assertEqual(old[0], 20)
                window.accumulate(one, self.other(), 1)
            self.comm.barrier()
            with window.lock(self.rank, exclusive=True):
                window.compare_and_swap(np.array([7]), np.array([1]), old, self.rank, 1)
            self.assertEqual(old[0], 1)
            self.assertEqual(window.array[1], 7)

    def test_requests(self) -> None:
        with dtl.Window.allocate(self.comm, 1, dtl.DType.INT32) as window:
            window.array[0] = self.rank + 5
            self.comm.barrier()
            room = np.zeros(1, dtype="i4")
            with window.lock(self.other()):
                window.rget(room, self.other()).wait()
            self.assertEqual(room[0], self.other() + 5)
            self.comm.barrier()
            with window.lock(self.other()):
                window.rput(np.array([9], dtype="i4"), self.other()).wait()
            self.comm.barrier()
            self.assertEqual(window.array[0], 9)

    def test_window_over_an_array(self) -> None:
        mine = np.zeros(3)
        alive = weakref.ref(mine)
        window = dtl.Window(self.comm, mine)
        window.fence()
        window.put(np.full(3, 2.5), self.other())  # a temporary: kept until the fence
        gc.collect()
        window.fence()
        self.assertEqual(mine.tolist(), [2.5, 2.5, 2.5])
        with self.assertRaisesRegex(ValueError, "buffer of the program"):
            print(window.array)
        del mine
        gc.collect()
        self.assertIsNotNone(alive(), "other ranks may write it")
        window.destroy()
        del window
        gc.collect()
        self.assertIsNone(alive())

    def test_memory_in_use_is_not_freed(self) -> None:
        window = dtl.Window.allocate(self.comm, 8)
        mine = window.array
        with self.assertRaisesRegex(BufferError, "1 arrays or views"):
            window.destroy()
        mine[0] = 1  # still valid
        del mine
        memory = window.memory
        memory.release()
        window.destroy()
        with self.assertRaises(BufferError):
            print(window.memory)

    def test_what_is_refused(self) -> None:
        with dtl.Window.allocate(self.comm, 4) as window:
            with self.refuses(dtl.Status.INVALID_STATE):
                window.put(np.zeros(1), 0)
            with window.lock(0), self.refuses(dtl.Status.OUT_OF_BOUNDS):
                window.put(np.zeros(2), 0, 3)
            one, byte = np.zeros(1), np.zeros(1, dtype="i1")
            with window.lock(0):
                with self.assertRaisesRegex(ValueError, "result has 1 elements: the call needs 2"):
                    window.get_accumulate(np.zeros(2), one, 0)
                with self.assertRaisesRegex(TypeError, "FLOAT64.*INT8"):
                    window.fetch_op(one, byte, 0)
                with self.assertRaisesRegex(ValueError, "value has 0 elements"):
                    window.fetch_op(one[:0], one, 0)
                with self.assertRaisesRegex(TypeError, "FLOAT64, expected of INT8"):
                    window.compare_and_swap(one, byte, np.zeros(1), 0)

    def test_buffers_of_a_forgotten_window_live(self) -> None:
        window = dtl.Window.allocate(self.comm, 1)
        room = np.zeros(1)
        alive = weakref.ref(room)
        window.fence()
        window.get(room, self.rank)
        del room, window
        gc.collect()
        self.assertIsNotNone(alive(), "the get may still write it")

    def test_a_put_during_a_flush_keeps_its_buffer(self) -> None:
        window = dtl.Window.allocate(self.comm, 1)
        rooms = [np.zeros(1), np.zeros(1)]
        alive = [weakref.ref(room) for room in rooms]

        def get() -> None:
            window.get(rooms.pop(), self.rank)

        def nothing() -> None:
            pass

        with window.lock_all():
            # The get starts while the flush is in the library, after its work.
            with unittest.mock.patch("dtl.window.lib", Calls("dtl_win_flush", nothing, get)):
                window.flush(self.rank)
            gc.collect()
            self.assertIsNotNone(alive[1](), "no flush has completed the get")
            # A flush of another thread begins and ends before the get is in the library.
            flush = Calls("dtl_win_get", lambda: in_thread(window.flush), nothing)
            with unittest.mock.patch("dtl.window.lib", flush):
                get()
            gc.collect()
            self.assertIsNotNone(alive[0]())
            window.flush(1 - self.rank)
            self.assertIsNotNone(alive[0](), "that was another target")
            window.flush(self.rank)
            gc.collect()
            self.assertEqual([one() for one in alive], [None, None])
        window.destroy()

    def test_a_failed_flush_keeps_the_buffers(self) -> None:
        with dtl.Window.allocate(self.comm, 1) as window:
            room = np.zeros(1)
            alive = weakref.ref(room)
            with window.lock(self.rank):
                window.get(room, self.rank)
                del room
                with self.refuses(dtl.Status.INVALID_RANK):
                    window.flush(self.size)
                with self.refuses(dtl.Status.INVALID_STATE):
                    window.flush(1 - self.rank)
                gc.collect()
                self.assertIsNotNone(alive())

    def test_a_forked_child_does_not_keep_windows(self) -> None:
        with dtl.Window.allocate(self.comm, 1) as window:
            mine = window.array
            self.comm.barrier()
            child = os.fork()
            if child == 0:
                # No memory of the parent's windows hinders the child.
                code = 1
                try:
                    dtl.init_after_fork()
                    with self.refuses(dtl.Status.INVALID_HANDLE):
                        window.fence()
                    dtl.finalize()
                    code = 0
                finally:
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            del mine
            self.comm.barrier()


if __name__ == "__main__":
    case.main()
