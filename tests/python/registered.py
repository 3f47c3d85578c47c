"""Backends in Python: arguments, results and exceptions of slots; registration and its end."""

import gc
import unittest
import weakref

import backend
import case
import dtl

raw, ffi = dtl.raw.lib, dtl.raw.ffi


class Traced(backend.Counting):
    """Counting, with every kind of argument and failure."""

    name = "traced"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[object] = []

    def supports(self, feature: str) -> int:
        self.seen.append(feature)
        return int(feature == "wings")

    def is_available(self, why: object, cap: int) -> int:
        ffi.buffer(why, cap)[:6] = b"rests\0"
        return 0 if "rest" in self.seen else 1

    def device_memory_info(self, device: int) -> tuple[int, int]:
        return 10, 20

    def memory_alloc(self, size_bytes: int, alignment: int, kind: int) -> int:
        if size_bytes == 1:
            raise MemoryError("one is too few")
        if size_bytes == 2:
            raise dtl.Error(dtl.Status.LIMIT, "two are enough")
        if size_bytes == 3:
            raise KeyError("three")
        if size_bytes == 4:
            return "four"  # type: ignore[return-value]
        return super().memory_alloc(size_bytes, alignment, kind)

    def exec_stream_synchronize(self, stream: object) -> None:
        self.seen.append(stream)

    def exec_stream_create(self, device: int, flags: int) -> object:
        self.seen.append({"stream"})
        return self.seen[-1]

    def destroy(self) -> None:
        self.seen.append("destroyed")


class Registered(case.Case):
    def test_slots(self) -> None:
        traced = Traced()
        made = traced.register()
        self.assertEqual((made, made.name), (dtl.Backend("traced"), "traced"))
        self.assertTrue(made.supports("wings"))
        self.assertFalse(made.supports("fins"))
        self.assertIsNone(made.unavailable)
        traced.seen.append("rest")
        self.assertEqual(made.unavailable, "rests")
        traced.seen.remove("rest")
        free, total = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        self.assertEqual(raw.dtl_device_memory_info(made._handle, 0, free, total), 0)
        self.assertEqual((free[0], total[0]), (10, 20))
        with dtl.Stream(made) as stream:
            created = traced.seen[-1]
            stream.wait()
            self.assertIs(traced.seen[-1], created, "a slot gets the object itself")
        with self.refuses(dtl.Status.ALREADY_EXISTS):
            Traced().register()
        traced.unregister()
        self.assertEqual(traced.seen[-1], "destroyed")
        with self.refuses(dtl.Status.NOT_FOUND):
            dtl.Backend("traced")

    def test_failures(self) -> None:
        traced = Traced()
        made = traced.register()

        def bytes_of(count: int) -> dtl.Array:
            return dtl.Array(count, dtl.DType.INT8, backend=made, kind=dtl.MemoryKind.DEVICE)

        with self.refuses(dtl.Status.OUT_OF_MEMORY, "one is too few"):
            bytes_of(1)
        with self.refuses(dtl.Status.LIMIT, "two are enough"):
            bytes_of(2)
        with self.refuses(dtl.Status.BACKEND, "KeyError in memory_alloc: 'three'"):
            bytes_of(3)
        with self.refuses(dtl.Status.BACKEND, "TypeError in memory_alloc"):
            bytes_of(4)
        with self.refuses(dtl.Status.NOT_SUPPORTED, "DTL_MEMORY_HOST"):
            dtl.Array(5, backend=made, kind=dtl.MemoryKind.PINNED)
        bytes_of(100).destroy()
        self.assertEqual((traced.blocks, traced.allocated), ({}, 1))
        traced.unregister()

    def test_a_misspelt_slot_is_found(self) -> None:
        class Wrong(backend.Counting):
            def memory_alocate(self) -> None:
                pass

        with self.assertRaisesRegex(TypeError, "memory_alocate.*no such slot.*alloc"):
            Wrong().register()

    def test_a_registered_backend_lives(self) -> None:
        traced = Traced()
        alive = weakref.ref(traced)
        made = traced.register()
        del traced
        gc.collect()
        self.assertTrue(
            made.supports("wings"), "its slots are called without a name in the program"
        )
        dtl.raw.lib.dtl_backend_unregister(made._handle)
        other = Traced()
        other.register()  # forgets those that have ended
        gc.collect()
        self.assertIsNone(alive())
        other.unregister()


if __name__ == "__main__":
    unittest.main(failfast=True)
