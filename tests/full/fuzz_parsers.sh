#!/bin/bash
# The long run of the fuzzer of what reads foreign bytes: each target of tests/fuzz/parsers for 15 minutes, two and a
# quarter hours in all. Not part of ./run test, which has a short run. The last result is in docs/explanation/security.md.
#
#   fuzz_parsers.sh [SECONDS=900] [TARGET...]
set -u
case "${1:-}" in [0-9]*) ;; *) set -- 900 "$@" ;; esac
exec "$(dirname "$0")/../fuzz/parsers/run.sh" "$@"
