#!/usr/bin/env bash
# Fetches what NVIDIA has that needs no GPU, for the tests (NVRTC, cuda.h, NCCL): wheels of PyPI, of which only the files are
# wanted, so no Python environment. By pip if it is there (which knows mirrors), else from PyPI itself.
#
#     gpu_wheels.sh [FOLDER]      FOLDER: default build/wheels
#
# What is there in the wanted version is left alone. Prints the path of each file that the tests ask for; fails with the
# reason if one could not be had, and the tests that need it are skipped.
set -uo pipefail
cd "$(dirname "$0")/.."

folder=${1:-build/wheels}
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
export PIP_DISABLE_PIP_VERSION_CHECK=1

if [ "$(uname -sm)" != "Linux x86_64" ]; then
    echo "gpu_wheels: the wheels whose hashes are known here are for Linux on x86_64" >&2
    exit 1
fi

# The address of a file of a package.
address() { # PACKAGE FILE
    curl --proto '=https' -sSfL --connect-timeout 20 "https://pypi.org/simple/$1/" | grep -oE "https://[^\"#]*/$2" | head -n 1
}

# Unpacks a wheel and prints the path of what is wanted of it.
wheel() { # WANTED PACKAGE VERSION FILE SHA256
    local wanted=$folder/$1 package=$2 version=$3 file=$folder/$4 hash=$5
    local stamp=$folder/$package.installed
    if [ "$(cat "$stamp" 2>/dev/null)" != "$version $hash" ]; then
        python3 -m pip download -q --no-deps --only-binary :all: -d "$folder" "$package==$version" >&2 2>/dev/null ||
            curl --proto '=https' -sSfL --connect-timeout 20 -o "$file" "$(address "$package" "$4")" >&2
        if ! echo "$hash  $file" | sha256sum -c --quiet - >&2; then
            rm -f "$file"
            echo "gpu_wheels: $package $version could not be had from PyPI" >&2
            return 1
        fi
        # A wheel is a zip file, and cmake is there anyway.
        (cd "$folder" && cmake -E tar xf "$file") && rm -f "$file" && echo "$version $hash" >"$stamp" || return 1
    fi
    echo "$wanted"
}

wheel nvidia/cuda_nvrtc/lib/libnvrtc.so.12 nvidia-cuda-nvrtc-cu12 12.9.86 \
    nvidia_cuda_nvrtc_cu12-12.9.86-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl \
    210cf05005a447e29214e9ce50851e83fc5f4358df8b453155d5e1918094dcb4 &&
    wheel nvidia/cuda_runtime/include/cuda.h nvidia-cuda-runtime-cu12 12.9.79 \
        nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl \
        25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3 &&
    wheel nvidia/nccl/lib/libnccl.so.2 nvidia-nccl-cu12 2.26.2 \
        nvidia_nccl_cu12-2.26.2-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl \
        694cf3879a206553cc9d7dbda76b13efaf610fdb70a50cba303de1b0d1530ac6
