#!/usr/bin/env python3
"""Runs a tutorial exactly as printed, in an empty home folder, against an installed libdtl.

    tests/tutorial/run.py BUILD_DIR PAGE...    exit status 1 if a page fails, 77 if a part is skipped

What a page may contain:

    ```c jacobi.c      a block with a file name writes that file (any language)
    ```sh              commands; run by bash -e as one session, with $HOME/dtl installed from BUILD_DIR
    ```text            directly after an sh block: what it prints (also ```diff, ```json, ```toml)

In expected output, "..." stands for any text, also of several lines. Times ("0.05 s", "3.2 us") and
the number of spaces are not compared, nor line breaks, so a long line may be shown in several.
Comments in the line above a block:

    <!-- fails -->              the last command must fail
    <!-- needs: mpicc /a/b -->  skipped if a program or file of the list is not installed
    <!-- any order -->          the lines of the output come in any order
    <!-- counts vary -->        numbers that are not 0 are not compared
    <!-- not run: REASON -->    shown only

A page with <!-- after: OTHER.md --> continues that page, which is run first.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT_S = 600
OUTPUTS = ("text", "diff", "json", "toml")
TIME = re.compile(r"\b\d+(\.\d+)? ?(ns|us|ms|s|GB/s)\b")
COUNT = re.compile(r"\b[1-9]\d*\b")


class Block:
    """A fenced block: language, file name, notes above it, lines."""

    def __init__(self, number, info, notes):
        self.number, self.notes, self.lines = number, notes, []
        words = info.split()
        self.language = words[0] if words else ""
        self.file = words[1] if len(words) > 1 else None
        self.follows = None

    def note(self, name):
        """Returns the value of a note, "" for a note without one, None if it is absent."""
        for note in self.notes:
            key, _, value = note.partition(":")
            if key.strip() == name:
                return value.strip()
        return None


def blocks(text):
    """Returns the blocks of a page. `follows` of an output block is the block above it."""
    found, block, notes, before = [], None, [], None
    for number, line in enumerate(text.splitlines(), 1):
        comment = re.fullmatch(r"<!-- (.*) -->", line)
        if block is not None:
            if line == "```":
                found.append(block)
                before, block, notes = block, None, []
            else:
                block.lines.append(line)
        elif line.startswith("```"):
            block = Block(number, line[3:], notes)
            if block.language in OUTPUTS and block.file is None:
                block.follows = before
        elif comment:
            notes.append(comment.group(1))
        elif line.strip():
            notes, before = [], None
    return found


def plain(text, counts):
    """Returns a text without what may vary: times, line breaks, spaces, counts if `counts`."""
    text = TIME.sub("TIME", " ".join(text.split()))
    return COUNT.sub("N", text) if counts else text


def agrees(expected, printed, counts):
    """Compares lists of lines; "..." as described at the top."""
    pieces = (plain(piece, counts) for piece in " ".join(expected).split("..."))
    pattern = ".*".join(re.escape(piece) for piece in pieces)
    return re.fullmatch(pattern, plain(" ".join(printed), counts)) is not None


class Page:
    """A tutorial and the session that its commands run in."""

    def __init__(self, path, prefix, work):
        self.path, self.work, self.skipped = path, work, []
        self.home = work / "home"
        self.home.mkdir(mode=0o700, parents=True)
        (self.home / "dtl").symlink_to(prefix)
        self.state = work / "state.sh"
        self.state.write_text(f"cd {self.home}\n")
        # The variables of a reader, who has a cache of his own and may be root in a container.
        kept = ("PATH", "LANG", "LC_ALL", "TMPDIR", "CMAKE_GENERATOR", "LD_LIBRARY_PATH")
        self.env = {name: os.environ[name] for name in kept if name in os.environ}
        self.env.update(HOME=str(self.home), OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1")

    def fail(self, block, text):
        print(f"FAIL {self.path}:{block.number}: {text}")
        return False

    def write(self, block):
        """Writes the file of a block."""
        file = self.home / block.file
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(block.lines) + "\n")

    def run(self, block):
        """Runs the commands of a block. Returns its output, or None if it failed."""
        script = self.work / "block.sh"
        script.write_text(f'. "{self.state}"\n'
                          f"trap '{{ export -p; declare -f; umask -p; echo cd \"$PWD\"; }} >\"{self.state}\"' EXIT\n"
                          + "\n".join(block.lines) + "\n")
        try:
            done = subprocess.run(["bash", "-e", script], env=self.env, timeout=LIMIT_S, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired as late:
            self.fail(block, f"not done after {LIMIT_S} s\n{late.stdout}")
            return None
        if (done.returncode != 0) != (block.note("fails") is not None):
            self.fail(block, f"exit status {done.returncode}\n{done.stdout}")
            return None
        return done.stdout.splitlines()

    def missing(self, block):
        """Returns the programs and files that a block needs and that are not installed."""
        needed = (block.note("needs") or "").split()
        return [name for name in needed if not os.path.exists(name) and not shutil.which(name)]

    def check(self):
        """Goes through the page. Returns False at the first block that fails."""
        text, printed, runs = self.path.read_text(), {}, 0
        before = re.search(r"^<!-- after: (.*) -->$", text, re.M)
        if before is not None:
            page, self.path = self.path, self.path.with_name(before.group(1))
            if not self.check():
                return False
            self.path = page
        for block in blocks(text):
            if block.note("not run") is not None:
                continue
            if block.file is not None:
                self.write(block)
            elif block.language == "sh":
                if self.missing(block):
                    self.skipped.append(f"{self.path.name}: {' '.join(self.missing(block))}")
                    continue
                output = self.run(block)
                if output is None:
                    return False
                printed[block.number], runs = output, runs + 1
            elif block.follows is not None and block.follows.number in printed:
                output = printed[block.follows.number]
                wanted = block.lines
                if block.note("any order") is not None:
                    output, wanted = sorted(output), sorted(wanted)
                if not agrees(wanted, output, block.note("counts vary") is not None):
                    text = "\n".join(["it prints something else:", *output, "instead of:", *wanted])
                    return self.fail(block, text)
        if runs == 0:
            print(f"FAIL {self.path}: no commands; is this the right page?")
            return False
        print(f"PASS {self.path.name}: {runs} blocks of commands")
        return True


def main(build, *pages):
    """Installs the build into a prefix, then runs the pages."""
    with tempfile.TemporaryDirectory(prefix="dtl-tutorial-") as folder:
        work = pathlib.Path(folder)
        prefix = work / "prefix"
        if (pathlib.Path(build) / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "--install", build, "--prefix", prefix], check=True,
                           stdout=subprocess.DEVNULL)
        else:
            prefix = pathlib.Path(build).resolve()
        good, skipped = True, []
        for number, name in enumerate(pages):
            page = Page(pathlib.Path(name).resolve(), prefix, work / str(number))
            good = page.check() and good
            skipped += page.skipped
    for line in skipped:
        print(f"skipped: not installed: {line}")
    if not good:
        return 1
    # For CTest, a page of which a block was left out is a skipped test. The lines above say which, and why.
    return 77 if skipped else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
