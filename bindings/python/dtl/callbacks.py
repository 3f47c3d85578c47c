"""Functions of Python that the library calls.

A callback may raise dtl.Error: its status becomes the result. Any other exception is printed, with
its traceback, and the result is DTL_ERROR_BACKEND.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ._raw import ffi, lib
from .error import Error

FAILED: int = lib.DTL_ERROR_BACKEND

# Callbacks that the library will call once. A handle ends with its last reference.
_queued: dict[int, Any] = {}
_lock = threading.Lock()


def handle_once(function: Callable[[], object]) -> Any:
    """Returns the `user` of python_task for a function that is called once."""
    handle = ffi.new_handle(function)
    with _lock:
        _queued[int(ffi.cast("uintptr_t", handle))] = handle
    return handle


def withdraw(handle: Any) -> None:
    """Ends a handle whose function will not be called."""
    with _lock:
        _queued.pop(int(ffi.cast("uintptr_t", handle)), None)


def status_of(function: Callable[..., object], *arguments: Any) -> int:
    """Calls a function; returns the status that its result stands for."""
    try:
        result = function(*arguments)
    except Error as error:
        return int(error.status)
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


@ffi.def_extern(error=FAILED)
def python_task(user: Any) -> int:
    """Calls a queued function."""
    function = ffi.from_handle(user)
    try:
        return status_of(function)
    finally:
        withdraw(user)
