#!/bin/bash
# All planted faults of tests/mutants, each to be caught by the test of dtl-ctk that names it (CTest plants some
# of them). Some minutes. Not part of CTest.
#
#   mutants.sh BUILD [PATTERN]     BUILD is CMake's build folder
exec "$(dirname "$0")/../mutants/run.sh" "$@"
