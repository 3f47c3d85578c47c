#!/bin/sh
# Writes the header of a table that dtl-header generates.
#     table.sh TABLE FILE CARGO...   TABLE is calls or cases, CARGO the command that builds and runs dtl-header
# DTL_TEST_HEADER in the environment names a dtl-header that is built already, which `./run test` has.
set -eu
table=$1 file=$2
shift 2
if [ -n "${DTL_TEST_HEADER:-}" ]; then set -- "$DTL_TEST_HEADER"; fi
exec "$@" "--$table" "$file"
