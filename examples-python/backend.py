"""backend: a backend of the program's own, in Python: memory, transfers, streams and events.

Its memory is the host's, counted; its streams run their work at once.

Run: python backend.py
Prints "correct" and the counters. As a plugin for programs in any language, and judged by dtl-ctk:
    python -m dtl --plugin backend:Counting libcounting.so
    dtl-ctk run --plugin ./libcounting.so
"""

import ctypes
import threading
from typing import Any

import numpy as np

import dtl

raw = dtl.raw.lib


class Counting(dtl.RegisteredBackend):
    """Host memory in which every allocation is counted."""

    name = "counting"

    def __init__(self) -> None:
        # Allocations by their addresses.
        self.blocks: dict[int, Any] = {}
        self.lock = threading.Lock()
        self.allocated = 0
        self.copied_bytes = 0

    def device_count(self) -> int:
        return 1

    def device_set(self, device: int) -> None:
        pass

    def device_get(self) -> int:
        return 0

    def memory_kind_info(self, kind: int, out_info: Any) -> None:
        if kind not in (dtl.MemoryKind.HOST, dtl.MemoryKind.DEVICE):
            raise NotImplementedError("use DTL_MEMORY_HOST or DTL_MEMORY_DEVICE")
        out_info.properties = (
            raw.DTL_MEMORY_HOST_ACCESSIBLE
            | raw.DTL_MEMORY_DEVICE_ACCESSIBLE
            | raw.DTL_MEMORY_THREAD_SAFE
        )
        out_info.alignment = 16
        out_info.name = b"counted"

    def memory_alloc(self, size_bytes: int, alignment: int, kind: int) -> int:
        if kind not in (dtl.MemoryKind.HOST, dtl.MemoryKind.DEVICE):
            raise NotImplementedError("use DTL_MEMORY_HOST or DTL_MEMORY_DEVICE")
        try:
            block = (ctypes.c_char * (size_bytes + max(alignment, 16)))()
        except (MemoryError, OverflowError, ValueError) as error:
            raise MemoryError(f"{size_bytes} bytes are more than this process gets") from error
        address = -(-ctypes.addressof(block) // max(alignment, 16)) * max(alignment, 16)
        with self.lock:
            self.blocks[address] = block
            self.allocated += 1
        return address

    def memory_free(self, ptr: int, size_bytes: int, alignment: int, kind: int) -> None:
        with self.lock:
            del self.blocks[ptr]

    def transfer_copy(
        self, dst: int, dst_kind: int, src: int, src_kind: int, size_bytes: int
    ) -> None:
        ctypes.memmove(dst, src, size_bytes)
        with self.lock:
            self.copied_bytes += size_bytes

    def transfer_fill(self, dst: int, kind: int, value: int, size_bytes: int) -> None:
        ctypes.memset(dst, value, size_bytes)

    # Work is done when it is queued: streams and events have nothing to remember.

    def exec_stream_create(self, device: int, flags: int) -> object:
        return object()

    def exec_stream_destroy(self, stream: object) -> None:
        pass

    def exec_stream_synchronize(self, stream: object) -> None:
        pass

    def exec_event_create(self, flags: int) -> object:
        return object()

    def exec_event_destroy(self, event: object) -> None:
        pass

    def exec_event_record(self, event: object, stream: object) -> None:
        pass

    def exec_event_query(self, event: object) -> int:
        return 1


def main() -> None:
    counting = Counting()
    backend = counting.register()
    source = np.arange(1000.0)
    array = dtl.Array.of(source).copy(backend, dtl.MemoryKind.DEVICE)
    result = np.zeros(1000)
    with dtl.Stream(backend) as stream:
        stream.copy(result, array)
        stream.wait()
    array.destroy()
    good = np.array_equal(result, source) and not counting.blocks
    print("correct" if good else "WRONG")
    print(f"{counting.allocated} allocations, {counting.copied_bytes} bytes copied")
    counting.unregister()


if __name__ == "__main__":
    main()
