"""Builds the wheel: compiles dtl._raw (cffi) and dtl._fast (C), and adds libdtl itself.

DTL_PREFIX is the prefix of an installed libdtl, which the wheel then contains. Without it, libdtl
is built with CMake from the source tree around this folder. Distributions package libdtl by itself:
for them DTL_SYSTEM_LIBDIR names the folder with libdtl.so, and the package contains no libdtl.
"""

import os
import pathlib
import re
import shutil
import subprocess

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
# What a user of the wheel has no use for: the documentation's site, names of internal functions.
LEFT_OUT = shutil.ignore_patterns("html", "search", "reference", ".debug")


def prefix() -> pathlib.Path:
    """Returns the prefix of the libdtl that the wheel contains; builds one if none is given."""
    if "DTL_PREFIX" in os.environ:
        return pathlib.Path(os.environ["DTL_PREFIX"]).resolve()
    source, build = HERE.parent.parent, HERE / "build" / "libdtl"
    if not (source / "CMakeLists.txt").is_file():
        raise SystemExit(
            "There is no source tree of libdtl around this folder. Set DTL_PREFIX to the prefix of "
            "an installed libdtl (cmake --install build --prefix PREFIX)."
        )
    where = build / "prefix"
    subprocess.run(["cmake", "-S", source, "-B", build, "-DCMAKE_INSTALL_LIBDIR=lib"], check=True)
    subprocess.run(["cmake", "--build", build], check=True)
    subprocess.run(["cmake", "--install", build, "--prefix", where], check=True)
    os.environ["DTL_PREFIX"] = str(where)
    return where


PREFIX = prefix()
SYSTEM_LIBDIR = os.environ.get("DTL_SYSTEM_LIBDIR")


def version() -> str:
    """Returns the version of the header."""
    text = (PREFIX / "include" / "dtl.h").read_text()
    found = re.search(r'#define DTL_VERSION_STRING "(.*)"', text)
    if not found:
        raise SystemExit(f"{PREFIX}/include/dtl.h has no DTL_VERSION_STRING")
    return found.group(1)


class WithLibrary(build_py):
    """Copies the prefix into the package. Wheels have no symbolic links: files are repeated."""

    def run(self) -> None:
        super().run()
        if SYSTEM_LIBDIR:
            return
        target = pathlib.Path(self.build_lib, "dtl", "_prefix")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(PREFIX, target, ignore=LEFT_OUT)


setup(
    version=version(),
    cmdclass={"build_py": WithLibrary},
    cffi_modules=["raw/build.py:ffi"],
    ext_modules=[
        Extension(
            "dtl._fast",
            ["dtl/_fast.c", "dtl/_memory.c"],
            depends=["dtl/_fast.h"],
            include_dirs=[str(PREFIX / "include")],
            library_dirs=[SYSTEM_LIBDIR or str(PREFIX / "lib")],
            libraries=["dtl"],
            extra_link_args=[] if SYSTEM_LIBDIR else ["-Wl,-rpath,$ORIGIN/_prefix/lib"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
