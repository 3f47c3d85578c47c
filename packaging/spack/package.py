# SPDX-License-Identifier: MIT OR Apache-2.0
"""Recipe of libdtl for Spack 1.0 and newer. The crates are those of the release's archive, so
building needs no network beyond Spack's own downloads."""

import os

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Dtl(CMakePackage):
    """One C interface for devices, memory, streams, events, kernels and communicators. The backend
    and the transport are chosen at run time; the library runs over any MPI that it finds."""

    homepage = "https://example.invalid/libdtl"
    url = "https://example.invalid/libdtl/releases/dtl-0.2.0.tar.gz"

    license("MIT OR Apache-2.0")

    version("0.2.0", sha256="SHA256 of dtl-0.2.0.tar.gz")
    resource(
        name="vendor",
        url="https://example.invalid/libdtl/releases/dtl-0.2.0-vendor.tar.gz",
        sha256="SHA256 of dtl-0.2.0-vendor.tar.gz",
        placement="vendor",
        when="@0.2.0",
    )

    variant("docs", default=True, description="Install manual pages and shell completions")

    requires("platform=linux", msg="libdtl supports Linux only")

    depends_on("c", type="build")
    depends_on("rust@1.85:", type="build")
    depends_on("cmake@3.16:", type="build")

    def cmake_args(self):
        return [
            self.define("DTL_OFFLINE", True),
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),
            self.define_from_variant("DTL_DOCS", "docs"),
        ]

    @run_after("install")
    def keep_test_program(self):
        cache_extra_test_sources(self, join_path("examples-c", "ring.c"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        self.run_ring(join_path(self.stage.source_path, "examples-c"))

    def test_ring(self):
        """compile a C program with the installed library, and run it on two ranks"""
        self.run_ring(join_path(self.test_suite.current_test_cache_dir, "examples-c"))

    def run_ring(self, folder):
        """Compiles ring.c of the folder there, and runs it on two ranks."""
        with working_dir(folder):
            compiler = Executable(os.environ["CC"])
            include, lib = self.prefix.include, self.prefix.lib
            flags = [f"-I{include}", f"-L{lib}", f"-Wl,-rpath,{lib}", "-ldtl"]
            compiler("ring.c", *flags, "-o", "ring")
            Executable(self.prefix.bin.dtlrun)("-n", "2", join_path(".", "ring"))
