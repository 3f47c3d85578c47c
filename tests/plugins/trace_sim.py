#!/usr/bin/env python3
"""Runs heat_gpu traced, and checks that the work of its streams is in the trace of every rank.

    trace_sim.py DTLRUN HEAT_GPU STEPS    environment: DTL_PLUGIN_PATH, DTL_BACKEND

Each rank launches its kernel twice in each step. The launches are spans named after the kernel, on
the track of the only stream, in the group of device 0; spans of a track do not overlap.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RANKS = 3


def check(path, rank, steps):
    """Returns the texts of what is wrong with the trace of a rank."""
    events = json.loads(path.read_text())
    groups = [event for event in events if event.get("name") == "process_name"]
    group = f"rank {rank}: sim device 0"
    ids = [event["pid"] for event in groups if event["args"]["name"] == group]
    if len(ids) != 1:
        return [f"{len(ids)} groups are named \"{group}\": {[event['args'] for event in groups]}"]
    wrong = []
    tracks = {event["tid"]: event["args"]["name"] for event in events
              if event.get("name") == "thread_name" and event["pid"] == ids[0]}
    if list(tracks.values()) != ["stream 0"]:
        wrong.append(f"the tracks of the device are {list(tracks.values())}, not [\"stream 0\"]")
    spans = sorted((event["ts"], event["dur"], event["cat"], event["name"]) for event in events
                   if event["ph"] == "X" and event["pid"] == ids[0])
    kernels = [span for span in spans if span[2:] == ("kernel", "heat")]
    if len(kernels) != 2 * steps:
        wrong.append(f"{len(kernels)} launches of \"heat\" instead of {2 * steps}")
    for before, after in zip(spans, spans[1:]):
        # A thousandth of a microsecond: times are written with three digits.
        if before[0] + before[1] > after[0] + 0.0015:
            wrong.append(f"{before} overlaps {after}")
    calls = [event["ts"] for event in events if event.get("name") == "dtl_kernel_launch"]
    if kernels and not min(calls) <= kernels[0][0] <= kernels[-1][0]:
        wrong.append(f"a kernel began before its launch: {kernels[0]}, {min(calls)}")
    return wrong


def main(dtlrun, program, steps):
    """Runs the program on three ranks. Returns the exit status."""
    with tempfile.TemporaryDirectory(prefix="dtl-trace-") as folder:
        traces = [pathlib.Path(folder) / f"trace.{rank}.json" for rank in range(RANKS)]
        env = dict(os.environ, DTL_COMM="shm", DTL_TRACE=f"{folder}/trace.json")
        subprocess.run([dtlrun, "-n", str(RANKS), program, "24", str(steps)], env=env, check=True)
        failed = 0
        for rank, path in enumerate(traces):
            for text in check(path, rank, steps):
                print(f"FAIL rank {rank}: {text}")
                failed = 1
    print("FAIL" if failed else f"PASS {RANKS} ranks, {2 * steps} launches on each")
    return failed


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
