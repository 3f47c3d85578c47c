"""Executors, memory pools, enumerations and environments: one rank."""

import gc
import threading

import numpy as np

import case
import dtl
from dtl import pool as pools


class Executors(case.Case):
    def test_kinds(self) -> None:
        for kind in dtl.ExecutorKind:
            if kind in (dtl.ExecutorKind.DEFAULT, dtl.ExecutorKind.BACKEND):
                continue
            with dtl.Executor(kind, threads=2) as executor:
                self.assertEqual(executor.kind, kind)
                self.assertEqual(executor.max_parallelism, 2 if kind == 3 else 1)
                self.assertGreaterEqual(executor.suggested_parallelism, 1)
                self.assertEqual(executor.run(lambda: 6 * 7), 42)
                with self.assertRaisesRegex(KeyError, "no such"):
                    executor.run(lambda: {}["no such"])
        self.assertNotEqual(dtl.Executor().kind, dtl.ExecutorKind.DEFAULT)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "kind"):
            dtl.Executor(77)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "threads"):
            dtl.Executor(dtl.ExecutorKind.POOL, threads=5000)
        with self.refuses(dtl.Status.INVALID_HANDLE):
            executor.run(print)

    def test_functions_that_run_later(self) -> None:
        executor, gate, event = dtl.Executor(), threading.Event(), dtl.Event("host")
        self.addCleanup(gate.set)
        done: list[int] = []
        executor.run_async(gate.wait)
        executor.run_async(lambda: done.append(1), event)
        event.wait(10)
        self.assertEqual(done, [1])
        with self.refuses(dtl.Status.TIMEOUT):
            executor.wait(0.01)
        gate.set()
        executor.wait(10)
        executor.run_async(lambda: 1 // 0)
        with self.refuses(dtl.Status.BACKEND, "ZeroDivisionError"):
            executor.wait()
        executor.wait()

    def test_loops(self) -> None:
        executor = dtl.Executor(dtl.ExecutorKind.POOL, threads=3)
        numbers = np.zeros(1000)

        def square(first: int, after_last: int) -> None:
            numbers[first:after_last] = np.arange(first, after_last) ** 2

        executor.parallel_for(0, 1000, square, grain=17)
        np.testing.assert_array_equal(numbers, np.arange(1000.0) ** 2)
        executor.parallel_for(5, 5, square)
        seen: list[str] = []
        executor.for_each(seen.append, ["a", "b", "c"])
        self.assertEqual(sorted(seen), ["a", "b", "c"])
        nested: list[int] = []
        executor.for_each(lambda one: executor.for_each(nested.append, [one, one]), [1, 2])
        self.assertEqual(sorted(nested), [1, 1, 2, 2])

    def test_reductions(self) -> None:
        def add(first: int, after_last: int, partial: np.ndarray) -> None:
            partial += [after_last - first, np.arange(first, after_last).sum()]

        def combine(into: np.ndarray, partial: np.ndarray) -> None:
            into += partial

        for threads in (1, 3):
            executor = dtl.Executor(dtl.ExecutorKind.POOL, threads=threads)
            total = executor.parallel_reduce(0, 1000, add, combine, np.zeros(2), grain=7)
            self.assertEqual(total.tolist(), [1000, 499500])
            empty = executor.parallel_reduce(3, 3, add, combine, np.ones(2))
            self.assertEqual(empty.tolist(), [1, 1])

    def test_loops_that_fail(self) -> None:
        executor = dtl.Executor(dtl.ExecutorKind.POOL, threads=2)

        def fail(first: int, *_: object) -> None:
            if first > 3:
                raise LookupError(f"chunk {first}")

        with self.assertRaisesRegex(LookupError, "chunk"):
            executor.parallel_for(0, 100, fail, grain=1)
        with self.assertRaisesRegex(LookupError, "chunk"):
            executor.parallel_reduce(0, 100, fail, fail, np.zeros(1), grain=1)

        def combine(into: object, partial: object) -> None:
            raise LookupError("combine")

        def fold(*_: object) -> None:
            pass

        with self.assertRaisesRegex(LookupError, "combine"):
            executor.parallel_reduce(0, 100, fold, combine, np.zeros(1), grain=1)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            executor.parallel_for(0, 1, interrupt)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "begin"):
            executor.parallel_for(2, 1, fail)
        with self.assertRaises(OverflowError):
            executor.parallel_for(-1, 1, fail)
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "acc_size_bytes"):
            executor.parallel_reduce(0, 1, fold, fold, np.zeros(0))
        with self.assertRaisesRegex(TypeError, "Python objects"):
            executor.parallel_reduce(0, 1, fold, fold, np.array([None]))


