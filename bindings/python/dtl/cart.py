"""Cartesian grids: local arithmetic with ranks, for any communicator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ._raw import ffi, lib
from .error import check


class Shift(NamedTuple):
    """Neighbours along a dimension, for comm.sendrecv."""

    source: int
    dest: int


def compute_dims(size: int, dims: int | Sequence[int]) -> tuple[int, ...]:
    """Returns the dimensions of a grid of `size` ranks, as equal as possible.

    `dims` is the number of dimensions, or their sizes: those that are not 0 stay.
    Equivalent: MPI_Dims_create.
    """
    given = [0] * dims if isinstance(dims, int) else [int(one) for one in dims]
    room = ffi.new("int32_t[]", given or [0])
    check(lib.dtl_cart_dims(size, room, len(given)))
    return tuple(room[index] for index in range(len(given)))


class Cart:
    """A grid of ranks in row-major order: the last coordinate varies fastest.

    It starts nothing and needs no communicator: coordinates and neighbours are computed from the
    rank. Equivalent: MPI_Cart_create without reordering.
    """

    def __init__(self, dims: Sequence[int], periods: Sequence[bool] | bool = False) -> None:
        """Describes a grid by the sizes of its dimensions, and which of them are periodic."""
        self.dims = tuple(int(one) for one in dims)
        given = [periods] * len(self.dims) if isinstance(periods, bool) else list(periods)
        self.periods = tuple(bool(one) for one in given)
        self._require("periods", self.periods)
        self._dims = ffi.new("int32_t[]", self.dims or (0,))
        self._periods = ffi.new("int32_t[]", self.periods or (0,))
        self.coords(0)  # checks the dimensions

    def _require(self, name: str, given: Sequence[object]) -> None:
        if len(given) != len(self.dims):
            raise ValueError(f"{name} has {len(given)} numbers: the grid has {len(self.dims)}")

    @property
    def size(self) -> int:
        """Number of ranks."""
        size = 1
        for extent in self.dims:
            size *= extent
        return size

    def rank(self, coords: Sequence[int]) -> int:
        """Returns the rank at a position; coordinates of periodic dimensions may be any number."""
        self._require("coords", coords)
        out = ffi.new("int32_t *")
        place = ffi.new("int32_t[]", [int(one) for one in coords] or [0])
        check(lib.dtl_cart_rank(self._dims, self._periods, place, len(self.dims), out))
        return int(out[0])

    def coords(self, rank: int) -> tuple[int, ...]:
        """Returns the position of a rank."""
        room = ffi.new("int32_t[]", max(len(self.dims), 1))
        check(lib.dtl_cart_coords(self._dims, len(self.dims), rank, room))
        return tuple(room[index] for index in range(len(self.dims)))

    def shift(self, rank: int, dimension: int, displacement: int = 1) -> Shift:
        """Returns the ranks to receive from and to send to in a shift along a dimension.

        Beyond a border that is not periodic they are PROC_NULL.
        """
        source, dest = ffi.new("int32_t *"), ffi.new("int32_t *")
        check(lib.dtl_cart_shift(
            self._dims, self._periods, len(self.dims), rank, dimension, displacement, source, dest
        ))  # fmt: skip
        return Shift(int(source[0]), int(dest[0]))
