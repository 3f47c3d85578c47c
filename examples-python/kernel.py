"""kernel: one kernel source on each backend that compiles here, with NumPy arrays in and out.

Run: python kernel.py
Prints a line for each backend, or why it cannot run.
"""

import numpy as np

import dtl

SOURCE = """
#include "dtl_kernel.h"
DTL_KERNEL(saxpy, (float, a), (DTL_GLOBAL const float*, x), (DTL_GLOBAL float*, y), (unsigned, n))
{
    const DTL_SIZE i = DTL_GLOBAL_ID(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
COUNT, BLOCK = 10_000, 64


def run(backend: dtl.Backend) -> bool:
    """Computes 2 x + y on a backend; returns true if the result is right."""
    x = np.arange(COUNT, dtype=np.float32)
    y = np.ones(COUNT, dtype=np.float32)
    kind = dtl.MemoryKind.HOST if backend.name == "host" else dtl.MemoryKind.DEVICE
    device_x, device_y = dtl.Array.of(x).copy(backend, kind), dtl.Array.of(y).copy(backend, kind)
    saxpy = dtl.Module(SOURCE, backend, name="saxpy.c").kernel("saxpy", "fppI")
    with dtl.Stream(backend) as stream:
        saxpy.launch(stream, (COUNT + BLOCK - 1) // BLOCK, BLOCK, 2.0, device_x, device_y, COUNT)
        stream.wait()
    result = np.empty_like(y)
    device_y.copy_to(result)
    return np.array_equal(result, 2 * x + y)


def main() -> None:
    for backend in dtl.backends():
        if not backend.supports("modules"):
            continue
        if backend.unavailable:
            print(f"{backend.name}: {backend.unavailable}")
        else:
            print(f"{backend.name}:", "correct" if run(backend) else "WRONG")


if __name__ == "__main__":
    main()
