# Arrays that the library and NumPy hand each other without copying (DLPack), through the C functions alone.
# Usage: numpy_dlpack.py LIBDTL. Prints "skipped: reason" and ends with 77 where NumPy is missing or too old.
import ctypes
import gc
import sys
import threading

try:
    import numpy as np
except ImportError:
    print("skipped: python3 has no NumPy (python3-numpy)")
    sys.exit(77)
if not hasattr(np, "from_dlpack"):
    print("skipped: NumPy", np.__version__, "has no from_dlpack (1.22 has)")
    sys.exit(77)
# From 2.1 on NumPy speaks DLPack 1, the struct with a version; before, the other one.
SPEAKS_1 = tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)

dtl = ctypes.CDLL(sys.argv[1])
python = ctypes.pythonapi


class Handle(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64)]


class Stats(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("reserved", ctypes.c_uint32)] + [
        (name, ctypes.c_uint64) for name in ("live_bytes", "peak_bytes", "reserved_bytes", "live_count", "total_count")]


class Info(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("ndim", ctypes.c_int32), ("backend", Handle), ("device", ctypes.c_int32),
                ("dtype", ctypes.c_int32), ("kind", ctypes.c_uint64), ("flags", ctypes.c_uint64), ("data", ctypes.c_void_p),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("count", ctypes.c_uint64), ("size_bytes", ctypes.c_uint64), ("export_count", ctypes.c_uint64)]


HOST_MEMORY = ctypes.c_uint64(0x0001000100000000)
FLOAT32, FLOAT64, INT16 = 8, 9, 1
ZERO, READ_ONLY, CONTIGUOUS, IMPORTED = 1, 2, 4, 8
DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
dtl.dtl_last_error.restype = ctypes.c_char_p
for function, result, arguments in [
        ("PyCapsule_New", ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
        ("PyCapsule_GetPointer", ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]),
        ("PyCapsule_SetName", ctypes.c_int, [ctypes.py_object, ctypes.c_char_p])]:
    getattr(python, function).restype = result
    getattr(python, function).argtypes = arguments


def check(status):
    if status != 0:
        raise RuntimeError(dtl.dtl_last_error().decode())


def live():
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    check(dtl.dtl_mem_stats(host, ctypes.byref(stats)))
    return stats.live_count


def info(array):
    found = Info(struct_size=ctypes.sizeof(Info))
    check(dtl.dtl_array_info(array, ctypes.byref(found)))
    return found


def address(array):
    return array.__array_interface__["data"][0]


# A capsule's name must outlive it.
NAMES = {False: (b"dltensor", b"used_dltensor"), True: (b"dltensor_versioned", b"used_dltensor_versioned")}


class Lender:
    """What NumPy asks for: an object with __dlpack__ and __dlpack_device__."""

    def __init__(self, array, versioned):
        self.array, self.versioned = array, versioned

    def __dlpack__(self, **_):
        tensor = ctypes.c_void_p()
        call = dtl.dtl_array_export if self.versioned else dtl.dtl_array_export_unversioned
        check(call(self.array, ctypes.byref(tensor)))
        return python.PyCapsule_New(tensor, NAMES[self.versioned][0], None)

    def __dlpack_device__(self):
        return (1, 0)


def take(source, versioned):
    """A NumPy array as an array of the library's: the capsule is used up, as consumers do it."""
    capsule = source.__dlpack__(max_version=(1, 0)) if versioned else source.__dlpack__()
    tensor = python.PyCapsule_GetPointer(capsule, NAMES[versioned][0])
    array = Handle()
    call = dtl.dtl_array_import if versioned else dtl.dtl_array_import_unversioned
    check(call(host, ctypes.c_void_p(tensor), ctypes.byref(array)))
    assert python.PyCapsule_SetName(capsule, NAMES[versioned][1]) == 0
    return array


def lends(versioned):
    before = live()
    shape = (ctypes.c_int64 * 2)(3, 4)
    array = Handle()
    check(dtl.dtl_array_alloc(host, HOST_MEMORY, shape, 2, FLOAT32, ctypes.c_uint64(ZERO), ctypes.byref(array)))
    seen = np.from_dlpack(Lender(array, versioned))
    assert seen.shape == (3, 4) and seen.dtype == np.float32 and not seen.any()
    assert address(seen) == info(array).data, "NumPy copied"
    ctypes.cast(info(array).data, ctypes.POINTER(ctypes.c_float))[7] = 2.5  # written here, read there
    assert seen[1, 3] == 2.5
    view = seen[1:, ::2]
    assert info(array).export_count == 1
    check(dtl.dtl_array_destroy(array))
    del seen
    gc.collect()
    assert view[0, 1] == 0 and live() == before + 1, "a view still has the memory"
    assert dtl.dtl_finalize() != 0 and b"1 tensors" in dtl.dtl_last_error()
    box = [view]
    del view
    last = threading.Thread(target=box.clear)  # the last reference goes in another thread
    last.start()
    last.join()
    gc.collect()
    assert live() == before, "given up once NumPy had no more use for it"


def borrows(versioned):
    source = np.arange(24, dtype=np.float64).reshape(4, 6)[:, ::2]
    count = sys.getrefcount(source)
    array = take(source, versioned)
    assert sys.getrefcount(source) == count + 1
    found = info(array)
    assert found.data == address(source) and found.dtype == FLOAT64 and found.flags == IMPORTED
    assert list(found.shape[:2]) == [4, 3] and list(found.strides[:2]) == [6, 2] and found.size_bytes == 8 * 23
    again = np.from_dlpack(Lender(array, versioned))
    source[3, 2] = -1
    assert again[3, 2] == -1 and address(again) == address(source)
    # NumPy marks imports without a version as read-only; 2.2 marks all imports, its own arrays too.
    assert again.flags.writeable == (versioned and np.from_dlpack(source).flags.writeable)
    check(dtl.dtl_array_destroy(array))
    assert sys.getrefcount(source) == count + 1, "NumPy's second array still needs it"
    del again
    gc.collect()
    assert sys.getrefcount(source) == count, "the deleter was called once"


def refuses():
    array = Handle()
    for source, words in [(np.zeros(4)[::-1], "strides[0] is -1")]:
        capsule = source.__dlpack__()
        tensor = python.PyCapsule_GetPointer(capsule, b"dltensor")
        assert dtl.dtl_array_import_unversioned(host, ctypes.c_void_p(tensor), ctypes.byref(array)) != 0
        assert words in dtl.dtl_last_error().decode(), dtl.dtl_last_error()
        del capsule  # it is NumPy's still


def read_only():
    source = np.arange(6, dtype=np.int16)
    source.flags.writeable = False
    array = take(source, True)
    assert info(array).flags == READ_ONLY | IMPORTED | CONTIGUOUS and info(array).dtype == INT16
    again = np.from_dlpack(Lender(array, True))
    assert not again.flags.writeable and address(again) == address(source)
    check(dtl.dtl_array_destroy(array))
    del again
    gc.collect()


check(dtl.dtl_init(None))
host = Handle()
check(dtl.dtl_backend_get(b"host", ctypes.byref(host)))
for versioned in [False, True][:1 + SPEAKS_1]:
    lends(versioned)
    borrows(versioned)
refuses()
if SPEAKS_1:
    read_only()
check(dtl.dtl_finalize())
print("ok: NumPy", np.__version__, "with DLPack 1" if SPEAKS_1 else "with DLPack before 1.0")
