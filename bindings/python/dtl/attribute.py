"""Attributes: objects of the program that are attached to communicators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import callbacks
from ._raw import ffi, lib
from .error import check

if TYPE_CHECKING:
    from .comm import Comm

    # Makes the attribute of a duplicate: copy(comm, value) -> value.
    Copy = Callable[[Comm, Any], Any]
    # Runs when an attribute is replaced or deleted, or its communicator ends.
    Delete = Callable[[Comm, Any], object]


class Key:
    """A key for attributes of communicators. Equivalent: MPI_Comm_create_keyval.

    `comm.set_attr(key, value)` attaches any object, in this process only. Attributes are found
    until they are deleted or their communicator is destroyed, also after `destroy` of the key.
    """

    def __init__(self, copy: Copy | None = None, delete: Delete | None = None) -> None:
        """Creates a key.

        `copy(comm, value)` returns the attribute of a duplicate of `comm` (Comm.dup); without it
        duplicates have none. An exception in it is the failure of that dup. `delete(comm, value)`
        is called when an attribute is released. An exception in it is printed.
        """
        self.copy = copy
        self.delete = delete
        out = ffi.new("int32_t *")
        check(lib.dtl_comm_key_create(
            lib.python_attribute_copy, lib.python_attribute_delete, ffi.NULL, out
        ))  # fmt: skip
        self._number = int(out[0])

    def destroy(self) -> None:
        """Destroys the key: no further attribute can be set."""
        check(lib.dtl_comm_key_destroy(self._number))


class _Attribute:
    """A value with its key, whose functions are called even after its destroy."""

    def __init__(self, key: Key, value: Any) -> None:
        self.key = key
        self.value = value


# Handles of attributes that communicators have, by the pointers that the library stores.
_attached: dict[int, Any] = {}


def _attach(key: Key, value: Any) -> Any:
    handle = ffi.new_handle(_Attribute(key, value))
    _attached[int(ffi.cast("uintptr_t", handle))] = handle
    return handle


def _detach(handle: Any) -> None:
    _attached.pop(int(ffi.cast("uintptr_t", handle)), None)


class Attributes:
    """Attributes of dtl.Comm."""

    _handle: Any

    def set_attr(self, key: Key, value: Any) -> None:
        """Attaches an object to the communicator; a previous one with this key is released."""
        handle = _attach(key, value)
        status = lib.dtl_comm_set_attr(self._handle, key._number, handle)
        if status != 0:
            _detach(handle)
        check(status)

    def get_attr(self, key: Key, default: Any = None) -> Any:
        """Returns the object that is attached for a key, or `default`."""
        out, found = ffi.new("void **"), ffi.new("int32_t *")
        check(lib.dtl_comm_get_attr(self._handle, key._number, out, found))
        # None after another thread has deleted it meanwhile.
        handle = _attached.get(int(ffi.cast("uintptr_t", out[0]))) if found[0] else None
        if handle is None:
            return default
        attribute: _Attribute = ffi.from_handle(handle)
        return attribute.value

    def delete_attr(self, key: Key) -> None:
        """Deletes an attribute. Raises Error with NOT_FOUND if there is none."""
        check(lib.dtl_comm_delete_attr(self._handle, key._number))


@ffi.def_extern(error=callbacks.FAILED)
def python_attribute_copy(
    comm: Any, key: int, user: Any, value: Any, out_value: Any, out_copy: Any
) -> int:
    """Copies an attribute to a duplicate."""
    attribute: _Attribute = ffi.from_handle(value)
    copy = attribute.key.copy
    if copy is None:
        return 0

    def attach() -> None:
        made = copy(_comm_of(comm), attribute.value)
        out_value[0], out_copy[0] = _attach(attribute.key, made), 1

    return callbacks.status_of(attach)


@ffi.def_extern()
def python_attribute_delete(comm: Any, key: int, user: Any, value: Any) -> None:
    """Releases an attribute."""
    attribute: _Attribute = ffi.from_handle(value)
    _detach(value)
    if attribute.key.delete is not None:
        attribute.key.delete(_comm_of(comm), attribute.value)


def _comm_of(handle: Any) -> Comm:
    from .comm import Comm

    return Comm(ffi.new("dtl_comm_t *", handle)[0])
