#!/bin/bash
# Installs the wheel as users do: with pip in a system that has Python but no compiler (a chroot), where two ranks run a
# program; and in a virtual environment, where a C program is built with the installed library.
#     install.sh BUILD PYTHON      needs BUILD/python/dist (wheel.sh) and BUILD/python/wheels (environment.sh)
# Prints "skipped: reason" and ends with 77 where namespaces or wheels are missing.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(cd "$1" && pwd)/python
python=$2
unset PYTHONPATH # the other tests' installation
skip() { echo "skipped: $1"; exit 77; }
unshare -rm true 2>/dev/null || skip "unshare -rm is not allowed here"
ls "$work"/wheels/cffi-*.whl >/dev/null 2>&1 || skip "no $work/wheels (tests/python/environment.sh creates it)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/wheels"
cp "$work"/wheels/*.whl "$scratch/wheels"
# auditwheel reports the oldest system on which the wheel runs, and names the wheel after it.
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair -w "$scratch/wheels" "$work"/dist/libdtl-*.whl \
    >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
wheel=$(cd "$scratch/wheels" && ls libdtl-*-manylinux_*.whl)
echo "wheel: $wheel"

# A system with nothing but Python, its library and what both are linked with.
root=$scratch/root
base=$("$python" -c 'import sys; print(sys.base_prefix)')
library=$("$python" -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
program=$(readlink -f "$python")
mkdir -p "$root"/{proc,dev,tmp,job,etc} "$root$base/bin"
cp "$program" "$root$base/bin/python3"
mkdir -p "$root$library"
tar -C "$library" --exclude=test --exclude=__pycache__ --exclude='config-*' -cf - . | tar -C "$root$library" -xf -
if [ -d /usr/share/python-wheels ]; then mkdir -p "$root/usr/share" && cp -r /usr/share/python-wheels "$root/usr/share"; fi
{ ldd "$program"; find "$library" -name '*.so' -exec ldd {} + 2>/dev/null; ldd "$work/prefix/lib/libdtl.so" "$work"/prefix/bin/*; } |
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\// && NF == 2 { print $1 }' | sort -u | while read -r file; do
    case $file in "$work"/*) continue ;; esac
    mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
done
# The rest of the C library, which every system has.
libc=$(ldd "$program" | awk '$1 == "libc.so.6" { print $3 }')
for name in libpthread.so.0 libdl.so.2 librt.so.1; do cp -L "$(dirname "$libc")/$name" "$root$(dirname "$libc")"; done
mv "$scratch/wheels" "$root/wheels"
cat >"$root/job/program.py" <<'END'
import array, shutil
import dtl
assert shutil.which("cc") is None and shutil.which("gcc") is None, "there is a compiler"
comm = dtl.COMM_WORLD
total = array.array("d", [0.0])
comm.allreduce(array.array("d", [comm.rank + 1.0]), total)
print(f"rank {comm.rank} of {comm.size}, kind {comm.kind}: {total[0]:g}", flush=True)
END
cat >"$scratch/inside.sh" <<'END'
set -e
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
inside() { env -i PATH=/env/bin HOME=/tmp "$chroot" "$@"; }
chroot=$(command -v chroot)
inside "$1" "$2/bin/python3" -m venv /env
inside "$1" /env/bin/pip install -q --disable-pip-version-check --no-index --find-links /wheels libdtl
inside "$1" /env/bin/python -m dtl --version
inside "$1" /env/bin/dtlrun -n 2 /env/bin/python /job/program.py
END
unshare -rm bash "$scratch/inside.sh" "$root" "$base" | tee "$scratch/out"
for rank in 0 1; do grep -qx "rank $rank of 2, kind shm: 3" "$scratch/out"; done

# A C program with the installed library, by the compiler alone and by CMake.
"$python" -m venv "$scratch/env"
"$scratch/env/bin/pip" install -q --disable-pip-version-check --no-index --find-links "$root/wheels" libdtl
"$scratch/env/bin/dtl-info" --version
dtl() { "$scratch/env/bin/python" -m dtl "$@"; }
prefix=$(dtl --prefix)
cc "$here/../consumer/consumer.c" -I"$(dtl --include)" -L"$prefix/lib" -ldtl -Wl,-rpath,"$prefix/lib" -o "$scratch/program"
"$scratch/program"
cmake -S "$here/../consumer/c" -B "$scratch/cmake" -Ddtl_DIR="$(dtl --cmake-dir)" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$scratch/cmake" >/dev/null
"$scratch/cmake/consumer"
PKG_CONFIG_PATH=$(dtl --pkgconfig) pkg-config --exists libdtl
echo "ok: installed with pip, in a system without a compiler and beside one"
