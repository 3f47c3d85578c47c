#!/usr/bin/env bash
# Kind "mpi" over every MPI that is tested: Debian's two and those of PyPI (mpi_setup.sh), with one libdtl.so.
#
#     mpi_matrix.sh STAGE [FOLDER [TABLE]]
#
# STAGE: the folder with lib/libdtl.so and bin/dtl-ctk (build/stage). FOLDER: where the MPIs of PyPI are, or
# are to be (build/mpi). TABLE: the file to write (docs/explanation/mpi-matrix.md).
# The environment may say RANKS ("1 2 3 4"), CASES (150) and ONLY (names of the first column; writes no table).
#
# For each MPI: the conformance kit with RANKS ranks, with and without time limits; CASES random cases each way
# with 2 and 3 ranks; mpi_matrix.c compiled with its mpicc, which adopts communicators; the same not linked with
# MPI. A test in tests/mpi/NAME.toml is expected to fail. Fails if anything else does.
set -uo pipefail
stage=$(cd "${1:?usage: mpi_matrix.sh STAGE [FOLDER [TABLE]]}" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
folder=${2:-build/mpi} table=${3:-docs/explanation/mpi-matrix.md}
ranks=${RANKS:-1 2 3 4} cases=${CASES:-150}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$stage/lib
# More ranks than processors, as root: Open MPI 4 and 5 want to be told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
status=0

# name interface launcher library compiler…; a library "-" is found by the launcher.
list() {
    command -v mpirun.openmpi >/dev/null && echo debian-openmpi openmpi mpirun.openmpi - mpicc.openmpi
    command -v mpirun.mpich >/dev/null && echo debian-mpich mpich mpirun.mpich - mpicc.mpich
    tests/full/mpi_setup.sh "$folder" | while read -r name interface launcher library compiler _; do
        [ "$name $interface" = "impi standard" ] && compiler="$compiler -mpi_abi"
        echo "$name-$interface $interface $launcher $library $compiler"
    done
}

# One way with all numbers of ranks: "passed + expected, skipped" and files for the reasons.
kit() { # NAME LAUNCHER [OPTION]
    local name=$1 launcher=$2 n expect=() files=()
    shift 2
    [ -f "tests/mpi/$name.toml" ] && [ "${1-}" = --no-time-limit ] && expect=(--expect "tests/mpi/$name.toml")
    for n in $ranks; do
        files+=("$work/$name$*-$n.json")
        "$stage/bin/dtl-ctk" run --kind mpi --ranks "$n" "$@" --timeout 60s --launcher "$launcher -n {ranks}" \
            --json "${files[-1]}" "${expect[@]}" >"$work/log" 2>&1 || grep FAIL "$work/log" >&2
    done
    python3 - "${files[@]}" <<'PYTHON'
import collections, json, os, sys
count = collections.Counter()
for file in sys.argv[1:]:
    tests = json.load(open(file))["tests"] if os.path.exists(file) else []
    count.update([] if tests else ["fail"])
    for test in tests:
        count[test["outcome"]] += 1
good = f"{count.pop('pass', 0)} passed, {count.pop('skipped', 0)} skipped"
mark = {"expected failure": ""}
rest = [(outcome, number, mark.get(outcome, "**")) for outcome, number in sorted(count.items())]
print(good + "".join(f", {bold}{number} {outcome}{bold}" for outcome, number, bold in rest))
PYTHON
}

random_cases() { # LAUNCHER [OPTION]: how many passed
    local launcher=$1 n passed=0
    shift
    for n in 2 3; do
        if "$stage/bin/dtl-ctk" run --kind mpi --ranks "$n" "$@" --timeout 30s --launcher "$launcher -n {ranks}" \
            --cases "$cases" --max-bytes 1MiB --no-shrink >"$work/log" 2>&1; then
            passed=$((passed + cases))
        else
            tail -n 4 "$work/log" >&2
        fi
    done
    [ $passed -eq $((2 * cases)) ] && echo "$passed" || echo "**$passed of $((2 * cases))**"
}

programs() { # LAUNCHER COMPILER…: sets version, linked, plain
    local launcher=$1 said
    shift
    version="?" linked="**fails**" plain="**fails**"
    if "$@" -std=gnu11 -O1 -I include tests/full/mpi_matrix.c -o "$work/linked" "$stage/lib/libdtl.so" -lm; then
        said=$($launcher -n 3 "$work/linked" 2>"$work/log") || tail -n 3 "$work/log" >&2
        version=$(sed -n 's/^version //p' <<<"$said" | cut -d, -f1 | tr -s '\t ' ' ' | sed 's/Version: //')
        said=$(grep -xE 'world|dup|split' <<<"$said" | paste -sd, | sed 's/,/, /g')
        linked=$said
        [ "$said" = "world, dup, split" ] || linked="**$said**"
    fi
    gcc -std=gnu11 -O1 -DPLAIN -I include tests/full/mpi_matrix.c -o "$work/plain" "$stage/lib/libdtl.so" -lm || return
    [ "$($launcher -n 3 "$work/plain" 2>"$work/log")" = yes ] && plain=yes || tail -n 3 "$work/log" >&2
}

: >"$work/rows"
while read -r name interface launcher library compiler; do
    [ -z "${ONLY-}" ] || [[ " $ONLY " == *" $name "* ]] || continue
    export I_MPI_ROOT=$folder/impi DTL_MPI_LIBRARY=$library
    [ "$library" = - ] && unset DTL_MPI_LIBRARY
    # shellcheck disable=SC2086 # a compiler with an option
    programs "$launcher" $compiler </dev/null
    limited=$(kit "$name" "$launcher" </dev/null)
    direct=$(kit "$name" "$launcher" --no-time-limit </dev/null)
    some=$(random_cases "$launcher" </dev/null) others=$(random_cases "$launcher" --no-time-limit </dev/null)
    row="| $name | $version | $interface | ${launcher##*/} | $limited; $some cases | $direct; $others cases | $linked | $plain |"
    echo "$row" | tee -a "$work/rows"
done < <(list)
grep -qE '\*\*([0-9]* of|[0-9]+ fail|fails)' "$work/rows" && status=1
grep -qE '\| \*\*[a-z, ]*\*\* \|' "$work/rows" && status=1
[ -n "${ONLY-}" ] && exit $status

{
    cat <<END
# Kind mpi over the MPIs that are tested

Written by \`tests/full/mpi_matrix.sh\` on $(date -u +%F): one libdtl.so for all rows, sha256
\`$(sha256sum <"$stage/lib/libdtl.so" | cut -d' ' -f1)\`
(the programs), and one dtl-ctk, sha256 \`$(sha256sum <"$stage/bin/dtl-ctk" | cut -d' ' -f1)\`
(the kit, which has the same library in it). $(nproc) processors, one node.

- With time limits, without: the conformance kit with $(sed 's/ /, /g' <<<"$ranks") ranks, its tests added up, and $cases random
  cases with 2 and 3 ranks each. With time limits messages and collectives are the library's own; without
  they are MPI's.
- Adopted: a program compiled with this MPI's mpicc initialises MPI itself and hands these communicators to
  \`dtl_comm_from_mpi_fint\`, 3 ranks.
- Not linked: a program that has no MPI in it opens kind "mpi", 3 ranks.

| MPI | version | interface | launcher | with time limits | without | adopted | not linked |
|---|---|---|---|---|---|---|---|
END
    cat "$work/rows"
    echo
    echo "## Skipped, and expected to fail"
    python3 - "$work" <<'PYTHON'
import collections, glob, json, sys
reasons = collections.defaultdict(set)
for file in glob.glob(sys.argv[1] + "/*.json"):
    for test in json.load(open(file))["tests"]:
        if test["outcome"] not in ("pass", "fail"):
            text = test["text"].split("(expected: ")[-1].rstrip(")") if test["outcome"] != "skipped" else test["text"]
            text = "" .join(text.split(", there are")[:1])
            reasons[(test["outcome"], text)].add(test["name"])
for (outcome, text), names in sorted(reasons.items()):
    shown = ", ".join(f"`{name}`" for name in sorted(names)) if len(names) < 6 else f"{len(names)} tests"
    print(f"- {outcome}: {text}: {shown}")
PYTHON
} >"$table"
exit $status
