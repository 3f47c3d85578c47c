#!/usr/bin/env python3
"""Shows that a commit changes words only: comments, or names by a table.

    tools/same_tokens.py BEFORE AFTER               the tokens of every Rust file are the same
    tools/same_tokens.py BEFORE AFTER --names FILE  ... once the names of FILE are replaced
    tools/same_tokens.py --self-test                checks this program

BEFORE and AFTER are commits; AFTER may be "." for the working tree. Comments and doc comments are not
tokens. A string literal is compared by its value, so that a continued line may be broken elsewhere.
Commas and braces that rustfmt adds where it breaks a line do not count. A file that was moved is found by git's detection of renames. Each line of FILE has an old name and a new
one; a path in it (`a/b.rs c/d.rs`) says that a file was moved where git does not see it.

Exit status: 0 the same, 1 different (each file's first difference is printed), 2 usage.
"""
import re
import subprocess
import sys

TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>//[^\n]*|/\*)
  | (?P<raw>(?:br|cr|r)(?P<hashes>\#*)")
  | (?P<string>[bc]?"(?:\\.|[^"\\])*")
  | (?P<char>b?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^\\'])')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<name>(?:r\#)?[A-Za-z_]\w*)
  | (?P<number>\d[\w]*(?:\.\d[\w]*)?(?:[eE][+-]?\d+)?)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(text, places=None):
    """The tokens of a Rust source, each with the number of its line; `places` gets their ranges."""
    found = []
    at, line, counted = 0, 1, 0
    while at < len(text):
        match = TOKEN.match(text, at)
        line += text.count("\n", counted, at)
        counted = at
        at = match.end()
        kind = match.lastgroup if match.lastgroup != "hashes" else "raw"
        if kind == "space" or (kind == "comment" and match.group() != "/*"):
            continue
        if kind == "comment":
            depth = 1
            while depth and at < len(text):
                step = re.compile(r"/\*|\*/").search(text, at)
                at = step.end() if step else len(text)
                depth += 1 if step and step.group() == "/*" else -1
            continue
        word = match.group()
        if match.group("raw"):
            end = text.index('"' + match.group("hashes"), at) + 1 + len(match.group("hashes"))
            word += text[at:end]
            at = end
        elif kind == "string":
            word = re.sub(r"\\\n\s*", "", word)
        # A longer line gets a trailing comma where it is broken.
        if word in (")", "]", "}", ">") and found and found[-1][0] == ",":
            found.pop()
        found.append((word, line))
        if places is not None:
            places.append((match.start(), at))
    return found


def normal(text):
    """The source without comments, formatted without a limit: so braces that a long line needed go."""
    places = []
    tokens(text, places)
    bare, last = "", 0
    for begin, end in places:
        bare += (" " if begin > last else "") + text[begin:end]
        last = end
    width = "max_width=1000000,use_small_heuristics=Max"
    command = ["rustfmt", "--edition", "2024", "--config", width]
    done = subprocess.run(command, input=bare, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else bare


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def read(commit, path):
    if commit == ".":
        with open(path, encoding="utf8") as file:
            return file.read()
    return git("show", f"{commit}:{path}")


def pairs(before, after, moved):
    """The changed Rust files: (path before, path after), None where there is none."""
    range_ = [before] if after == "." else [before, after]
    for line in git("diff", "--name-status", "-M40%", *range_).splitlines():
        status, *paths = line.split("\t")
        if not paths[-1].endswith(".rs"):
            continue
        if status[0] == "R":
            yield paths[0], paths[1]
        elif status[0] == "D":
            if paths[0] not in moved:
                yield paths[0], None
        elif status[0] == "A":
            old = [old for old, new in moved.items() if new == paths[0]]
            yield (old[0] if old else None), paths[0]
        else:
            yield paths[0], paths[0]


def difference(old, new, names):
    """The first difference of two sources, as a text; None if there is none."""
    left = [(names.get(word, word), line) for word, line in tokens(old)]
    right = tokens(new)
    for (a, line_a), (b, line_b) in zip(left, right):
        if a != b:
            return f"line {line_a} has {a!r}, line {line_b} {b!r}"
    if len(left) != len(right):
        return f"{len(left)} tokens before, {len(right)} after"
    return None


def self_test():
    same = [
        ("fn a() {} // x", "/// y\nfn a() {\n}"),
        ('f("a \\\n    b")', 'f("a b")'),
        ("/* a /* b */ c */ x", "x"),
        ("f(a, b)", "f(\n    a,\n    b,\n)"),
        ("x('a', 'b, r#\"// no\"#)", "x('a', 'b, r#\"// no\"#) // no"),
    ]
    different = [("fn a()", "fn b()"), ('f("// a")', 'f("// b")'), ("x(1.5)", "x(1.6)"), ("x", "x y")]
    for old, new in same:
        assert difference(old, new, {}) is None, (old, new, difference(old, new, {}))
    for old, new in different:
        assert difference(old, new, {}) is not None, (old, new)
    assert difference("fn a()", "fn b()", {"a": "b"}) is None
    assert difference("fn a(b: A)", "fn b(a: A)", {"a": "b"}) is not None


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
        return 0
    names, moved = {}, {}
    if len(arguments) == 4 and arguments[2] == "--names":
        with open(arguments[3], encoding="utf8") as file:
            for line in file:
                words = line.split("#")[0].split()
                if len(words) == 2:
                    (moved if "/" in words[0] else names)[words[0]] = words[1]
    elif len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    before, after = arguments[:2]
    differences = 0
    for old, new in pairs(before, after, moved):
        if old is None or new is None:
            found = "exists only " + ("before" if new is None else "after")
        else:
            texts = read(before, old), read(after, new)
            found = difference(*texts, names)
            if found and difference(*map(normal, texts), names) is None:
                found = None
        if found:
            differences += 1
            print(f"{new or old}: {found}")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