class Pools(case.Case):
    def test_memory_of_a_pool(self) -> None:
        pool = dtl.Pool("host", keep_bytes=pools.NO_LIMIT)
        room = pool.memory((2, 3), dtl.DType.FLOAT32, alignment=256)
        self.assertEqual((room.shape, room.dtype, room.address % 256), ((2, 3), 8, 0))
        self.assertEqual(pool.stats.live_count, 1)
        self.assertGreaterEqual(pool.stats.live_bytes, 24)
        seen = room.numpy()
        seen[:] = 5
        receive = self.comm.irecv(room, self.rank, 3)
        room.destroy()
        self.assertEqual(pool.stats.live_count, 1, "NumPy and the receive use it")
        with self.refuses(dtl.Status.BUSY):
            pool.destroy()
        self.comm.send(np.full((2, 3), 7, dtype="f4"), self.rank, 3)
        receive.wait()
        self.assertEqual(seen.tolist(), [[7, 7, 7], [7, 7, 7]])
        del seen
        gc.collect()
        self.assertEqual(pool.stats.live_count, 0)
        pool.trim()
        pool.destroy()
        with self.refuses(dtl.Status.INVALID_HANDLE):
            pool.memory(1)

    def test_memory_keeps_its_pool(self) -> None:
        room = dtl.Pool("host", dtl.MemoryKind.SHARED).memory(10, dtl.DType.BYTE)
        gc.collect()
        room.numpy()[:] = 3
        copy = bytearray(10)
        room.copy_to(copy)
        self.assertEqual((sum(copy), room.kind), (30, dtl.MemoryKind.SHARED))
        room.destroy()
        with self.assertRaisesRegex(BufferError, "destroyed"):
            room.numpy()
        with self.assertRaisesRegex(BufferError, "destroyed"):
            room.copy_to(copy)

    def test_device_memory(self) -> None:
        if "opencl" not in [one.name for one in dtl.backends() if one.unavailable is None]:
            self.skipTest("no OpenCL")
        with dtl.Pool("opencl", dtl.MemoryKind.DEVICE) as pool:
            with pool.memory(10) as room:
                room.copy_from(np.arange(10.0))
                back = np.zeros(10)
                room.copy_to(back)
                self.assertEqual(back.sum(), 45)
                info = dtl.raw.ffi.new("dtl_mem_kind_info_t *")
                info[0] = dtl.raw.lib.dtl_mem_kind_info_initial()
                kind = int(room.kind)
                dtl.raw.lib.dtl_mem_kind_info(room.device.backend._handle, kind, info)
                if info.properties & dtl.raw.lib.DTL_MEMORY_HOST_ACCESSIBLE:
                    self.assertEqual(room.numpy().sum(), 45)
                else:
                    with self.assertRaisesRegex(BufferError, "host cannot access"):
                        room.numpy()
            gc.collect()
            self.assertEqual(pool.stats.live_count, 0)

    def test_what_a_pool_refuses(self) -> None:
        with self.refuses(dtl.Status.NOT_SUPPORTED):
            dtl.Pool("null", dtl.MemoryKind.MANAGED)
        with dtl.Pool("host") as pool:
            with self.refuses(dtl.Status.INVALID_ARGUMENT, "alignment"):
                pool.memory(4, alignment=3)
            with self.refuses(dtl.Status.INVALID_ARGUMENT, "size"):
                pool.memory(0)
            with self.assertRaisesRegex(ValueError, "shape.*0 or more"):
                pool.memory((2, -1))
            with self.assertRaisesRegex(BufferError, "NumPy has no type"):
                pool.memory(1, dtl.DType.FLOAT64_INT32).numpy()
            with self.refuses(dtl.Status.OUT_OF_MEMORY):
                pool.memory(1 << 60, dtl.DType.BYTE)
            self.assertEqual(pool.stats.live_count, 0)


