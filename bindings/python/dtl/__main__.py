"""Paths of the installation: `python -m dtl --prefix`, for users of C, C++ and Fortran.

    python -m dtl --prefix       folder with include, lib, bin and share
    python -m dtl --include      folder of dtl.h
    python -m dtl --cmake-dir    folder for find_package(dtl): the value of dtl_DIR
    python -m dtl --pkgconfig    folder for PKG_CONFIG_PATH
    python -m dtl --version      version of the library
    python -m dtl --plugin MODULE:CLASS OUT.so
                                 compile a plugin whose backend is a class in Python

The programs dtlrun, dtl-info, dtl-bench and dtl-ctk are started from the same installation.
"""

import os
import pathlib
import stat
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
# The package of a distribution uses the libdtl of the system.
WHEEL = (HERE / "_prefix").is_dir()
PREFIX = HERE / "_prefix" if WHEEL else pathlib.Path(sys.base_prefix)
LIBDIR = PREFIX / "lib" if WHEEL else pathlib.Path(sysconfig.get_config_var("LIBDIR"))


def main(arguments: list[str]) -> int:
    """Prints what the arguments request."""
    paths = {
        "--prefix": PREFIX,
        "--include": PREFIX / "include",
        "--cmake-dir": LIBDIR / "cmake" / "dtl",
        "--pkgconfig": LIBDIR / "pkgconfig",
    }
    match arguments:
        case [option] if option in paths:
            print(paths[option])
        case ["--plugin", specification, output] if ":" in specification:
            return plugin(specification, output)
        case ["--version"]:
            from . import version

            print(version())
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


def plugin(specification: str, output: str) -> int:
    """Compiles a plugin whose backend is a class in Python; returns the compiler's exit status."""
    settings = sysconfig.get_config_vars()
    # Modules are found as in this process: "" is the current folder.
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    command = [
        os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O2",
        f"-I{sysconfig.get_path('include')}", f"-I{PREFIX / 'include'}",
        f'-DDTL_PYTHON_BACKEND="{specification}"', f'-DDTL_PYTHON_PATH="{path}"',
        str(HERE / "plugin.c"), "-o", output,
        f"-L{settings['LIBDIR']}", f"-Wl,-rpath,{settings['LIBDIR']}",
        f"-lpython{settings['LDVERSION']}",
    ]  # fmt: skip
    return subprocess.run(command, check=False).returncode


def _start(program: str) -> None:
    """Replaces this process by a program of the installation."""
    path = PREFIX / "bin" / program
    if not os.access(path, os.X_OK):
        # Some installers drop the permission to execute.
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.execv(path, [str(path), *sys.argv[1:]])


def dtlrun() -> None:
    """Starts dtlrun."""
    _start("dtlrun")


def dtl_info() -> None:
    """Starts dtl-info."""
    _start("dtl-info")


def dtl_bench() -> None:
    """Starts dtl-bench."""
    _start("dtl-bench")


def dtl_ctk() -> None:
    """Starts dtl-ctk."""
    _start("dtl-ctk")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
