#!/usr/bin/env python3
"""Compares a plugin with a built-in backend: the conformance kit passes the same tests with both, and
skips the same tests for the same reasons.

    same_tests.py DTL-CTK BACKEND PLUGIN
"""
import json
import pathlib
import subprocess
import sys
import tempfile

# Allowed differences: the name of a test, and the reason.
ALLOWED = {
    "device.slots.each_returns": "a built-in backend has no table whose slots the kit could call",
    "memory.slots.each_returns": "a built-in backend has no table whose slots the kit could call",
    "transfer.slots.each_returns": "a built-in backend has no table whose slots the kit could call",
    "exec.slots.each_returns": "a built-in backend has no table whose slots the kit could call",
}
UNAVAILABLE = 3
SKIPPED = 77


def outcomes(kit, *selection):
    """Runs the kit. Returns the outcome of each test and its reason, and the exit status."""
    with tempfile.TemporaryDirectory(prefix="dtl-same-") as folder:
        path = pathlib.Path(folder) / "tests.json"
        command = [kit, "run", *selection, "--component", "abi,device,memory,transfer,exec"]
        print(" ".join(command), flush=True)
        status = subprocess.run([*command, "--json", str(path)], check=False).returncode
        tests = json.loads(path.read_text())["tests"] if path.exists() else []
    return {test["name"]: (test["outcome"], test["text"]) for test in tests}, status


def main(kit, backend, plugin):
    """Returns the exit status."""
    builtin, status = outcomes(kit, "--backend", backend)
    if status == UNAVAILABLE:
        print(f"skipped: backend {backend} cannot run here")
        return SKIPPED
    other, other_status = outcomes(kit, "--plugin", plugin)
    wrong = []
    if status or other_status:
        wrong.append(f"the kit ended with {status} and {other_status}")
    if sum(outcome == "pass" for outcome, _ in other.values()) < 100:
        wrong.append("fewer than 100 tests passed")
    for name in sorted(builtin.keys() | other.keys()):
        differs = builtin.get(name) != other.get(name)
        if differs and name not in ALLOWED:
            wrong.append(f"{name}: {backend} {builtin.get(name)}, plugin {other.get(name)}")
        if not differs and name in ALLOWED:
            wrong.append(f"{name} no longer differs: remove it from ALLOWED")
    for text in wrong:
        print(f"FAIL {text}")
    print("FAIL" if wrong else f"PASS {len(other)} tests")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
