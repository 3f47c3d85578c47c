#!/bin/bash
# A plugin does not link libdtl.so, and uses none of its functions directly.
#
#   links_nothing.sh PLUGIN
set -euo pipefail
if readelf -d "$1" | grep NEEDED | grep libdtl; then echo "FAIL: $1 links libdtl.so"; exit 1; fi
if nm -D --undefined-only "$1" | grep ' dtl_'; then echo "FAIL: $1 uses these functions"; exit 1; fi
nm -D --defined-only "$1" | grep -q ' dtl_plugin_entry_v1$'
