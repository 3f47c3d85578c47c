"""The library as a whole: initialise, finalise, versions, explanations."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from . import text
from ._raw import ffi, lib
from .error import check

# Time limit: none.
INFINITE: int = lib.DTL_TIMEOUT_INFINITE

# Calls of init that no finalize has reverted.
_count = 0


class Library:
    """What init returns. As a context manager it finalises the library at its end."""

    def __enter__(self) -> Library:
        return self

    def __exit__(self, *_: object) -> None:
        finalize()


def init(
    *,
    backend: str | None = None,
    comm: str | None = None,
    log_level: int = 0,
    strict: bool | None = None,
) -> Library:
    """Initialises the library. Optional: its first use does the same.

    `backend` and `comm` are what `Backend()` and COMM_WORLD mean; None takes them from the
    environment, which also applies to the other settings.
    """
    global _count
    config = ffi.new("dtl_config_t *", lib.dtl_config_initial())
    texts = text.encode(backend), text.encode(comm)
    config.backend, config.comm = texts
    config.log_level = log_level
    config.strict = {None: 0, True: 1, False: -1}[strict]
    check(lib.dtl_init(config))
    _count += 1
    return Library()


def finalize() -> None:
    """Reverts one init; the last call closes the library. Call it on every rank."""
    global _count
    from . import environment, window

    if _count <= 1:
        window.close_all()
    check(lib.dtl_finalize())
    _count = max(_count - 1, 0)
    if _count == 0:
        environment.forget_environments()
        _forget()


def init_after_fork() -> None:
    """Makes the library usable in a child that was forked from a process that used it.

    The objects of the parent are stale here: calls with them raise Error with INVALID_HANDLE.
    """
    global _count
    check(lib.dtl_init_after_fork())
    _count = 1
    _forget()


def _forget() -> None:
    """Releases what objects of the library that have ended were using."""
    from . import comm, request, window

    request.forget_pending()
    window.forget_all()
    comm.forget_registrations()


def version() -> str:
    """Returns the version of the library."""
    return text.decode(lib.dtl_version_string())


def explain() -> str:
    """Returns every automatic choice so far and its reason, one per line."""
    return text.read(lib.dtl_explain)


def trace_start(path: str) -> None:
    """Starts a trace of calls and operations to a file; see docs/how-to/trace.md."""
    check(lib.dtl_trace_start(text.encode(path)))


def trace_stop() -> None:
    """Ends the trace and writes the rest of its file."""
    check(lib.dtl_trace_stop())


def _at_exit() -> None:
    # After an uncaught exception the other ranks may never call finalize, so do not wait for them:
    # they detect that this process ends. Otherwise close the library even if its first use has
    # initialised it: launchers of MPI treat a rank without MPI_Finalize as failed.
    if hasattr(sys, "last_value"):
        return
    for _ in range(max(_count, 1)):
        if lib.dtl_finalize() != 0:
            break


atexit.register(_at_exit)


def timeout_ns(seconds: float | None) -> int:
    """Returns a time limit in nanoseconds; None is no limit."""
    if seconds is None:
        return INFINITE
    if seconds < 0:
        raise ValueError(f"timeout is {seconds}: 0 or more seconds, or None for no limit")
    return min(int(seconds * 1e9), INFINITE - 1)


def new_info(kind: str) -> Any:
    """Returns a structure of dtl.h with its initial value: new_info("dtl_comm_info")."""
    return ffi.new(f"{kind}_t *", getattr(lib, f"{kind}_initial")())
