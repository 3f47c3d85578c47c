"""Failed calls: the exception Error, with the library's error text."""

from __future__ import annotations

from typing import NoReturn

from . import _fast
from ._raw import ffi, lib
from .constants import Status

# Part of the error text that says so (a test compares it with the library's source).
NOT_RELEASED = "has not given the buffer back"

# Buffers that a transport has not released although the call has ended. They are kept forever.
_unreleased: list[object] = []


class Error(Exception):
    """A call of the library that failed.

    `status` is a member of Status (or a number that this version does not name), `text` the
    library's error text: what was wrong with the value, the limits, and what to do.
    """

    def __init__(self, status: int, text: str) -> None:
        try:
            self.status: int = Status(status)
        except ValueError:
            self.status = status
        self.text = text
        super().__init__(status, text)

    @property
    def name(self) -> str:
        """Name of the status, such as DTL_ERROR_NOT_FOUND."""
        return str(ffi.string(lib.dtl_status_name(int(self.status))).decode())

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def last_error() -> str:
    """Returns the error text of the last failed call in this thread."""
    return str(ffi.string(lib.dtl_last_error()).decode(errors="replace"))


def fail(status: int, buffers: object = None) -> NoReturn:
    """Raises Error with the text of the last failed call.

    If the text says that a transport still uses the buffers, they are kept as long as the process
    runs.
    """
    text = last_error()
    if buffers is not None and NOT_RELEASED in text:
        keep_forever(buffers)
    raise Error(status, text)


def keep_forever(buffers: object) -> None:
    """Keeps buffers that the library may still access."""
    if isinstance(buffers, tuple | list):
        for one in buffers:
            keep_forever(one)
        return
    try:
        _unreleased.append(memoryview(buffers))  # type: ignore[arg-type]
    except TypeError:
        _unreleased.append(buffers)


def check(status: int, buffers: object = None) -> None:
    """Raises Error unless the status is DTL_SUCCESS."""
    if status != 0:
        fail(status, buffers)


_fast.set_error(fail)
