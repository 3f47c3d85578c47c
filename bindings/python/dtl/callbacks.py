"""Functions of Python that the library calls.

An exception is a failure of the work: the call that waits for it raises dtl.Error. The status is
that of a dtl.Error, and DTL_ERROR_BACKEND for any other exception; the text has the exception and
where it was raised.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from . import text
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
    """Calls a function; returns DTL_SUCCESS, or the status of its exception."""
    try:
        function(*arguments)
    except Error as error:
        return lib.dtl_error_set(int(error.status), text.encode(error.text))
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({frame.filename}:{frame.lineno})"
        return lib.dtl_error_set(FAILED, text.encode(why.replace("\0", " ")))
    return 0


@ffi.def_extern(error=FAILED)
def python_task(user: Any) -> int:
    """Calls a queued function."""
    function = ffi.from_handle(user)
    try:
        return status_of(function)
    finally:
        withdraw(user)
