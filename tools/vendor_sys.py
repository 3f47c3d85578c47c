#!/usr/bin/env python3
"""Writes the declarations of vendors' C headers that the library uses: *_sys.rs, beside the code
that uses them. bindgen reads the headers. Only for maintainers: no build and no installation runs
this.

    vendor_sys.py                     writes the files
    vendor_sys.py --check [FOLDER]    compares those of a tree; fails if one differs

A file has the functions that are in a `function_table!` of its folder, and the constants and
structs that the folder's code names. So a new function is a new name in the table and a run of this
script. A header that is not installed is skipped with a line that says so. NVIDIA's headers are
taken from DTL_TEST_CUDA_INCLUDE, or from build/wheels, where tests/gpu_wheels.sh puts them.

Comments and parameter names of the headers are left out: see docs/adr/0029-vendor-declarations.md.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BINDGEN = "0.73.2"
TOP = pathlib.Path(__file__).resolve().parent.parent
CHECKED = next((pathlib.Path(word) for word in sys.argv[2:]), TOP)
BACKENDS = CHECKED / "src/backend"
# File to write, header, package in build/wheels, folder of the code, patterns of the names of
# functions and constants.
HEADERS = [
    ("cuda/cuda_sys.rs", "cuda.h", "cuda_runtime", "cuda", r"cu[A-Z]\w*", r"CU(?:DA)?_[A-Z]\w*"),
    ("cuda/modules/nvrtc_sys.rs", "nvrtc.h", "cuda_nvrtc", "cuda", r"nvrtc\w+", r"NVRTC_\w+"),
    ("opencl/opencl_sys.rs", "CL/cl_ext.h", None, "opencl", r"cl[A-Z]\w*", r"CL_[A-Z]\w*"),
    ("nccl/nccl_sys.rs", "nccl.h", "nccl", "nccl", r"nccl[A-Z]\w*", r"nccl[A-Z]\w*"),
]
# The API that is not deprecated in any version, under the names that the libraries export.
DEFINES = [
    "__CUDA_API_VERSION_INTERNAL",
    "CL_TARGET_OPENCL_VERSION 300",
    "CL_USE_DEPRECATED_OPENCL_1_2_APIS",
]


def folder_of(header, package):
    """Folder to include the header from, or None."""
    places = ["/usr/include"]
    if package:
        own = os.environ.get("DTL_TEST_CUDA_INCLUDE")
        wheels = str(TOP / "build/wheels/nvidia" / package / "include")
        places = [own] if own else [wheels, "/usr/local/cuda/include", *places]
    return next((place for place in places if (pathlib.Path(place) / header).is_file()), None)


def code_of(folder):
    """Source without comments, generated files apart."""
    files = [file for file in sorted(folder.rglob("*.rs")) if not file.name.endswith("_sys.rs")]
    return re.sub(r"//.*", "", "\n".join(file.read_text() for file in files))


def functions_of(code, pattern):
    """Names in the function tables."""
    tables = re.findall(r"function_table! \{(.*?)\n\}", code, re.S)
    return [name for table in tables for name in re.findall(rf"\b{pattern}", table)]


def items_of(text):
    """The top-level items of bindgen's output by name, each without its attributes."""
    items, lines = {}, []
    for line in text.splitlines():
        lines.append(line)
        if not line.startswith((" ", "#[", "//")) and line.endswith((";", "}")):
            item = "\n".join(line for line in lines if line and not line.startswith("//"))
            name = re.search(r"pub (?:const|type|struct|union|use self::\w+ as|static) (\w+)", item)
            if name:
                items[name.group(1)] = item
            lines = []
    return items


def simplify(items):
    """Removes indirections: opaque structs are c_void, names of one thing are one name."""
    def everywhere(old, new):
        for name in list(items):
            items[name] = re.sub(rf"\b{old}\b", new, items[name])

    for name, item in list(items.items()):
        alias = re.fullmatch(r"pub use self::(\w+) as (\w+);", item)
        if "_unused: [u8; 0" in item:
            del items[name]
            everywhere(name, "c_void")
        elif alias and alias.group(1) in items:
            del items[name]
            items[alias.group(2)] = items.pop(alias.group(1))
            everywhere(*alias.groups())
    changes = True
    while changes:
        changes = False
        for name, item in list(items.items()):
            alias = re.fullmatch(r"pub type (\w+) = (\w+);", item)
            target = alias and items.get(alias.group(2))
            if target and alias.group(2).lstrip("_").startswith(name):
                # An older name of the same type: X_st, X_v1.
                items[name] = items.pop(alias.group(2))
                everywhere(alias.group(2), name)
            elif target and target.startswith("pub type") and not name.startswith("fn_"):
                del items[name]
                everywhere(name, alias.group(2))
            else:
                continue
            changes = True
            break


