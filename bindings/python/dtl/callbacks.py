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
from .error import Error, check

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


class Call:
    """Functions that the library calls within one call of its own, and their first exception."""

    def __init__(self, *functions: Callable[..., object]) -> None:
        self.functions = functions
        self.exception: BaseException | None = None
        self.handle: Any = ffi.new_handle(self)

    def run(self, *arguments: Any, index: int = 0) -> int:
        """Calls a function; returns DTL_SUCCESS, or the status of its exception."""
        try:
            self.functions[index](*arguments)
        except BaseException as error:  # Ctrl-C too: check raises it
            self.exception = self.exception or error
            return int(error.status) if isinstance(error, Error) else FAILED
        return 0

    def check(self, status: int) -> None:
        """Raises the exception of the functions, or Error for another failure."""
        if self.exception is not None:
            raise self.exception
        check(status)
