"""Ownership of the library's objects: an object is destroyed with the last reference to it."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from ._raw import ffi, lib
from .error import check

_Self = TypeVar("_Self", bound="Owned")


class Owned:
    """Owner of an object. After destroy, calls with it raise Error with INVALID_HANDLE."""

    # The object's noun in names of dtl.h, and the verb that ends it: dtl_array_destroy.
    _noun: ClassVar[str]
    _verb: ClassVar[str] = "destroy"
    _handle: Any = None

    def destroy(self) -> None:
        """Destroys the object now. A second call has no effect."""
        handle = self._handle
        if handle is not None:
            self._handle = ffi.new(f"dtl_{self._noun}_t *")[0]
            status = getattr(lib, f"dtl_{self._noun}_{self._verb}")(handle)
            if status == lib.DTL_ERROR_BUSY:  # it is not destroyed
                self._handle = handle
            check(status)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __del__(self) -> None:
        # A failure has nobody to be reported to; destroy reports it. At the end of the interpreter
        # the names of this module may be gone.
        if self._handle is not None and lib is not None:
            getattr(lib, f"dtl_{self._noun}_{self._verb}")(self._handle)
