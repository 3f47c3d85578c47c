#!/bin/sh
# mix.sh PROGRAM...: under dtlrun, each rank executes one of the programs, in turn.
shift $((DTL_RANK % $#))
exec "$1"
