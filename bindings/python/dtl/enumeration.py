"""Extensible enumerations: memory kinds, schedules and others, to which programs add members."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import text
from ._raw import ffi, lib
from .error import check


class Word(int):
    """Number of a member of an enumeration, or of an instance of a member with attributes.

    It is an int: pass it where MemoryKind, Schedule and others are passed.
    """

    @property
    def name(self) -> str:
        """Name of the member; of an instance: that of its template."""
        out = ffi.new("char **")
        check(lib.dtl_ev_name(self, out))
        return text.decode(out[0])

    @property
    def template(self) -> Word:
        """The member itself, of which this may be an instance."""
        return Word(self >> 32 << 32)

    def attribute(self, name: str) -> Any:
        """Returns an attribute of an instance, as bool, int, float, str or Word."""
        out = ffi.new("dtl_attr_t *")
        check(lib.dtl_ev_get(self, text.encode(name), out))
        integer = int(out.integer)
        values = {
            lib.DTL_ATTR_BOOL: bool(integer),
            lib.DTL_ATTR_I64: integer - (integer >> 63 << 64),
            lib.DTL_ATTR_U64: integer,
            lib.DTL_ATTR_F64: float(out.real),
            lib.DTL_ATTR_ENUM: Word(integer),
        }
        return text.decode(out.text) if out.kind == lib.DTL_ATTR_STR else values[out.kind]

    def to_json(self) -> str:
        """Returns the word as JSON, which Enumeration.from_json reads."""
        return text.read(lambda *arguments: lib.dtl_ev_to_json(self, *arguments))

    def __repr__(self) -> str:
        return f"dtl.Word({self.to_json()})"


class Enumeration:
    """An enumeration: "Memory", "Device", "Schedule", "Language", "Operation" or another one.

    Iteration and len are over the members, in the order of registration. Members exist until the
    process ends.
    """

    def __init__(self, name: str) -> None:
        """Finds an enumeration by its name."""
        out = ffi.new("dtl_enum_t *")
        check(lib.dtl_enum_find(text.encode(name), out))
        self.name = name
        self._number = int(out[0])

    @classmethod
    def create(cls, name: str, undefined: bool = False) -> Enumeration:
        """Creates an enumeration; with `undefined` it can represent unknown names."""
        flags = lib.DTL_ENUM_WITH_UNDEFINED if undefined else 0
        check(lib.dtl_enum_create(text.encode(name), flags, ffi.new("dtl_enum_t *")))
        return cls(name)

    def _word(self, function: Any, *arguments: Any) -> Word:
        out = ffi.new("dtl_enum_word_t *")
        check(function(self._number, *arguments, out))
        return Word(out[0])

    def register(self, name: str, value: int | None = None) -> Word:
        """Adds a member. `value` makes its word the same in every process: 256 to 65534."""
        label = text.encode(name)
        if value is None:
            return self._word(lib.dtl_enum_register, label)
        return self._word(lib.dtl_enum_register_value, label, value)

    def __getitem__(self, name: str) -> Word:
        """Finds a member by its name."""
        return self._word(lib.dtl_enum_from_name, text.encode(name))

    def from_value(self, value: int) -> Word:
        """Finds a member by its value."""
        return self._word(lib.dtl_enum_from_value, value)

    def from_json(self, words: str, tolerant: bool = False) -> Word:
        """Reads a word from JSON: "Host", or {"type": "Schedule.Mine", "block_size": 64}.

        An instance with new attributes is created. With `tolerant` an unknown name becomes an
        instance of `undefined`, which holds the text.
        """
        flags = lib.DTL_EV_TOLERANT if tolerant else 0
        return self._word(lib.dtl_ev_from_json, text.encode(words), flags)

    @property
    def undefined(self) -> Word:
        """Template of the words that a tolerant from_json could not resolve."""
        return self._word(lib.dtl_enum_undefined)

    def __len__(self) -> int:
        count = ffi.new("uint64_t *")
        check(lib.dtl_enum_count(self._number, count))
        return int(count[0])

    def __iter__(self) -> Iterator[Word]:
        for index in range(len(self)):
            yield self._word(lib.dtl_enum_at, index)

    def __contains__(self, word: object) -> bool:
        return word in list(self)

    def __repr__(self) -> str:
        return f"dtl.Enumeration({self.name!r})"
