"""Texts of the library as str."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._raw import ffi, lib
from .error import check


def encode(text: str | None) -> Any:
    """Returns a C string, or NULL for None. Keep it until the call is over."""
    return ffi.NULL if text is None else ffi.new("char[]", text.encode())


def decode(pointer: Any) -> str:
    """Returns the str at a pointer; empty for NULL."""
    return "" if pointer == ffi.NULL else str(ffi.string(pointer).decode(errors="replace"))


def read(function: Callable[[Any, int, Any], int]) -> str:
    """Returns a text of variable size: function(buf, cap, out_len) -> status."""
    length = ffi.new("uint64_t *")
    size = 1024
    while True:
        buffer = ffi.new("char[]", size)
        status = function(buffer, size, length)
        if status == lib.DTL_ERROR_BUFFER_TOO_SMALL:
            size = length[0] + 1
            continue
        check(status)
        return decode(buffer)
