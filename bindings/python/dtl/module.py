"""Kernels from source: modules that are compiled at run time, and launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import buffers, text
from ._raw import ffi, lib
from .backend import Backend, Device, backend_of
from .constants import Language
from .error import check
from .handle import Owned
from .lifecycle import new_info
from .stream import Stream

# C types of the letters of a signature; see dtl_kernel_get.
_TYPES = {
    "b": "int8_t", "B": "uint8_t", "h": "int16_t", "H": "uint16_t",
    "i": "int32_t", "I": "uint32_t", "l": "int64_t", "L": "uint64_t",
    "f": "float", "d": "double",
}  # fmt: skip


class Module(Owned):
    """Compiled source. Destroyed with its last reference and that of its kernels."""

    _noun = "module"

    def __init__(
        self,
        source: str | bytes,
        backend: Backend | Device | str | None = None,
        *,
        language: Language | int = 0,
        options: Sequence[str] = (),
        name: str | None = None,
        files: Mapping[str, str] | None = None,
    ) -> None:
        """Compiles source for a device.

        Without `language` the source is in the language that the backend compiles, with the macros
        of dtl_kernel.h. Raises Error with COMPILE_FAILED and the compiler's first error.
        """
        device = backend if isinstance(backend, Device) else backend_of(backend).current_device
        data = source.encode() if isinstance(source, str) else source
        desc = new_info("dtl_source")
        content = ffi.from_buffer(data)
        desc.text, desc.size_bytes, desc.language = content, len(data), int(language)
        words = [text.encode(option) for option in options]
        options_array = ffi.new("char *[]", words or [ffi.NULL])
        desc.options, desc.option_count = options_array, len(words)
        label = text.encode(name)
        desc.name = label
        extra = [
            (text.encode(one), ffi.from_buffer(body.encode()))
            for one, body in (files or {}).items()
        ]
        table = ffi.new("dtl_source_file_t[]", max(len(extra), 1))
        for entry, (file_name, body) in zip(table, extra, strict=False):
            entry.name, entry.text, entry.size_bytes = file_name, body, len(body)
        desc.files, desc.file_count = (table if extra else ffi.NULL), len(extra)
        out = ffi.new("dtl_module_t *")
        check(lib.dtl_module_compile(device.backend._handle, device.index, desc, out))
        self._handle = out[0]
        self.device = device

    @property
    def log(self) -> str:
        """The compiler's messages."""
        return text.read(lambda *arguments: lib.dtl_module_log(self._handle, *arguments))

    def kernel(self, name: str, signature: str) -> Kernel:
        """Returns a kernel. The signature has a letter for each argument, such as "fppI".

        p pointer, b B 8 bits, h H 16 bits, i I 32 bits, l L 64 bits (upper case: unsigned),
        f d floats of 32 and 64 bits.
        """
        out = ffi.new("dtl_kernel_t *")
        texts = text.encode(name), text.encode(signature)
        check(lib.dtl_kernel_get(self._handle, *texts, out))
        return Kernel(out[0], self, name, signature)


class Kernel(Owned):
    """A function that runs over a grid of blocks."""

    _noun = "kernel"

    def __init__(self, handle: Any, module: Module, name: str, signature: str) -> None:
        self._handle: Any = handle
        self._module = module
        self.name = name
        self.signature = signature

    def launch(
        self,
        stream: Stream,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: Any,
        shared_bytes: int = 0,
    ) -> None:
        """Queues a launch on a stream.

        A pointer argument is an Array, another buffer (which the device can access), or None. The
        stream keeps the buffers until its work is complete.
        """
        if len(arguments) != len(self.signature):
            count, wanted = len(arguments), len(self.signature)
            raise TypeError(
                f"{self.name}: {count} arguments, the signature {self.signature!r} has {wanted}"
            )
        values, used = [], []
        for letter, argument in zip(self.signature, arguments, strict=True):
            if letter == "p":
                span = None if argument is None else buffers.span(argument, False)
                values.append(ffi.new("void **", ffi.NULL if span is None else span.pointer))
                used.append(span)
            elif letter in _TYPES:
                values.append(ffi.new(f"{_TYPES[letter]} *", argument))
            else:
                raise ValueError(f"letter {letter!r} of the signature has no Python type")
        launch = new_info("dtl_launch")
        for target, given in ((launch.grid, grid), (launch.block, block)):
            for axis, extent in enumerate([given] if isinstance(given, int) else given):
                target[axis] = extent
        launch.shared_bytes = shared_bytes
        pointers = ffi.new("void *[]", values or [ffi.NULL])
        sizes = ffi.new("uint64_t[]", [ffi.sizeof(ffi.typeof(one).item) for one in values] or [0])
        stream._keep(self, *used)
        check(lib.dtl_kernel_launch(
            stream._handle, self._handle, launch, pointers, sizes, len(values)
        ))  # fmt: skip
