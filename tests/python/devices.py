"""Arrays, DLPack, streams, events, kernels from source and policies, on the host and by OpenCL."""

import gc
import threading
import unittest
import weakref

import numpy as np

import case
import dtl
from dtl import memory

SAXPY = """
#include "dtl_kernel.h"
DTL_KERNEL(saxpy, (float, a), (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, y), (unsigned, n))
{
    const DTL_SIZE i = DTL_GLOBAL_ID(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


class Backends(case.Case):
    def test_backends_and_devices(self) -> None:
        host = dtl.Backend("host")
        self.assertIn(host, dtl.backends())
        self.assertEqual((host.name, host.unavailable), ("host", None))
        self.assertTrue(host.supports("modules"))
        self.assertFalse(host.supports("wings"))
        device = host.devices[0]
        device.use()
        self.assertEqual(host.current_device.index, 0)
        self.assertEqual((device.kind, device.dlpack), (dtl.DeviceKind.CPU, (1, 0)))
        self.assertTrue(device.name and device.total_bytes > 0 and device.compute_units > 0)
        device.wait()
        self.assertLessEqual(device.free_bytes, device.total_bytes)
        with self.refuses(dtl.Status.NOT_FOUND, "host"):
            dtl.Backend("no such backend")


class Arrays(case.Case):
    def test_numpy_shares_the_memory(self) -> None:
        mine = dtl.Array((3, 4), dtl.DType.FLOAT32, backend="host")
        self.assertEqual((mine.shape, mine.strides, mine.size_bytes), ((3, 4), (4, 1), 48))
        seen = mine.numpy()
        self.assertEqual(seen.__array_interface__["data"][0], mine.address)
        seen[1, 2] = 5
        other = np.from_dlpack(mine)
        self.assertEqual(other[1, 2], 5)
        mine.destroy()
        del other
        gc.collect()
        self.assertEqual(seen[1, 2], 5, "the memory lives as long as NumPy's arrays")
        with self.refuses(dtl.Status.INVALID_HANDLE):
            mine.copy()

    def test_operations_keep_the_memory_of_a_destroyed_array(self) -> None:
        def is_allocated(address: int) -> bool:
            info = dtl.raw.ffi.new("dtl_mem_info_t *", dtl.raw.lib.dtl_mem_info_initial())
            pointer = dtl.raw.ffi.cast("void *", address)
            return dtl.raw.lib.dtl_mem_query(pointer, info) == dtl.Status.SUCCESS

        stream, gate = dtl.Stream("host"), threading.Event()
        self.addCleanup(gate.set)
        with dtl.Array(4, backend="host", kind=dtl.MemoryKind.DEVICE) as room:
            receive = self.comm.irecv(room, self.rank, 5)
            stream.call(gate.wait)
            stream.fill(room, 1)
        self.assertTrue(is_allocated(room.address))
        room.destroy()
        self.comm.send(np.zeros(4), self.rank, 5)
        receive.wait()
        self.assertTrue(is_allocated(room.address), "the stream may still write it")
        gate.set()
        stream.wait()
        self.assertFalse(is_allocated(room.address))
        with self.assertRaisesRegex(BufferError, "destroyed"):
            self.comm.send(room, self.rank)
        with self.assertRaisesRegex(BufferError, "destroyed"):
            room.copy_from(np.zeros(4))

    def test_numpy_lends_its_memory(self) -> None:
        source = np.arange(12.0).reshape(3, 4)
        alive = weakref.ref(source)
        mine = dtl.Array.of(source)
        self.assertEqual(
            (mine.address, mine.shape), (source.__array_interface__["data"][0], (3, 4))
        )
        self.assertEqual(mine.dtype, dtl.DType.FLOAT64)
        del source
        gc.collect()
        self.assertIsNotNone(alive())
        copy = mine.copy()
        del mine
        gc.collect()
        self.assertIsNone(alive())
        self.assertEqual(copy.numpy()[2, 3], 11)

    def test_arrays_that_cannot_be_buffers(self) -> None:
        read_only = np.arange(4.0)
        read_only.flags.writeable = False
        array = dtl.Array.of(read_only)
        with self.assertRaisesRegex(BufferError, "read-only"):
            dtl.COMM_SELF.irecv(array, 0)
        gone = dtl.Array(4)
        gone.destroy()
        with self.assertRaisesRegex(BufferError, "destroyed"):
            dtl.COMM_SELF.isend(gone, 0)
        self.assertEqual(dtl.Array(1).device.backend.name, "host")

    def test_strides(self) -> None:
        source = np.arange(24.0).reshape(4, 6)[:, ::2]
        mine = dtl.Array.of(source)
        self.assertEqual((mine.strides, mine.is_contiguous), ((6, 2), False))
        with self.assertRaisesRegex(BufferError, "strides"):
            dtl.COMM_SELF.isend(mine, 0)
        np.testing.assert_array_equal(mine.copy().numpy(), source)

    def test_capsule_that_nobody_consumes(self) -> None:
        mine = dtl.Array(4, backend="host")
        capsule = mine.__dlpack__(max_version=(1, 0))
        del capsule
        with self.assertRaisesRegex(BufferError, "without a copy"):
            mine.__dlpack__(copy=True)
        with self.assertRaises(AttributeError):
            print(mine.__cuda_array_interface__)

    def test_interface_for_cuda(self) -> None:
        # The description itself; the property refuses memory that is not CUDA's.
        mine = dtl.Array((2, 3), dtl.DType.INT16, backend="host")
        found = memory.interface(mine)
        self.assertEqual((found["shape"], found["typestr"], found["version"]), ((2, 3), "<i2", 3))
        self.assertEqual((found["data"], found["strides"]), ((mine.address, False), None))

    def test_arrays_are_buffers_of_messages(self) -> None:
        mine, room = dtl.Array(3, backend="host"), dtl.Array(3, backend="host")
        mine.numpy()[:] = [1, 2, 3]
        receive = dtl.COMM_SELF.irecv(room, 0)
        dtl.COMM_SELF.send(mine, 0)
        receive.wait()
        self.assertEqual(room.numpy().tolist(), [1, 2, 3])
        dtl.COMM_SELF.allreduce(mine, room)
        into = np.zeros(3)
        room.copy_to(into)
        room.copy_from(into * 2)
        self.assertEqual(room.numpy().tolist(), [2, 4, 6])
        with self.assertRaisesRegex(ValueError, "24"):
            room.copy_from(np.zeros(4))

    def test_device_memory_of_other_libraries(self) -> None:
        memory = np.arange(6, dtype=np.float32)
        room = np.zeros(6, dtype=np.float32)

        class Lender:
            """An object with the interface of CUDA's libraries; its memory is the host's."""

            def __init__(self, array: np.ndarray, read_only: bool, strides: object = None) -> None:
                self.__cuda_array_interface__ = {
                    "shape": array.shape, "typestr": "<f4", "version": 3, "strides": strides,
                    "data": (array.__array_interface__["data"][0], read_only),
                }  # fmt: skip

        receive = dtl.COMM_SELF.irecv(Lender(room, False), 0)
        dtl.COMM_SELF.send(Lender(memory, True), 0)
        self.assertEqual(receive.wait().size_bytes, 24)
        np.testing.assert_array_equal(room, memory)
        with self.assertRaisesRegex(BufferError, "read-only"):
            dtl.COMM_SELF.recv(Lender(memory, True), 0)
        with self.assertRaisesRegex(BufferError, "strides"):
            dtl.COMM_SELF.send(Lender(memory, True, (8,)), 0)


class Streams(case.Case):
    def test_copies_calls_and_events(self) -> None:
        source, into = np.arange(1000.0), np.zeros(1000)
        seen: list[object] = []
        with dtl.Stream("host") as stream:
            start = stream.record()
            stream.copy(into, source)
            stream.call(lambda: seen.append(into[999]))
            end = stream.record()
            end.wait(60)
            self.assertEqual(seen, [999])
            self.assertTrue(end.query())
            self.assertGreaterEqual(end.seconds_since(start), 0)
            stream.wait()
            self.assertTrue(stream.query())
            with self.assertRaisesRegex(ValueError, "8000.*8"):
                stream.copy(into, np.zeros(1))

    def test_fill_and_native_streams(self) -> None:
        room = np.zeros(8, dtype=np.uint8)
        with dtl.Stream("host") as stream:
            stream.fill(room, 7)
            stream.wait()
            self.assertEqual(room.tolist(), [7] * 8)
        backend = dtl.Backend("opencl")
        if backend.unavailable is None:
            with dtl.Stream(backend) as stream, dtl.Stream.wrap(backend, stream.native) as same:
                self.assertEqual(same.native, stream.native)
                same.wait()

    def test_failures_of_calls(self) -> None:
        def fails() -> None:
            raise dtl.Error(dtl.Status.LIMIT, "enough")

        def breaks() -> None:
            raise KeyError("nothing")

        with dtl.Stream("host") as stream:
            stream.call(fails)
            with self.refuses(dtl.Status.LIMIT, "enough"):
                stream.wait()
            stream.call(breaks)
            with self.refuses(dtl.Status.BACKEND, r"KeyError: 'nothing' \(.*devices.py:"):
                stream.wait()

    def test_one_stream_waits_for_another(self) -> None:
        gate = threading.Event()
        order: list[str] = []
        first, second = dtl.Stream("host"), dtl.Stream("host")
        first.call(lambda: (gate.wait(), order.append("first")))
        second.wait_event(first.record())
        second.call(lambda: order.append("second"))
        self.assertFalse(second.query())
        with self.refuses(dtl.Status.TIMEOUT):
            second.wait(0.01)
        gate.set()
        second.wait()
        self.assertEqual(order, ["first", "second"])

    def test_buffers_of_queued_copies_live(self) -> None:
        gate = threading.Event()
        source, into = np.ones(1 << 16), np.zeros(1 << 16)
        alive = weakref.ref(source)
        stream = dtl.Stream("host")
        stream.call(gate.wait)
        stream.copy(into, source)
        del source
        gc.collect()
        self.assertIsNotNone(alive())
        gate.set()
        stream.wait()
        gc.collect()
        self.assertTrue((into == 1).all())
        self.assertIsNone(alive())


class Kernels(case.Case):
    def run_on(self, name: str) -> None:
        backend = dtl.Backend(name)
        if backend.unavailable:
            self.skipTest(f"{name}: {backend.unavailable}")
        kind = dtl.MemoryKind.HOST if name == "host" else dtl.MemoryKind.DEVICE
        x, y = (dtl.Array(1000, dtl.DType.FLOAT32, backend=backend, kind=kind) for _ in "xy")
        x.copy_from(np.arange(1000, dtype=np.float32))
        y.copy_from(np.ones(1000, dtype=np.float32))
        module = dtl.Module(SAXPY, backend, name="saxpy.c")
        saxpy = module.kernel("saxpy", "fppI")
        with dtl.Stream(backend) as stream:
            saxpy.launch(stream, 8, 128, 2.0, x, y, 1000)
            stream.wait()
        result = np.zeros(1000, dtype=np.float32)
        y.copy_to(result)
        np.testing.assert_array_equal(result, np.arange(1000, dtype=np.float32) * 2 + 1)
        with self.assertRaisesRegex(TypeError, "3 arguments.*has 4"):
            saxpy.launch(stream, 1, 1, 2.0, x, y)

    def test_on_the_host(self) -> None:
        self.run_on("host")

    def test_by_opencl(self) -> None:
        self.run_on("opencl")

    def test_numpy_arrays_as_arguments(self) -> None:
        x, y = np.arange(10, dtype=np.float32), np.zeros(10, dtype=np.float32)
        kernel = dtl.Module(SAXPY, "host").kernel("saxpy", "fppI")  # which keeps its module
        gc.collect()
        with dtl.Stream("host") as stream:
            kernel.launch(stream, (1, 1, 1), (10,), 3.0, x, y, 10)
        np.testing.assert_array_equal(y, x * 3)

    def test_errors_of_the_compiler(self) -> None:
        with self.refuses(dtl.Status.COMPILE_FAILED, "wrong.c", "nonsense"):
            dtl.Module(
                '#include "dtl_kernel.h"\nint f(void) { return nonsense; }\n',
                "host",
                name="wrong.c",
            )
        module = dtl.Module('#include "mine.h"\n' + SAXPY, "host", files={"mine.h": "/* mine */"})
        with self.refuses(dtl.Status.NOT_FOUND, "saxpi"):
            module.kernel("saxpi", "p")


class Policies(case.Case):
    def test_round_robin_over_objects(self) -> None:
        seen: list[str] = []
        with dtl.Policy("round_robin", ["a", "b", "c"]) as policy:
            for _ in range(6):
                policy.run(seen.append)
            self.assertEqual(sorted(seen), ["a", "a", "b", "b", "c", "c"])
            submission = policy.submit(seen.append)
            submission.wait()
            self.assertEqual(submission.resource, seen[-1])
            self.assertEqual(sum(row.submitted for row in policy.stats), 7)

    def test_tasks_that_fail(self) -> None:
        def fails(resource: object) -> None:
            raise KeyError(resource)

        policy = dtl.Policy("fixed", [10, 20], fixed_index=1)
        with self.assertRaisesRegex(KeyError, "20"):
            policy.run(fails)
        with self.assertRaisesRegex(KeyError, "20"):
            policy.submit(fails).wait()
        self.assertEqual(policy.stats[1].failed, 2)
        with self.refuses(dtl.Status.NOT_FOUND, "no such policy|lucky"):
            dtl.Policy("lucky", [1])

    def test_statuses_of_other_libraries_do_not_count(self) -> None:
        class Response(Exception):
            status = 0

        def task(resource: object) -> None:
            raise Response

        with dtl.Policy("fixed", [1]) as policy, self.assertRaises(Response):
            policy.run(task)

    def test_streams_as_resources(self) -> None:
        streams = [dtl.Stream("host"), dtl.Stream("host")]
        done: list[object] = []

        def work(stream: dtl.Stream) -> dtl.Event:
            stream.call(lambda: done.append(stream))
            return stream.record()

        with dtl.Policy("dynamic_load", streams) as policy:
            for _ in range(4):
                policy.submit(work)
            policy.wait_all()
            self.assertEqual(len(done), 4)
            self.assertTrue(all(one in streams for one in done))

    def test_auto_tune_finds_the_faster_resource(self) -> None:
        import time

        def work(seconds: float) -> None:
            time.sleep(seconds)

        with dtl.Policy("auto_tune", [0.05, 0.0], inline=True, samples=1) as policy:
            for _ in range(12):
                policy.run(work)
            slow, fast = policy.stats
            self.assertGreater(fast.submitted, slow.submitted)


if __name__ == "__main__":
    unittest.main(failfast=True)
