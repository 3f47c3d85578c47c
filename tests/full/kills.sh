#!/usr/bin/env bash
# Kills ranks at random moments in thousands of jobs; tests/c/test_random_kills.c lists what is checked. A job
# takes about a second, so this is not part of ./run test, which runs a short form of six jobs.
#
# Usage: kills.sh BUILD [JOBS [SEED]]      fails if any job has a fault
set -u

build=$1 jobs=${2:-2000} seed=${3:-$(date +%s)}
DTL_TEST_DTLRUN=$build/stage/bin/dtlrun exec "$build/tests/bin/tests/c/test_random_kills.gcc-c11" "$jobs" "$seed"
