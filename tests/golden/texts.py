#!/usr/bin/env python3
# Golden error texts: runs the C and C++ tests of a build with recorder.c preloaded and compares the error
# texts and the lines of dtl_explain that they meet with texts.txt. Takes minutes.
#
#   texts.py BUILD             compares; fails if a text is gone or new
#   texts.py BUILD --write     runs the tests twice and writes texts.txt
#   texts.py BUILD -R REGEX    only the tests of that name; texts that are gone are not reported
#
# A line of texts.txt begins with "=", or with "?" for a text that not every run meets. Then "error: " and the
# text of a call that failed, or "explain: " and a line of dtl_explain as it is at the end of a process. Numbers,
# addresses, paths and names of the machine are replaced. BUILD is a build folder of CMake whose tests are
# built (-DDTL_BUILD_TESTS=ON).
import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent
GOLDEN = HERE / "texts.txt"
TESTS = r"^tests/(c|cpp|mpi)/"
# Linked statically, so that nothing can stand before the library's functions, or slow; and tests that count
# what a process does or limit what it may use, where the recorder itself is seen.
EXCLUDED = r"clang|cpp17|valgrind|torch|test_(comm_places|module_cache|rdma_config|rdma_faults)"


def wrappers():
    """A C wrapper for each function of dtl.h that returns a status."""
    header = (HERE / "dtl.h.txt").read_text()
    found = re.findall(r"^DTL_NODISCARD dtl_status_t (dtl_\w+)\(([^;]*?)\);", header, re.M | re.S)
    for name, parameters in found:
        parameters = " ".join(parameters.split())
        names = [] if parameters == "void" else [re.findall(r"\w+", one)[-1] for one in parameters.split(",")]
        call = f"ended(real({', '.join(names)}))"
        after = ""
        if name == "dtl_explain":
            after = f"    if (recorded_ == DTL_SUCCESS && {names[0]}) record_explained({names[0]});\n"
        yield (
            f"dtl_status_t {name}({parameters})\n{{\n"
            f"    static dtl_status_t (*_Atomic real)({parameters});\n"
            f"    if (!real) *(void **)&real = next(\"{name}\");\n"
            f"    dtl_status_t recorded_ = {call};\n{after}    return recorded_;\n}}\n"
        )


def compiled(folder):
    code, library = folder / "wrappers.h", folder / "recorder.so"
    code.write_text("".join(wrappers()))
    command = [os.environ.get("CC", "cc"), "-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-w"]
    command += ["-I", TOP / "include", f'-DWRAPPERS="{code}"', HERE / "recorder.c", "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    return library


def normal(text, build):
    for path, name in ((str(build), "BUILD"), (str(TOP), "SOURCE"), (socket.gethostname(), "HOST")):
        # The recorder has replaced the digits.
        text = text.replace(re.sub(r"\d+", "N", path), name)
    text = re.sub(r"/(tmp|home|root|dev/shm)/[^\s\"',:;)]+", "PATH", text)
    text = re.sub(r"\b(?=[a-f]*N)(?=[aN-]*[a-f])[a-fN-]{6,}\b", "HEX", text)
    text = re.sub(r"(.)\1{15,}", r"\1...", text)
    text = re.sub(r"N(\.N)+", "N", text)
    text = re.sub(r"\bN (ns|us|ms|s|min)\b", "N s", text)
    text = re.sub(r"\bN(, N)+( and N)?\b", "N, ...", text)
    return text.rstrip()


def run(options, recorder, folder, number):
    """The texts that one run of the tests meets."""
    file = folder / f"texts.{number}"
    command = ["ctest", "-R", options.tests or TESTS, "-E", EXCLUDED, "-j", str(options.jobs)]
    environment = dict(os.environ, LD_PRELOAD=str(recorder), RECORDED_TEXTS=str(file))
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"):
        environment[name] = "1"
    done = subprocess.run(command, cwd=options.build, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        sys.exit("tests failed: their texts are not complete")
    lines = file.read_bytes().decode(errors="replace").splitlines()
    return {normal(line, options.build) for line in lines}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--write", action="store_true")
    parser.add_argument("-R", dest="tests", help="only the tests with such names")
    parser.add_argument("-j", dest="jobs", type=int, default=2 * (os.cpu_count() or 1))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        recorder = compiled(folder)
        texts = [run(options, recorder, folder, number) for number in range(2 if options.write else 1)]
    always, ever = set.intersection(*texts), set.union(*texts)
    if options.write:
        lines = sorted(f"= {text}" for text in always) + sorted(f"? {text}" for text in ever - always)
        GOLDEN.write_text("".join(f"{line}\n" for line in lines))
        print(f"{GOLDEN.name}: {len(always)} texts, and {len(ever - always)} that not every run meets")
        return
    recorded = GOLDEN.read_text().splitlines()
    gone = set() if options.tests else {line[2:] for line in recorded if line.startswith("= ")} - ever
    new = ever - {line[2:] for line in recorded}
    for text in sorted(gone):
        print(f"gone: {text}")
    for text in sorted(new):
        print(f"new:  {text}")
    if gone or new:
        sys.exit("tests/golden/texts.txt: --write accepts a change that is meant")
    print(f"{len(ever)} texts as recorded")


main()
