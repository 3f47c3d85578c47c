#!/usr/bin/env bash
# Kind "mpi" under one MPI's launcher, by the conformance kit, in its two ways: with time limits (messages and
# collectives are the library's own) and without (they are MPI's). Named tests, then random cases of all
# operations.
#
#     kit.sh DTL_CTK RANKS CASES PATTERNS COMMAND…     COMMAND: the launcher; {ranks} is their number
#
# PATTERNS: of dtl-ctk --only; "all" for all tests. DTL_MPI_LIBRARY names the library if the launcher does not
# tell which it is. Prints the summaries; fails if anything fails.
set -uo pipefail
ctk=$1 ranks=$2 cases=$3 patterns=$4
shift 4
# More ranks than processors, as root: Open MPI 4 and 5 want to be told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

only=()
[ "$patterns" = all ] || only=(--only "$patterns")
status=0
for limit in "" --no-time-limit; do
    echo "${limit:---with-time-limits}:"
    # shellcheck disable=SC2086 # no word if empty
    "$ctk" run --kind mpi --ranks "$ranks" $limit --timeout 60s --launcher "$*" "${only[@]}" || status=1
    [ "$cases" -eq 0 ] && continue
    # shellcheck disable=SC2086 # no word if empty
    "$ctk" run --kind mpi --ranks "$ranks" $limit --timeout 60s --launcher "$*" --cases "$cases" \
        --max-bytes 1MiB || status=1
done
exit $status
