"""Executes the recipe for Spack with a fake of the few functions of Spack that it calls.

    spack.py TOP STAGE     TOP: the source tree; STAGE: folder with bin and lib of a finished build

Spack itself cannot be had from the package registries. This shows that the recipe is valid Python,
that what it names in CMakeLists.txt exists, that it asks for the compiler of Cargo.toml, and that
its test compiles and runs a program. It does not show that Spack accepts it.
"""

import contextlib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

TOP, STAGE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
directives: list[tuple[str, tuple, dict]] = []


class Prefix(str):
    """Path whose attributes are paths below it, as Spack's."""

    def __getattr__(self, name: str) -> "Prefix":
        return Prefix(os.path.join(self, name))


class Executable:
    """Program that raises if it fails."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, *arguments: str) -> None:
        subprocess.run([self.path, *arguments], check=True)


class CMakePackage:
    """Base class of the recipe: options of CMake."""

    def define(self, name: str, value: object) -> str:
        text = {True: "ON", False: "OFF"}.get(value, value)
        return f"-D{name}={text}"

    def define_from_variant(self, name: str, variant: str) -> str:
        return self.define(name, self.chosen[variant])


def directive(name: str):
    """Returns a function that records its call."""
    return lambda *values, **options: directives.append((name, values, options))


@contextlib.contextmanager
def working_dir(folder: str):
    before = os.getcwd()
    os.chdir(folder)
    yield
    os.chdir(before)


def decorator(*_values, **_options):
    return lambda function: function


def load() -> type:
    """Returns the class of the recipe."""
    package = types.ModuleType("spack.package")
    for name in ("license", "version", "resource", "variant", "requires", "depends_on"):
        setattr(package, name, directive(name))
    package.run_after = package.on_package_attributes = decorator
    package.cache_extra_test_sources = lambda recipe, source: recipe.kept.append(source)
    package.join_path = os.path.join
    package.working_dir = working_dir
    package.Executable = Executable
    cmake = types.ModuleType("spack_repo.builtin.build_systems.cmake")
    cmake.CMakePackage = CMakePackage
    for name in ("spack", "spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["spack.package"], sys.modules[cmake.__name__] = package, cmake
    path = TOP / "packaging" / "spack" / "package.py"
    spec = importlib.util.spec_from_file_location("recipe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Dtl


def calls(name: str) -> list[tuple[tuple, dict]]:
    return [(values, options) for called, values, options in directives if called == name]


def check_requirements() -> None:
    cargo, cmake = (TOP / "Cargo.toml").read_text(), (TOP / "CMakeLists.txt").read_text()
    rust = re.search(r'^rust-version = "(.*)"', cargo, re.M).group(1)
    least = re.search(r"cmake_minimum_required\(VERSION ([0-9.]+)\)", cmake).group(1)
    wanted = {values[0] for values, _ in calls("depends_on")}
    assert {f"rust@{rust}:", f"cmake@{least}:", "c"} == wanted, wanted
    version = calls("version")[0][0][0]
    for _, options in calls("resource"):
        assert options["when"] == f"@{version}" and version in options["url"], options


def check_options(recipe: CMakePackage) -> None:
    """Each option of the project is one of CMakeLists.txt, and each variant changes one."""
    cmake = (TOP / "CMakeLists.txt").read_text()
    named = set(re.findall(r"^option\((\w+) ", cmake, re.M))
    assert len(named) > 3, named
    variants = [values[0] for values, _ in calls("variant")]
    seen = []
    for value in (True, False):
        recipe.chosen = dict.fromkeys(variants, value)
        options = dict(argument[2:].split("=") for argument in recipe.cmake_args())
        unknown = {name for name in options if name.startswith("DTL_")} - named
        assert not unknown, f"CMakeLists.txt has no option {unknown}"
        seen.append(options)
    changed = [name for name in seen[0] if seen[0][name] != seen[1][name]]
    assert len(changed) == len(variants), (changed, variants)


def check_test(recipe: CMakePackage) -> None:
    """Runs what `spack test run` runs."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        for target in (STAGE / "bin", STAGE / "lib", TOP / "include"):
            (work / target.name).symlink_to(target)
        recipe.prefix, recipe.kept = Prefix(folder), []
        recipe.keep_test_program()
        kept = work / "cache"
        for source in recipe.kept:
            (kept / source).parent.mkdir(parents=True, exist_ok=True)
            (kept / source).write_text((TOP / source).read_text())
        recipe.test_suite = types.SimpleNamespace(current_test_cache_dir=str(kept))
        os.environ["CC"] = "cc"
        recipe.test_ring()


recipe = load()()
check_requirements()
check_options(recipe)
check_test(recipe)
print("ok: the recipe was executed with a fake of Spack")
