"""libdtl for Python: communicators, devices, memory, streams, kernels and windows.

    import dtl
    import numpy as np

    comm = dtl.COMM_WORLD
    total = np.zeros(1)
    comm.allreduce(np.array([comm.rank + 1.0]), total)

`dtlrun -n 4 python program.py` runs four ranks. A failed call raises dtl.Error with the library's
error text. The functions of dtl.h are in dtl.raw, under their own names.
"""

from . import _raw as raw
from ._fast import RecvInfo
from .array import Array
from .attribute import Key
from .backend import Backend, Device, backends
from .buffers import IN_PLACE
from .cart import Cart, Shift, compute_dims
from .comm import (
    ANY_SOURCE,
    ANY_TAG,
    COMM_SELF,
    COMM_WORLD,
    PROC_NULL,
    UNDEFINED,
    Comm,
    Message,
    Registration,
)
from .constants import DeviceKind, DType, Language, LogLevel, MemoryKind, Op, Schedule, Status
from .enumeration import Enumeration, Word
from .environment import Environment, EnvironmentInfo, EnvironmentState, environments
from .error import Error, last_error
from .executor import Executor, ExecutorKind
from .lifecycle import (
    Library,
    explain,
    finalize,
    init,
    init_after_fork,
    trace_start,
    trace_stop,
    version,
)
from .memory import Memory
from .module import Kernel, Module
from .op import ReduceOp
from .policy import Policy, Submission
from .pool import MemoryStats, Pool
from .registered import RegisteredBackend
from .request import PersistentRequest, Request, test_all, wait_all, wait_any
from .stream import Event, Stream
from .window import Window

__version__ = version()

__all__ = [
    "ANY_SOURCE",
    "ANY_TAG",
    "COMM_SELF",
    "COMM_WORLD",
    "IN_PLACE",
    "PROC_NULL",
    "UNDEFINED",
    "Array",
    "Backend",
    "Cart",
    "Comm",
    "DType",
    "Device",
    "DeviceKind",
    "Enumeration",
    "Environment",
    "EnvironmentInfo",
    "EnvironmentState",
    "Error",
    "Event",
    "Executor",
    "ExecutorKind",
    "Kernel",
    "Key",
    "Language",
    "Library",
    "LogLevel",
    "Memory",
    "MemoryKind",
    "MemoryStats",
    "Message",
    "Module",
    "Op",
    "PersistentRequest",
    "Policy",
    "Pool",
    "RecvInfo",
    "ReduceOp",
    "RegisteredBackend",
    "Registration",
    "Request",
    "Schedule",
    "Shift",
    "Status",
    "Stream",
    "Submission",
    "Window",
    "Word",
    "backends",
    "compute_dims",
    "environments",
    "explain",
    "finalize",
    "init",
    "init_after_fork",
    "last_error",
    "raw",
    "test_all",
    "trace_start",
    "trace_stop",
    "version",
    "wait_all",
    "wait_any",
]