class Enumerations(case.Case):
    def test_members(self) -> None:
        memory = dtl.Enumeration("Memory")
        self.assertEqual(memory["Host"], dtl.MemoryKind.HOST)
        self.assertIn("Pinned", [word.name for word in memory])
        self.assertIn(dtl.MemoryKind.PINNED, memory)
        self.assertNotIn(1, memory)
        self.assertEqual(memory.undefined, dtl.MemoryKind.UNDEFINED)
        count = len(memory)
        mine = memory.register("PyTest_Mine", 4001)
        other = memory.register("PyTest_Other")
        self.assertEqual(len(memory), count + 2)
        self.assertEqual((memory.from_value(4001), mine.name), (mine, "PyTest_Mine"))
        self.assertEqual(memory.from_json(other.to_json()), other)
        with self.refuses(dtl.Status.NOT_FOUND):
            memory["NoSuch"]
        with self.refuses(dtl.Status.NOT_FOUND):
            memory.from_value(4002)
        with self.refuses(dtl.Status.ALREADY_EXISTS):
            memory.register("PyTest_Mine")
        with self.refuses(dtl.Status.ALREADY_EXISTS, "PyTest_Mine"):
            memory.register("PyTest_Third", 4001)
        with self.refuses(dtl.Status.INVALID_ARGUMENT):
            memory.register("PyTest_Third", 5)
        with self.refuses(dtl.Status.NOT_FOUND, "Memory"):
            dtl.Enumeration("NoSuch")

    def test_enumerations_of_the_program(self) -> None:
        mine = dtl.Enumeration.create("PyTest", undefined=True)
        with self.refuses(dtl.Status.ALREADY_EXISTS):
            dtl.Enumeration.create("PyTest")
        kept = mine.from_json('"Later"', tolerant=True)
        self.assertEqual((kept.template, kept.attribute("text")), (mine.undefined, "Later"))
        self.assertEqual((kept.name, kept.to_json()), ("Undefined", '"Later"'))
        with self.refuses(dtl.Status.NOT_FOUND):
            mine.from_json('"Later"')
        with self.refuses(dtl.Status.NOT_FOUND):
            kept.attribute("no such")
        with self.refuses(dtl.Status.INVALID_ARGUMENT):
            print(dtl.Word(3).name)

    def test_attributes_of_instances(self) -> None:
        ffi, lib = dtl.raw.ffi, dtl.raw.lib
        texts = [ffi.new("char[]", name) for name in (b"a", b"b", b"c", b"d", b"e")]
        kinds = [lib.DTL_ATTR_I64, lib.DTL_ATTR_U64, lib.DTL_ATTR_F64, lib.DTL_ATTR_BOOL,
                 lib.DTL_ATTR_ENUM]  # fmt: skip
        fields = ffi.new("dtl_attr_t[]", 5)
        for field, name, kind in zip(fields, texts, kinds, strict=True):
            field.name, field.kind, field.flags = name, kind, lib.DTL_ATTR_REQUIRED
        out = ffi.new("dtl_enum_word_t *")
        schedule = dtl.Enumeration("Schedule")
        label = ffi.new("char[]", b"PyTest_Kernel")
        status = lib.dtl_enum_register_template(schedule._number, label, fields, 5, out)
        self.assertEqual(status, 0, dtl.last_error())
        word = schedule.from_json(
            '{"type":"Schedule.PyTest_Kernel","a":-3,"b":5,"c":0.5,"d":true,"e":"Memory.Host"}'
        )
        values = [word.attribute(name) for name in "abcde"]
        self.assertEqual(values, [-3, 5, 0.5, True, dtl.MemoryKind.HOST])
        self.assertEqual((word.template, word.template.name), (out[0], "PyTest_Kernel"))
        self.assertIn("PyTest_Kernel", repr(word))


class Environments(case.Case):
    def test_start_and_end(self) -> None:
        calls: list[str] = []

        def add(name: str, depends: tuple[str, ...] = ()) -> dtl.Environment:
            return dtl.Environment.register(
                name,
                version="3.10",
                depends=depends,
                packages=["Some 1.0"],
                headers=["/usr/include"],
                init=lambda: calls.append(f"start {name}") or name.upper(),
                finalize=lambda state: calls.append(f"stop {state}"),
            )

        solver, blas = add("py-solver", ("py-blas>=3.9",)), add("py-blas")
        self.assertIsNone(solver.unavailable)
        with self.refuses(dtl.Status.INVALID_STATE):
            print(solver.state)
        with solver:
            self.assertEqual((solver.state, blas.state), ("PY-SOLVER", "PY-BLAS"))
            with dtl.Environment("py-solver>=3"):
                self.assertEqual(solver.info.uses, 2)
            self.assertEqual(solver.info.state, dtl.EnvironmentState.STARTED)
            with self.refuses(dtl.Status.BUSY):
                solver.unregister()
        wanted = ["start py-blas", "start py-solver", "stop PY-SOLVER", "stop PY-BLAS"]
        self.assertEqual(calls, wanted)
        info = solver.info
        self.assertIn(info, dtl.environments())
        self.assertEqual((info.name, info.version, info.uses), ("py-solver", "3.10", 0))
        self.assertEqual((info.depends, info.packages), (("py-blas>=3.9",), ("Some 1.0",)))
        self.assertEqual((info.headers, info.libraries), (("/usr/include",), ()))
        with self.refuses(dtl.Status.INVALID_STATE):
            solver.release()
        with self.refuses(dtl.Status.UNAVAILABLE, "3.10"):
            dtl.Environment("py-blas>=4").require()
        solver.unregister()
        blas.unregister()
        with self.refuses(dtl.Status.NOT_FOUND):
            blas.require()

    def test_failures(self) -> None:
        def fail() -> None:
            raise OSError("no engine here")

        absent = dtl.Environment.register("py-absent", probe=fail)
        self.assertIn("no engine here", absent.unavailable or "")
        with self.refuses(dtl.Status.UNAVAILABLE, "no engine here"):
            absent.require()
        broken = dtl.Environment.register("py-broken", init=fail)
        with self.refuses(dtl.Status.BACKEND, "OSError: no engine here"), broken:
            self.fail("it is not started")
        self.assertEqual(broken.info.state, dtl.EnvironmentState.FAILED)
        self.assertIn("no engine here", broken.info.reason)
        late = dtl.Environment.register("py-late", finalize=lambda _: fail())
        late.require()
        with self.refuses(dtl.Status.BACKEND, "no engine here"):
            late.release()
        with self.refuses(dtl.Status.ALREADY_EXISTS):
            dtl.Environment.register("py-late", version="1")
        with self.refuses(dtl.Status.INVALID_ARGUMENT, "name"):
            dtl.Environment.register("not a name")


if __name__ == "__main__":
    case.main()
