#!/usr/bin/env python3
"""Pages with a fault, each of which run.py must refuse; and one without, which it must accept.

    tests/tutorial/refused.py    exit status 1 if one passes that must not
"""
import pathlib
import subprocess
import sys
import tempfile

SH = "```sh\n{}\n```\n"
TEXT = "```text\n{}\n```\n"
PAGES = {
    "output": SH.format("echo one") + TEXT.format("two"),
    "missing line": SH.format("echo one") + TEXT.format("one\ntwo"),
    "command": SH.format("false") + SH.format("true"),
    "no failure": "<!-- fails -->\n" + SH.format("true"),
    "diff": SH.format("echo one") + "```diff\ntwo\n```\n",
    "file": "```c a.c\nint x;\n```\n" + SH.format("grep -q y a.c"),
    "no commands": "text\n",
    "count": SH.format("echo 7 passed, 1 failed") + "<!-- counts vary -->\n" + TEXT.format("9 passed, 0 failed"),
    "time only": SH.format("echo 3 ms") + TEXT.format("3 m"),
}
GOOD = ("```c a/b.c\nint x;\n```\n" + SH.format("export A=3; cd a; f() { echo $A; }") + SH.format("f; echo 0.5 s; cat b.c")
        + TEXT.format("3   1.25 s\nin...;") + SH.format("echo 1; echo 2; echo 3") + TEXT.format("1\n...\n3")
        + "<!-- fails -->\n" + SH.format("echo no; false") + TEXT.format("no")
        + "<!-- any order -->\n" + "```sh\nprintf '2\\n1\\n'\n```\n" + "<!-- any order -->\n" + TEXT.format("1\n2")
        + SH.format("echo 7 passed, 0 failed") + "<!-- counts vary -->\n" + TEXT.format("9 passed, 0 failed")
        + "<!-- not run: shown only -->\n" + SH.format("false"))


def main():
    """Runs run.py on each page."""
    script = pathlib.Path(__file__).with_name("run.py")
    with tempfile.TemporaryDirectory(prefix="dtl-tutorial-") as folder:
        page = pathlib.Path(folder) / "page.md"
        wrong = 0
        for name, text, passes in [*((n, t, False) for n, t in PAGES.items()), ("good", GOOD, True)]:
            page.write_text(text)
            command = [sys.executable, script, folder, page]
            done = subprocess.run(command, text=True, capture_output=True, check=False)
            if (done.returncode == 0) != passes:
                wrong += 1
                print(f"FAIL {name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{len(PAGES)} pages with a fault: {len(PAGES) - wrong} refused")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
