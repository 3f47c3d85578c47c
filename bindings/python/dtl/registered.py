"""Backends written in Python: each method of a class is a slot of a table in dtl_backend.h.

    class Mine(dtl.RegisteredBackend):
        name = "mine"

        def device_count(self) -> int:
            return 1

    Mine().register()

A method is named after its table and slot: `memory_alloc` is `alloc` of dtl_memory_vtable_t, and
`supports` is a slot of dtl_backend_vtable_t itself. It gets the slot's arguments after `self`:

- addresses as int, texts as str, structures and functions as cffi's pointers;
- no output that is a number or an address: it returns these, several as a tuple;
- streams, events, communicators, modules and so on as the objects that a method returned for them.

It may raise dtl.Error, whose status and text become those of the slot. NotImplementedError becomes
DTL_ERROR_NOT_SUPPORTED, MemoryError DTL_ERROR_OUT_OF_MEMORY, any other exception DTL_ERROR_BACKEND.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

from . import text
from ._raw import ffi, lib
from ._slots import PARAMETERS
from .backend import Backend
from .error import Error, check

_COMPONENTS = ("device", "memory", "transfer", "exec", "comm")
# Parameters that stand for an object of the backend, and the slots that end one.
_OBJECTS = {
    "stream", "event", "start", "stop", "comm", "win", "module", "kernel", "reg",
}  # fmt: skip
_ENDS = {
    "comm_close": "comm", "comm_win_destroy": "win", "comm_mem_deregister": "reg",
    "exec_stream_destroy": "stream", "exec_event_destroy": "event",
    "exec_module_destroy": "module", "exec_kernel_destroy": "kernel",
}  # fmt: skip

# Backends that are registered: their slots may be called until `destroy`.
_registered: set[RegisteredBackend] = set()
# Those that have ended. The C function of `destroy` is still running when it adds its backend.
_ended: list[RegisteredBackend] = []


class RegisteredBackend:
    """A backend whose slots are methods in Python."""

    name: ClassVar[str]
    # Priority for "auto": never chosen.
    auto_priority: ClassVar[int] = -(2**31)
    flags: ClassVar[int] = 0
    # Fields of the table of communication.
    comm_match_bits: ClassVar[int] = 0
    comm_flags: ClassVar[int] = 0

    def register(self, replace: bool = False) -> Backend:
        """Registers the backend; the result is what Backend(name) returns from then on."""
        flags = lib.DTL_REGISTER_REPLACE if replace else 0
        return self._register(lib.dtl_backend_register, lib.dtl_backend_set_error, flags)

    def _register(self, function: Any, set_error: Any, flags: int) -> Backend:
        self._set_error = set_error
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(16, 16)
        # C functions of the slots, and the tables that name them.
        self._kept: list[Any] = []
        table = ffi.new("dtl_backend_vtable_t *", lib.dtl_backend_vtable_initial())
        table.auto_priority, table.flags = self.auto_priority, self.flags
        self._fill(table, "dtl_backend_vtable_t", "")
        for component in _COMPONENTS:
            initial = getattr(lib, f"dtl_{component}_vtable_initial")()
            part = ffi.new(f"dtl_{component}_vtable_t *", initial)
            self._kept.append(part)
            if self._fill(part, f"dtl_{component}_vtable_t", f"{component}_"):
                setattr(table, component, part)
                if component == "comm":
                    part.match_bits, part.flags = self.comm_match_bits, self.comm_flags
        table.destroy = self._keep("void(*)(void *)", lambda _: self._end())
        out = ffi.new("dtl_backend_t *")
        check(function(text.encode(self.name), table, ffi.NULL, flags, out))
        _ended.clear()
        _registered.add(self)
        self._handle = out[0]
        return Backend._of(out[0])

    def unregister(self) -> None:
        """Unregisters the backend."""
        check(lib.dtl_backend_unregister(self._handle))

    def _end(self) -> None:
        end = getattr(self, "destroy", None)
        try:
            if end is not None:
                end()
        finally:
            _ended.append(self)
            _registered.discard(self)

    def _fill(self, table: Any, kind: str, prefix: str) -> bool:
        """Sets the slots that the class has methods for; returns true if there is one."""
        slots = PARAMETERS[kind]
        has_one = False
        for slot, names in slots.items():
            method = getattr(self, prefix + slot, None)
            if method is None or (prefix == "" and slot == "destroy"):
                continue
            has_one = True
            ctype = next(field.type for name, field in ffi.typeof(kind).fields if name == slot)
            function = self._slot(prefix + slot, method, ctype, names.split())
            setattr(table, slot, self._keep(ctype, function))
        for name in dir(self):
            is_unknown = prefix and name.startswith(prefix) and name[len(prefix) :] not in slots
            if is_unknown and callable(getattr(self, name)):
                raise TypeError(
                    f"{type(self).__name__}.{name}: {kind} has no such slot: {', '.join(slots)}"
                )
        return has_one

    def _keep(self, ctype: Any, function: Callable[..., Any]) -> Any:
        kind = ffi.typeof(ctype) if isinstance(ctype, str) else ctype
        result = None if kind.result.kind == "void" else lib.DTL_ERROR_INTERNAL
        callback = ffi.callback(kind, function, error=result)
        self._kept.append(callback)
        return callback

    def _slot(
        self, full_name: str, method: Callable[..., Any], ctype: Any, names: list[str]
    ) -> Callable[..., int]:
        """Returns the function of a slot: converts arguments, outputs and exceptions."""
        readers: list[Callable[[Any], Any]] = []
        outputs: list[tuple[int, str]] = []
        for index, (name, given) in enumerate(zip(names, ctype.args, strict=True)):
            is_output = name.startswith("out_") and given.kind == "pointer"
            if is_output and given.item.kind in ("primitive", "pointer"):
                outputs.append((index, name.removeprefix("out_")))
            readers.append(self._reader(name, given))
        returned = {index for index, _ in outputs}
        passed = [index for index in range(1, len(names)) if index not in returned]
        ended = _ENDS.get(full_name)
        ended_index = names.index(ended) if ended else -1

        def call(*given: Any) -> int:
            try:
                result = method(*[readers[index](given[index]) for index in passed])
                values = result if len(outputs) > 1 else (result,)
                for (index, name), value in zip(outputs, values, strict=bool(outputs)):
                    self._write(given[index], name, value)
            except Exception as error:  # none may leave a slot
                return self._failure(full_name, error)
            if ended:
                self._objects.pop(int(ffi.cast("uintptr_t", given[ended_index])), None)
            return 0

        return call

    def _reader(self, name: str, ctype: Any) -> Callable[[Any], Any]:
        """Returns the conversion of an argument for a method."""
        if ctype.kind != "pointer" or name in ("user", "log_user"):
            return lambda value: value
        if ctype.item.cname == "void":
            if name in _OBJECTS:
                return self._object
            return lambda value: int(ffi.cast("uintptr_t", value))
        if ctype.cname == "char *" and name != "why":
            return lambda value: None if value == ffi.NULL else text.decode(value)
        return lambda value: value

    def _object(self, pointer: Any) -> Any:
        return self._objects.get(int(ffi.cast("uintptr_t", pointer)))

    def _write(self, target: Any, name: str, value: Any) -> None:
        if name in _OBJECTS:
            number = next(self._numbers)
            self._objects[number] = value
            target[0] = ffi.cast("void *", number)
        elif ffi.typeof(target).item.kind == "pointer":
            target[0] = ffi.cast("void *", value)
        else:
            target[0] = int(value)

    def _failure(self, slot: str, error: Exception) -> int:
        if isinstance(error, Error):
            status, why = int(error.status), error.text
        elif isinstance(error, NotImplementedError):
            status, why = lib.DTL_ERROR_NOT_SUPPORTED, str(error) or f"{slot}: not supported"
        elif isinstance(error, MemoryError):
            status, why = lib.DTL_ERROR_OUT_OF_MEMORY, str(error) or f"{slot}: out of memory"
        else:
            status, why = lib.DTL_ERROR_BACKEND, f"{type(error).__name__} in {slot}: {error}"
        self._set_error(text.encode(why))
        return int(status)


def load_plugin(host_address: int, specification: str) -> int:
    """Registers the backend "module:Class" in the `load` of a plugin (see plugin.c)."""
    host = ffi.cast("dtl_host_api_t *", host_address)
    try:
        module, _, name = specification.partition(":")
        backend: RegisteredBackend = getattr(importlib.import_module(module), name)()
        backend._register(host.backend_register, host.set_error, 0)
    except Error as error:
        # The text is that of the host's library, which has it already.
        return int(error.status)
    except Exception as error:  # none may leave a plugin
        host.set_error(text.encode(f"{specification}: {type(error).__name__}: {error}"))
        return int(lib.DTL_ERROR_UNAVAILABLE)
    return 0
