"""Follows a buffer from an entry of the library to where it is copied, in what callgrind recorded.

walks.py FILE ENTRY [BUDGET_FILES BUDGET_CLIMBS]: reads the calls of FILE (callgrind, debug build)
and prints the source files that the buffer passes, and each call from a layer into a higher one.
The buffer passes a function on a chain of calls from ENTRY to the copy, and one called from such a
function that has a parameter of a type that holds the buffer (checks, lookups of its memory).
Fails where a budget is exceeded.
"""

import re
import sys
from collections import defaultdict
from functools import cache

LAYERS = ("ffi", "runtime", "backend", "sys")
COPY = re.compile(r"^dtl::sys::(\w+::)*buf::\w+::copy_from$")
ESCAPES = {
    "$LT$": "<",
    "$GT$": ">",
    "$RF$": "&",
    "$BP$": "*",
    "$C$": ",",
    "$u20$": " ",
    "$u7b$": "{",
    "$u7d$": "}",
}
HOLDS_BUFFER = re.compile(r"\b(Region|Addr|Data|Bytes|Located|Staged|BufferPath|c_void)\b")


def read(path):
    """What each function called while the recording was on, and the source file of each."""
    names, called, files = {}, defaultdict(set), {}

    def named(kind, text):
        number, _, name = text.partition(" ")
        return names.setdefault((kind, number), name) if name else names[kind, number]

    file = caller = callee = callee_file = None
    is_cost_of_call = False
    for line in open(path, encoding="utf-8"):
        key, _, value = line.rstrip("\n").partition("=")
        if key in ("fl", "fi", "fe"):
            name = named("file", value)
            file = name if key == "fl" else file
        elif key == "fn":
            caller = named("function", value)
            files[caller] = file
        elif key in ("cfi", "cfl"):
            callee_file = named("file", value)
        elif key == "cfn":
            callee = named("function", value)
            files.setdefault(callee, callee_file or file)
        elif key == "calls":
            is_cost_of_call = True
        elif is_cost_of_call:
            # Calls are counted from the start of the program, instructions where recording is on.
            if int(line.split()[1]) > 0:
                called[caller].add(callee)
            is_cost_of_call, callee_file = False, None
    return called, files


@cache
def plain(symbol):
    """The path of a function without the hash that tells apart what one generic was compiled to."""
    if not symbol.startswith("_ZN"):
        return symbol
    parts, at = [], 3
    while length := re.match(r"\d+", symbol[at:]):
        at += length.end()
        parts.append(symbol[at : at + int(length[0])])
        at += int(length[0])
    text = "::".join(part.removeprefix("_") for part in parts[:-1]).replace("..", "::")
    for escape, character in ESCAPES.items():
        text = text.replace(escape, character)
    return text


def reach(starts, edges):
    found, todo = set(starts), list(starts)
    while todo:
        new = edges[todo.pop()] - found
        found |= new
        todo += new
    return found


@cache
def source(path):
    try:
        return open(path, encoding="utf-8").read()
    except OSError:
        return ""


def takes_buffer(function, path):
    name = plain(function).split("::")[-1]
    signatures = re.findall(r"\bfn %s\b(.*?)(?:\{|;)\n" % re.escape(name), source(path), re.S)
    return any(HOLDS_BUFFER.search(text.split("->")[0]) for text in signatures)


def main(path, entry, *budgets):
    called, files = read(path)
    callers = defaultdict(set)
    for caller, callees in called.items():
        for callee in callees:
            callers[callee].add(caller)
    copies = [function for function in files if COPY.match(plain(function))]
    chain = reach([entry], called) & reach(copies, callers)
    if not chain:
        sys.exit(f"{entry}: no chain of calls to {COPY.pattern}")
    passed, todo = set(chain), list(chain)
    while todo:
        for callee in called[todo.pop()] - passed:
            if takes_buffer(callee, files[callee] or ""):
                passed.add(callee)
                todo.append(callee)

    def own(function):
        found = re.search(r"(?:^|/)src/((?:%s)/.*)" % "|".join(LAYERS), files[function] or "")
        return found and found[1]

    def layer(file):
        return LAYERS.index(file.split("/")[0])

    def next_own(function):
        """What it calls of the library, directly or through the standard library."""
        found, todo = set(), called[function] & passed
        seen = set(todo)
        while todo:
            callee = todo.pop()
            if own(callee):
                found.add(callee)
            else:
                todo |= called[callee] & passed - seen
                seen |= todo
        return found

    walk = {own(function) for function in passed if own(function)}
    climbs = {
        (own(function), own(callee))
        for function in passed
        if own(function)
        for callee in next_own(function)
        if layer(own(callee)) < layer(own(function))
    }
    print(f"{entry}: {len(walk)} files, {len(climbs)} climbs")
    for file in sorted(walk, key=lambda file: (layer(file), file)):
        functions = (plain(function) for function in passed if own(function) == file)
        names = {name.replace("::{{closure}}", "").split("::")[-1] for name in functions}
        print(f"  {file}: {' '.join(sorted(names))}")
    for climb in sorted(climbs):
        print("  climbs: {} -> {}".format(*climb))
    if budgets and (len(walk) > int(budgets[0]) or len(climbs) > int(budgets[1])):
        sys.exit(f"{entry}: at most {budgets[0]} files and {budgets[1]} climbs are accepted")


main(*sys.argv[1:])
