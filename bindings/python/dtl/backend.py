"""Backends and their devices."""

from __future__ import annotations

from typing import Any

from . import text
from ._raw import ffi, lib
from .constants import DeviceKind
from .error import check
from .lifecycle import new_info, timeout_ns


class Backend:
    """A backend: "host", "cuda", "opencl", or a registered one. None is the default backend."""

    def __init__(self, name: str | None = None) -> None:
        out = ffi.new("dtl_backend_t *")
        check(lib.dtl_backend_get(text.encode(name), out))
        self._handle: Any = out[0]

    @classmethod
    def _of(cls, handle: Any) -> Backend:
        self = cls.__new__(cls)
        # A copy: the handle may be a part of a struct that is freed.
        self._handle = ffi.new("dtl_backend_t *", handle)[0]
        return self

    @classmethod
    def load(cls, path: str) -> Backend:
        """Loads a plugin file, and returns its first backend."""
        out = ffi.new("dtl_backend_t *")
        check(lib.dtl_backend_load(text.encode(path), out))
        return cls._of(out[0])

    @property
    def name(self) -> str:
        """Name of the backend."""
        return text.decode(lib.dtl_backend_name(self._handle))

    @property
    def unavailable(self) -> str | None:
        """Reason why the backend cannot run on this machine; None if it can."""
        yes, length = ffi.new("int32_t *"), ffi.new("uint64_t *")
        why = ffi.new("char[]", 1024)
        check(lib.dtl_backend_is_available(self._handle, yes, why, 1024, length))
        return None if yes[0] else text.decode(why)

    def supports(self, feature: str) -> bool:
        """Returns true if the backend has a feature, such as "modules" (kernels from source)."""
        yes = ffi.new("int32_t *")
        check(lib.dtl_backend_supports(self._handle, text.encode(feature), yes))
        return bool(yes[0])

    @property
    def device_count(self) -> int:
        """Number of devices."""
        count = ffi.new("int32_t *")
        check(lib.dtl_backend_device_count(self._handle, count))
        return int(count[0])

    @property
    def devices(self) -> list[Device]:
        """All devices of the backend."""
        return [Device(self, index) for index in range(self.device_count)]

    @property
    def current_device(self) -> Device:
        """Current device of the calling thread."""
        index = ffi.new("int32_t *")
        check(lib.dtl_backend_get_device(self._handle, index))
        return Device(self, index[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backend) and self._handle.id == other._handle.id

    def __hash__(self) -> int:
        return hash(self._handle.id)

    def __repr__(self) -> str:
        return f"dtl.Backend({self.name!r})"


class Device:
    """A device of a backend."""

    def __init__(self, backend: Backend, index: int) -> None:
        self.backend = backend
        self.index = index

    def _info(self) -> Any:
        info = new_info("dtl_device_info")
        check(lib.dtl_device_info(self.backend._handle, self.index, info))
        return info

    @property
    def name(self) -> str:
        """Name of the device."""
        return text.decode(self._info().name)

    @property
    def kind(self) -> int:
        """A member of DeviceKind, or the number of a registered kind."""
        kind = self._info().kind
        return DeviceKind(kind) if kind in set(DeviceKind) else int(kind)

    @property
    def total_bytes(self) -> int:
        """Total memory in bytes; 0 if it is unknown."""
        return int(self._info().total_bytes)

    @property
    def compute_units(self) -> int:
        """Number of CPU cores, or of GPU multiprocessors."""
        return int(self._info().compute_units)

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and number of the device."""
        kind, number = ffi.new("int32_t *"), ffi.new("int32_t *")
        check(lib.dtl_backend_dlpack_device(self.backend._handle, self.index, kind, number))
        return int(kind[0]), int(number[0])

    @property
    def free_bytes(self) -> int:
        """Free memory in bytes; 0 if it is unknown."""
        free, total = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        check(lib.dtl_device_memory_info(self.backend._handle, self.index, free, total))
        return int(free[0])

    def use(self) -> None:
        """Makes this the current device of the calling thread."""
        check(lib.dtl_backend_set_device(self.backend._handle, self.index))

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until all work of the device is complete."""
        check(lib.dtl_device_wait(self.backend._handle, self.index, timeout_ns(timeout)))

    def __repr__(self) -> str:
        return f"dtl.Device({self.backend!r}, {self.index})"


def backends() -> list[Backend]:
    """Returns all backends, available or not."""
    count = ffi.new("uint64_t *")
    check(lib.dtl_backend_count(count))
    found = []
    for index in range(count[0]):
        out = ffi.new("dtl_backend_t *")
        check(lib.dtl_backend_at(index, out))
        found.append(Backend._of(out[0]))
    return found


def backend_of(given: Backend | str | None) -> Backend:
    """Returns a backend that is given as such, by name, or as None (the default)."""
    return given if isinstance(given, Backend) else Backend(given)