def fold(item, width=100):
    """Breaks a declaration behind its commas."""
    lines = [""]
    for part in re.split(r"(?<=,) |(?<=\)) (?=->)", item):
        if len(lines[-1]) + len(part) + 1 > width:
            lines.append("   ")
        lines[-1] += (" " if lines[-1] else "") + part
    return "\n".join(lines)


def generate(header, include, folder, functions, constants):
    """The declarations that the code of a folder uses."""
    code = code_of(BACKENDS / folder)
    functions = functions_of(code, functions)
    named = set(re.findall(rf"\b{constants}\b", code))
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        wrapper = [f"#define {name}" for name in DEFINES] + [f"#include <{header}>"]
        wrapper += [f"typedef __typeof__({name}) *fn_{name};" for name in functions]
        (work / "wrapper.h").write_text("\n".join(wrapper) + "\n")
        # nccl.h needs one type of CUDA's runtime interface, which may not be installed.
        (work / "cuda_runtime.h").write_text(
            "#include <stddef.h>\ntypedef struct CUstream_st *cudaStream_t;\n")
        (work / "cuda_fp16.h").write_text("")
        (work / "rustfmt.toml").write_text("max_width = 10000\nuse_small_heuristics = 'Max'\n")
        text = subprocess.run(
            ["bindgen", work / "wrapper.h", "--no-layout-tests", "--no-doc-comments",
             "--no-prepend-enum-name", "--default-enum-style", "consts", "--ignore-functions",
             "--no-derive-debug",
             "--clang-macro-fallback", "--clang-macro-fallback-build-dir", work,
             "--ctypes-prefix", "std::ffi", "--rustfmt-configuration-file", work / "rustfmt.toml",
             # Khronos' header uses vector types where it sees them.
             "--", "-I", include, "-idirafter", work, "-U__SSE2__", "-U__SSE__", "-U__MMX__"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
    items = items_of(text.replace("std::ffi::", "").replace("::std::option::", ""))
    simplify(items)
    for name in functions:
        item = re.sub(r"\barg\d+: ", "", items.pop(f"fn_{name}"))
        items[name] = re.sub(r"pub type fn_(\w+) = Option<(.*)>;", r"pub type \1 = \2;", item)
    wanted, queue = set(), [name for name in items if name in named or name in functions]
    while queue:
        name = queue.pop()
        if name in items and name not in wanted:
            wanted.add(name)
            queue += re.findall(r"\w+", items[name])
    chosen = [name for name in items if name in wanted]
    constants = [name for name in chosen if "pub const" in items[name]]
    types = [name for name in chosen if name not in constants and name not in functions]
    return items, types + constants + [name for name in chosen if name in functions]


def text_of(header, *rest):
    """A whole file."""
    items, names = generate(header, *rest)
    body = "\n".join(items[name] if "{" in items[name] else fold(items[name]) for name in names)
    used = ", ".join(sorted(set(re.findall(r"\bc_\w+", body))))
    imports = f"use std::ffi::{{{used}}};"
    names = "non_camel_case_types, non_snake_case, non_upper_case_globals"
    head = [
        f"//! Declarations of {header} that are used here.",
        "//!",
        "//! Written by tools/vendor_sys.py: do not edit.",
        "",
        '#![allow(missing_docs, reason = "as in the C header")]',
        f'#![allow({names}, reason = "as in C")]',
    ]
    return "\n".join([*head, "", imports, "", body, ""])


def main():
    bindgen = shutil.which("bindgen")
    version = bindgen and subprocess.run([bindgen, "--version"], capture_output=True, text=True)
    if not version or version.stdout.split()[-1:] != [BINDGEN]:
        print(f"skipped: bindgen {BINDGEN} is not in PATH: "
              f"cargo install bindgen-cli --version {BINDGEN} --locked")
        return 0 if "--check" in sys.argv else 1
    differing = []
    for target, header, package, *rest in HEADERS:
        include = folder_of(header, package)
        if not include:
            print(f"skipped: no {header}")
            continue
        if not (BACKENDS / target).exists() and CHECKED != TOP:
            continue
        text, file = text_of(header, include, *rest), BACKENDS / target
        if "--check" in sys.argv:
            if file.read_text() != text:
                differing.append(target)
        else:
            file.write_text(text)
    for target in differing:
        print(f"{target} is not what tools/vendor_sys.py writes: run it and read the difference")
    return 1 if differing else 0


sys.exit(main())
