#!/usr/bin/env bash
# Backend "opencl" over several OpenCL drivers: Debian's PoCL, the PoCL and Intel's CPU runtime of PyPI, each alone and two
# of them beside each other; and over two loaders. Prints the table of docs/how-to/use-opencl.md. Some minutes.
#
#     opencl.sh BUILD [FOLDER]    FOLDER: where the packages of PyPI are, or are to be (BUILD/opencl; 1.5 GB)
#
# For each row: the conformance kit, the kernels of tests/c/test_opencl_modules.c if there are two devices, and the
# driver's name for its device. Fails if a test fails, or a row has fewer devices than drivers.
set -uo pipefail
build=$(cd "${1:?usage: opencl.sh BUILD [FOLDER]}" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "${2:-$build/opencl}" && folder=$(cd "${2:-$build/opencl}" && pwd) || exit 2
stage=$build/stage
[ -e /etc/OpenCL/vendors/pocl.icd ] || { echo "skipped: PoCL is not installed (tools/setup.sh test)"; exit 77; }
if ! [ -e "$folder/venv/installed" ]; then
    { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install -q --only-binary :all: pocl-binary-distribution==3.0 \
        intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0 && touch "$folder/venv/installed"; } >&2 ||
        { echo "skipped: the packages could not be had from PyPI"; exit 77; }
fi
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
status=0

# The files *.icd of the packages name places of the machine that built them.
intel=$folder/venv/lib/libintelocl.so
declare -A drivers=([debian]=$(cat /etc/OpenCL/vendors/pocl.icd) [intel]=$intel
                    [pypi]=$(find "$folder/venv/lib" -name 'libpocl-*.so'))
row() { # "DRIVER..." LOADER
    local icd=$work/icd driver count=0 result modules="one device" name
    local -x OCL_ICD_VENDORS=$icd LD_LIBRARY_PATH=
    # Intel's loader needs libraries beside it.
    [ "$2" = Debian ] || LD_LIBRARY_PATH=$folder/venv/lib
    rm -rf "$icd" && mkdir "$icd"
    for driver in $1; do echo "${drivers[$driver]}" >"$icd/$driver.icd" && count=$((count + 1)); done
    name=$("$stage/bin/dtl-info" --json | python3 -c '
import json, sys
devices = [d for b in json.load(sys.stdin)["backends"] if b["name"] == "opencl" for d in b["devices"]]
print("; ".join(device["name"] for device in devices) if len(devices) == int(sys.argv[1]) else "**missing**")' $count)
    [ -n "$name" ] || name="**missing**"
    [ "$name" != "**missing**" ] || status=1
    "$stage/bin/dtl-ctk" run --backend opencl --json "$work/json" >"$work/log" 2>&1 || { status=1; grep FAIL "$work/log" >&2; }
    result=$(python3 -c '
import collections, json, sys
count = collections.Counter(test["outcome"] for test in json.load(open(sys.argv[1]))["tests"])
print(", ".join(f"{number} {outcome}" for outcome, number in sorted(count.items())))' "$work/json")
    if [ $count -gt 1 ]; then
        modules=pass
        "$build/tests/bin/tests/c/test_opencl_modules.gcc-c11" "$PWD" >"$work/log" 2>&1 ||
            { status=1 modules="**fail**"; tail -n 3 "$work/log" >&2; }
    fi
    echo "| $name | $2 | $result | $modules |"
}

echo "| devices | loader | conformance kit | kernels |"
echo "|---|---|---|---|"
row debian Debian
row pypi Debian
row intel Debian
row intel Intel
row "intel debian" Debian
row "intel pypi" Debian
exit $status
