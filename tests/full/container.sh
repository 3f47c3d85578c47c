#!/usr/bin/env bash
# A program in a container over the MPI of the machine. Builds the image of packaging/container/debian.Containerfile with
# buildah, its base being a Debian 12 made by debootstrap (no registry is needed), and starts a program of the image, linked
# with libdtl only, by the machine's mpirun: each rank enters a mount namespace and the image's root. As root. An hour with
# two processors, half of it for the image.
#
#     container.sh FOLDER       FOLDER: for the image (2 GB); what is there is used again
#
# Prints a line for each case, which docs/how-to/containers.md shows. CONTAINER_CERTIFICATES names a folder of *.crt files
# that the base trusts in addition (behind a proxy). CONTAINER_ENV has options for buildah, such as
# "--env CARGO_PROFILE_RELEASE_LTO=off" for a faster build.
set -uo pipefail
mkdir -p "${1:?usage: container.sh FOLDER}" && folder=$(cd "$1" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" -eq 0 ] || skip "a chroot needs root"
for tool in buildah debootstrap unshare mpirun.openmpi mpirun.mpich; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
unshare --map-root-user --mount true 2>/dev/null || skip "unshare -rm is not allowed here"
export BUILDAH_ISOLATION=chroot
build=(buildah --root "$folder/store" --runroot "$folder/runroot")
root=$folder/root status=0

if ! "${build[@]}" inspect --type image localhost/debian:bookworm >/dev/null 2>&1; then
    base=$folder/base
    rm -rf --one-file-system "$base" && debootstrap --variant=minbase bookworm "$base" http://deb.debian.org/debian >"$folder/log" || exit 1
    if [ -n "${CONTAINER_CERTIFICATES:-}" ]; then
        mkdir -p "$base/usr/local/share/ca-certificates" && cp "$CONTAINER_CERTIFICATES"/*.crt "$base/usr/local/share/ca-certificates/"
    fi
    tar -C "$base" -cf "$folder/base.tar" . && rm -rf "$base" && made=$("${build[@]}" from scratch) &&
        "${build[@]}" add "$made" "$folder/base.tar" / >>"$folder/log" &&
        "${build[@]}" commit --rm "$made" localhost/debian:bookworm >>"$folder/log" 2>&1 || { tail "$folder/log"; exit 1; }
fi
if ! [ -e "$root" ]; then
    if ! "${build[@]}" inspect --type image localhost/libdtl >/dev/null 2>&1; then
        # shellcheck disable=SC2086 # several options
        "${build[@]}" build ${CONTAINER_ENV:-} --build-arg BASE=localhost/debian:bookworm -t localhost/libdtl \
            -f packaging/container/debian.Containerfile . >"$folder/log" 2>&1 || { tail "$folder/log"; exit 1; }
    fi
    rm -rf "$root.part"
    made=$("${build[@]}" from localhost/libdtl) && mounted=$("${build[@]}" mount "$made") && cp -a "$mounted" "$root.part"
    copied=$?
    "${build[@]}" umount "$made" >/dev/null && "${build[@]}" rm "$made" >/dev/null && [ $copied -eq 0 ] && mv "$root.part" "$root" || exit 1
fi
cc -O1 -I include examples-c/ring.c "$root/opt/dtl/lib/libdtl.so" -o "$root/usr/local/bin/ring" || exit 1
! ldd "$root/usr/local/bin/ring" | grep -q libmpi || { echo "ring is linked with an MPI" >&2; exit 1; }

# libraries FOLDER FILE...: what these files need beyond the C library and the compiler's libraries, and themselves.
libraries() {
    local to=$1 name file
    shift
    rm -rf "$to" && mkdir -p "$to" && cp -L "$1" "$to/"
    ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' | sort -u |
        grep -vE '^(lib(c|m|pthread|dl|rt|resolv|util|gcc_s|stdc\+\+)\.so|ld-linux)' |
        while read -r name file; do cp -L "$file" "$to/$name"; done
}
shopt -s nullglob
multiarch=/usr/lib/$(gcc -print-multiarch)
components=("$multiarch"/openmpi "$multiarch"/pmix2 /usr/share/openmpi /etc/openmpi)
libraries "$folder/openmpi" "$multiarch/libmpi.so.40" "$multiarch"/openmpi/lib/openmpi3/*.so "$multiarch"/pmix2/lib/pmix/*.so
libraries "$folder/mpich" "$multiarch/libmpich.so.12"

# The entry of a rank: NAMESPACES are options of unshare, MOUNTS are FROM or FROM:TO.
cat >"$folder/enter" <<END
#!/bin/bash
exec unshare \$NAMESPACES --mount bash -c '
    for mount in \$MOUNTS; do
        from=\${mount%%:*} to=$root\${mount#*:}
        if [ -d "\$from" ]; then mkdir -p "\$to"; else mkdir -p "\${to%/*}" && touch "\$to"; fi
        mount --rbind "\$from" "\$to" || exit
    done
    exec chroot $root /usr/bin/env PATH=/opt/dtl/bin:/usr/local/bin:/usr/bin:/bin LD_LIBRARY_PATH=/host/mpi "\$@"' enter "\$@"
END
chmod +x "$folder/enter"
# More ranks than processors, as root: Open MPI wants to be told.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
# UCX, under MPICH, opens descriptors of other ranks, which needs one user namespace.
export UCX_POSIX_USE_PROC_LINK=n
export NAMESPACES="" MOUNTS="" DTL_TIMEOUT=30s
usual="/proc /dev /sys /tmp"

# check NAME EXPECTED COMMAND...: the output must contain the text.
check() {
    local name=$1 expected=$2
    shift 2
    timeout 600 "$@" >"$folder/output" 2>&1
    if grep -qF -- "$expected" "$folder/output"; then echo "PASS $name: $(grep -m 1 -oF -- "$expected" "$folder/output")"
    else echo "FAIL $name: expected: $expected"; head -n 20 "$folder/output"; status=1; fi
}
# With --map-root-user each rank has a user namespace of its own, as rootless containers have.
for mpi in openmpi mpich; do
    mounts="$usual $folder/$mpi:/host/mpi"
    [ $mpi = mpich ] || mounts+=" ${components[*]}"
    for namespaces in "" --map-root-user; do
        NAMESPACES=$namespaces MOUNTS=$mounts
        run=("mpirun.$mpi" -n 2 "$folder/enter")
        for kind in shm mpi; do
            DTL_COMM=$kind check "$kind $mpi $namespaces" "2 ranks: the token came back as 1" "${run[@]}" ring
            check "$kind $mpi $namespaces kit" " 0 failed" "${run[@]}" bash -c "dtl-ctk run --kind $kind --only 'comm.p2p.*' \
                --json /tmp/kit-\$\$.json | tail -n 1 && ! grep -q '\"outcome\": *\"fail\"' /tmp/kit-\$\$.json && echo ' 0 failed'"
        done
    done
done
NAMESPACES=""
# Without any MPI, over libfabric.
if [ -e /usr/include/rdma/fi_tagged.h ]; then
    mkdir -p "$folder/plugins" && cc -O1 -fPIC -shared -fvisibility=hidden -Wl,-z,defs -I include \
        examples-plugins/libfabric/*.c examples-plugins/tcp/{meet,net}.c -ldl -pthread \
        -o "$folder/plugins/liblibfabric.so" || exit 1
    libraries "$folder/libfabric" "$multiarch/libfabric.so.1"
    export DTL_BACKEND_LIBFABRIC_ROOT=127.0.0.1:20123 DTL_BACKEND_LIBFABRIC_PROVIDER=tcp DTL_PLUGIN_PATH=/opt/plugins
    MOUNTS="$usual $folder/libfabric:/host/mpi $folder/plugins:/opt/plugins"
    run=("$folder/enter" dtlrun -n 2)
    DTL_COMM=libfabric check "libfabric" "2 ranks: the token came back as 1" "${run[@]}" ring
    DTL_COMM=hier DTL_HIER_ACROSS=libfabric check "hier over libfabric" "2 ranks: the token came back as 1" "${run[@]}" ring
    check "libfabric kit" " 0 failed" "$folder/enter" bash -c "dtl-ctk run --kind libfabric --ranks 2 --only 'comm.p2p.*' && echo ' 0 failed'"
    unset DTL_BACKEND_LIBFABRIC_ROOT DTL_BACKEND_LIBFABRIC_PROVIDER DTL_PLUGIN_PATH
fi
export DTL_COMM=mpi
MOUNTS="$usual $folder/mpich:/host/mpi" NAMESPACES=--map-root-user UCX_POSIX_USE_PROC_LINK=y check \
    "MPICH over UCX in user namespaces, without UCX_POSIX_USE_PROC_LINK=n" "UCX  ERROR   open(file_name=/proc/" \
    mpirun.mpich -n 2 "$folder/enter" ring
MOUNTS=$usual check "no MPI mounted" "no MPI: libmpi.so.40: cannot open shared object file" mpirun.openmpi -n 2 "$folder/enter" ring
mkdir -p "$folder/alone" && cp -L "$multiarch/libmpi.so.40" "$folder/alone/"
MOUNTS="$usual $folder/alone:/host/mpi" check "libmpi without its libraries" \
    "no MPI: /host/mpi/libmpi.so.40: libopen-rte.so.40: cannot open shared object file" mpirun.openmpi -n 2 "$folder/enter" ring
MOUNTS="$usual $folder/openmpi:/host/mpi" check "Open MPI without its components" "An error occurred in MPI_Init_thread" \
    mpirun.openmpi -n 2 "$folder/enter" ring
MOUNTS="$usual $folder/mpich:/host/mpi" DTL_MPI_LIBRARY=/host/mpi/libmpich.so.12 check "the other MPI" \
    "the launcher is Open MPI's (OMPI_COMM_WORLD_SIZE is set), but /host/mpi/libmpich.so.12 is no Open MPI" \
    mpirun.openmpi -n 2 "$folder/enter" ring
export DTL_COMM=shm DTL_TIMEOUT=2s
MOUNTS="/dev /tmp" check "no /proc" "/proc is not mounted there; mount it" mpirun.openmpi -n 2 "$folder/enter" ring
MOUNTS=$usual NAMESPACES=--net check "a network namespace for each rank" "a container with its own network" \
    mpirun.openmpi -n 2 "$folder/enter" ring
MOUNTS=$usual NAMESPACES="--pid --fork" check "a PID namespace for each rank" "is in another PID namespace (container)" \
    mpirun.openmpi -n 2 "$folder/enter" ring
exit $status
