#!/bin/sh
# Runs the program of this rank: rank r runs argument r + 1. Started by a launcher.
rank=${DTL_RANK:-${OMPI_COMM_WORLD_RANK:-$PMI_RANK}}
shift "$rank"
exec $1
