"""Compiles dtl._raw, the raw layer: each function of dtl.h under its own name.

setuptools runs this file (see setup.py). The prefix of an installed libdtl comes from DTL_PREFIX.
cdef.h and initial.c are generated from the same sources as dtl.h.
"""

import os
import pathlib

import cffi

HERE = pathlib.Path(__file__).resolve().parent


def prefix() -> pathlib.Path:
    """Returns the prefix of the libdtl to compile against."""
    found = pathlib.Path(os.environ.get("DTL_PREFIX", ""))
    if not (found / "include" / "dtl.h").is_file():
        raise SystemExit(
            f"DTL_PREFIX is {str(found)!r}, which has no include/dtl.h. Set it to the prefix of an "
            "installed libdtl (cmake --install build --prefix PREFIX)."
        )
    return found


def builder() -> cffi.FFI:
    """Returns the description of the module for cffi."""
    ffi = cffi.FFI()
    ffi.cdef((HERE / "cdef.h").read_text())
    where = prefix()
    system_libdir = os.environ.get("DTL_SYSTEM_LIBDIR")
    ffi.set_source(
        "dtl._raw",
        "#include <dtl.h>\n" + (HERE / "initial.c").read_text(),
        include_dirs=[str(where / "include")],
        library_dirs=[system_libdir or str(where / "lib")],
        libraries=["dtl"],
        extra_link_args=[] if system_libdir else ["-Wl,-rpath,$ORIGIN/_prefix/lib"],
    )
    return ffi


ffi = builder()

if __name__ == "__main__":
    ffi.compile(verbose=True)
