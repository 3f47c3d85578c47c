"""Environments: what backends and kernels need, started once for all their users."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import callbacks, text
from ._raw import ffi, lib
from .error import check
from .lifecycle import new_info


class EnvironmentState(enum.IntEnum):
    """State of an environment. FAILED: the last attempt to start it failed."""

    IDLE = lib.DTL_ENVIRONMENT_IDLE
    STARTING = lib.DTL_ENVIRONMENT_STARTING
    STARTED = lib.DTL_ENVIRONMENT_STARTED
    STOPPING = lib.DTL_ENVIRONMENT_STOPPING
    FAILED = lib.DTL_ENVIRONMENT_FAILED


class EnvironmentInfo(NamedTuple):
    """Description of an environment. `reason`: why the last attempt to start it failed."""

    name: str
    version: str
    state: EnvironmentState
    uses: int
    depends: tuple[str, ...]
    packages: tuple[str, ...]
    headers: tuple[str, ...]
    libraries: tuple[str, ...]
    reason: str


class _Functions:
    """Functions of a registered environment, and what its init returned."""

    def __init__(
        self,
        probe: Callable[[], object] | None,
        init: Callable[[], object] | None,
        finalize: Callable[[Any], object] | None,
    ) -> None:
        self.probe = probe
        self.init = init
        self.finalize = finalize
        self.state: object = None
        self.handle: Any = ffi.new_handle(self)

    def start(self) -> None:
        if self.init is not None:
            self.state = self.init()

    def stop(self) -> None:
        state, self.state = self.state, None
        if self.finalize is not None:
            self.finalize(state)


# Functions of the environments that this process has registered in Python, by name.
_registered: dict[str, _Functions] = {}


class Environment:
    """An environment. As a context manager it is required until the end of the block."""

    def __init__(self, name: str) -> None:
        """Names an environment: "name" or "name>=version". It may be registered later."""
        self.requirement = name
        self.name = name.partition(">=")[0]

    @classmethod
    def register(
        cls,
        name: str,
        *,
        version: str | None = None,
        depends: Sequence[str] = (),
        packages: Sequence[str] = (),
        headers: Sequence[str] = (),
        libraries: Sequence[str] = (),
        probe: Callable[[], object] | None = None,
        init: Callable[[], object] | None = None,
        finalize: Callable[[Any], object] | None = None,
    ) -> Environment:
        """Registers an environment, until `unregister` or the last dtl.finalize.

        `probe()` raises an exception where the environment cannot be used. `init()` starts it; its
        result is `state`. `finalize(state)` ends it. An exception in one of them is the failure of
        the call that needed the environment. They may be called in any thread.
        """
        functions = _Functions(probe, init, finalize)
        desc = new_info("dtl_environment_desc")
        label, number = text.encode(name), text.encode(version)
        desc.name, desc.version, desc.user = label, number, functions.handle
        kept = []
        lists = {"depends": depends, "packages": packages, "headers": headers,
                 "libraries": libraries}  # fmt: skip
        for field, words in lists.items():
            texts = [text.encode(word) for word in words]
            table = ffi.new("char *[]", texts or [ffi.NULL])
            kept.append((texts, table))
            setattr(desc, field, table)
            setattr(desc, f"{field}_count", len(texts))
        desc.probe = lib.python_environment_probe
        desc.init = lib.python_environment_init
        desc.finalize = lib.python_environment_finalize
        check(lib.dtl_environment_register(desc))
        _registered[name] = functions
        return cls(name)

    def unregister(self) -> None:
        """Removes the environment. Raises Error with BUSY while it is required."""
        check(lib.dtl_environment_unregister(text.encode(self.name)))
        _registered.pop(self.name, None)

    def require(self) -> None:
        """Starts the environment after its dependencies, or adds a user if it is started."""
        check(lib.dtl_environment_require(text.encode(self.requirement)))

    def release(self) -> None:
        """Undoes one require; the last one ends the environment and unused dependencies."""
        check(lib.dtl_environment_release(text.encode(self.name)))

    @property
    def unavailable(self) -> str | None:
        """Reason why the environment cannot be required here; None if it can. Starts nothing."""
        yes, length = ffi.new("int32_t *"), ffi.new("uint64_t *")
        why = ffi.new("char[]", 1024)
        name = text.encode(self.requirement)
        check(lib.dtl_environment_is_available(name, yes, why, 1024, length))
        return None if yes[0] else text.decode(why)

    @property
    def state(self) -> Any:
        """What init returned. Raises Error with INVALID_STATE if it is not started.

        Of an environment that was not registered in Python it is the address of the state block.
        """
        out = ffi.new("void **")
        check(lib.dtl_environment_state(text.encode(self.name), out))
        functions = _registered.get(self.name)
        return int(ffi.cast("uintptr_t", out[0])) if functions is None else functions.state

    @property
    def info(self) -> EnvironmentInfo:
        """Description and state."""
        info = new_info("dtl_environment_info")
        check(lib.dtl_environment_info(text.encode(self.name), info))
        return _described(info)

    def __enter__(self) -> Environment:
        self.require()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"dtl.Environment({self.requirement!r})"


def environments() -> list[EnvironmentInfo]:
    """Returns all environments, in the order of registration."""
    count = ffi.new("uint64_t *")
    check(lib.dtl_environment_count(count))
    found = []
    for index in range(count[0]):
        info = new_info("dtl_environment_info")
        check(lib.dtl_environment_at(index, info))
        found.append(_described(info))
    return found


def _described(info: Any) -> EnvironmentInfo:
    def words(joined: Any) -> tuple[str, ...]:
        return tuple(word for word in text.decode(joined).split(", ") if word)

    return EnvironmentInfo(
        text.decode(info.name),
        text.decode(info.version),
        EnvironmentState(info.state),
        int(info.uses),
        words(info.depends),
        words(info.packages),
        words(info.headers),
        words(info.libraries),
        text.decode(info.reason),
    )


def forget_environments() -> None:
    """Releases the functions of all environments. The library is closed."""
    _registered.clear()


@ffi.def_extern(error=callbacks.FAILED)
def python_environment_probe(user: Any, why: Any, cap: int) -> int:
    """Checks whether an environment can be used here."""
    functions: _Functions = ffi.from_handle(user)
    try:
        if functions.probe is not None:
            functions.probe()
    except Exception as error:
        reason = str(error).encode()[: cap - 1].replace(b"\0", b" ")
        ffi.memmove(why, reason + b"\0", len(reason) + 1)
        return int(lib.DTL_ERROR_UNAVAILABLE)
    return 0


@ffi.def_extern(error=callbacks.FAILED)
def python_environment_init(user: Any, state: Any) -> int:
    """Starts an environment."""
    functions: _Functions = ffi.from_handle(user)
    return callbacks.status_of(functions.start)


@ffi.def_extern(error=callbacks.FAILED)
def python_environment_finalize(user: Any, state: Any) -> int:
    """Ends an environment."""
    functions: _Functions = ffi.from_handle(user)
    return callbacks.status_of(functions.stop)
