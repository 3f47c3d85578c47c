#!/usr/bin/env python3
"""Writes packaging/debian/copyright: the licences of the project and of the crates in its binaries.

packaging/copyright.py            after a change of Cargo.lock
packaging/copyright.py --check    fails if the file is out of date
"""

import json
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
OUT = TOP / "packaging/debian/copyright"
PROGRAMS = ["dtl", "dtlrun", "dtl-info", "dtl-ctk", "dtl-bench"]
# The licence that is used of a crate's alternatives: its name in Cargo.toml and in Debian.
LICENCES = {"MIT": "Expat", "Zlib": "Zlib"}
HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libdtl
Comment: Written by packaging/copyright.py. The folder vendor is unpacked from
 dtl-VERSION-vendor.tar.gz, or cargo fetches the same crates. Library and programs
 are linked with these crates and with Rust's standard library
 (Copyright: The Rust Project Contributors. License: Expat or Apache-2.0).

Files: *
Copyright: 2026 The libdtl authors
License: Expat or Apache-2.0
"""
APACHE = """
License: Apache-2.0
 On Debian systems, the text of the Apache License, version 2.0, is in the file
 /usr/share/common-licenses/Apache-2.0.
"""


def cargo(*arguments: str) -> str:
    """Returns the output of cargo."""
    command = ["cargo", *arguments, "--locked"]
    return subprocess.run(command, cwd=TOP, check=True, capture_output=True, text=True).stdout


def paragraph(name: str, text: str) -> str:
    """Returns the paragraph with the text of a licence."""
    lines = [f" {line}" if line else " ." for line in text.strip().splitlines()]
    return "\n".join(["", f"License: {name}", *lines, ""])


def body(path: pathlib.Path) -> str:
    """Returns the text of a licence file from its conditions on."""
    text = path.read_text()
    return text[re.search(r"^(Permission is|This software)", text, re.MULTILINE).start() :]


def holders(package: dict) -> list[str]:
    """Returns the copyright lines of the crate's licence files, or else its authors."""
    folder = pathlib.Path(package["manifest_path"]).parent
    found = set()
    for file in folder.glob("LICEN[SC]E*"):
        if file.is_file() and "apache" not in file.name.lower():
            # A line with years alone names nobody.
            lines = re.findall(
                r"^\s*Copyright (?:\(c\) )?((?!\(c\)).*[a-z].*\S)", file.read_text(), re.M | re.I
            )
            found.update(lines)
    return sorted(found) or package["authors"] or [f"The authors of {package['name']}"]


def licence(package: dict) -> str:
    """Returns the licence under which the crate is used."""
    alternatives = re.split(r" OR |/", package["license"])
    for name in LICENCES:
        if name in alternatives:
            return LICENCES[name]
    raise SystemExit(f"{package['name']} is under {package['license']}: add it to LICENCES")


def text() -> str:
    """Returns the text of the file."""
    chosen = [word for name in PROGRAMS for word in ("-p", name)]
    tree = cargo("tree", "-e", "normal,no-proc-macro", "--prefix", "none", "-f", "{p}", *chosen)
    linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    packages = json.loads(cargo("metadata", "--format-version", "1"))["packages"]
    packages = [one for one in packages if (one["name"], f"v{one['version']}") in linked]
    # cargo lists versions in ascending order. Its command vendor adds the version to the folders of
    # all but a crate's newest version.
    newest = {package["name"]: package["version"] for package in packages}
    out, used = HEAD, {}
    for package in packages:
        if package["source"] is None:
            continue
        folder = package["name"]
        if newest[folder] != package["version"]:
            folder += f"-{package['version']}"
        used.setdefault(licence(package), package)
        lines = "\n           ".join(holders(package))
        out += f"\nFiles: vendor/{folder}/*\nCopyright: {lines}\nLicense: {licence(package)}\n"
    out += paragraph("Expat", body(TOP / "LICENSE-MIT")) + APACHE
    for name in sorted(used.keys() - {"Expat"}):
        folder = pathlib.Path(used[name]["manifest_path"]).parent
        out += paragraph(name, body(folder / "LICENSE"))
    return out


if sys.argv[1:] == ["--check"]:
    if OUT.read_text() != text():
        raise SystemExit(f"{OUT} is out of date: run packaging/copyright.py")
else:
    OUT.write_text(text())
