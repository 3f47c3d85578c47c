//! Names and meanings of the environment variables that the library reads (`settings` parses them).

/// Environment variable that the library reads.
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Meaning of the variable, for `dtl-info --env`.
    pub meaning: &'static str,
}

/// Every variable that the library reads, except those of launchers.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "DTL_BACKEND",
        meaning: "backend that dtl_backend_get(NULL) gives: a name or auto",
    },
    Variable { name: "STEPMESH_BACKEND", meaning: "as DTL_BACKEND, read if that is not set" },
    Variable {
        name: "STEPMESH_BAKCEND",
        meaning: "StepMesh's misspelling of the line above, read last",
    },
    Variable {
        name: "DTL_COMM",
        meaning: "kind of the world communicator: auto, self, shm, mpi, rdma, hier, nccl or a \
            registered name",
    },
    Variable {
        name: "DTL_TIMEOUT",
        meaning: "time limit of blocking communication: 30s, 500ms, … (default none)",
    },
    Variable {
        name: "DTL_DETERMINISTIC",
        meaning: "1: reductions bitwise equal between kinds and runs",
    },
    Variable {
        name: "DTL_LOG",
        meaning: "log level: off, error, warn, info, debug (default warn)",
    },
    Variable {
        name: "DTL_TRACE",
        meaning: "file to write a trace to, Chrome's JSON: %r in it is the rank, %p the process id",
    },
    Variable { name: "DTL_STRICT", meaning: "1: a degraded automatic choice is an error" },
    Variable {
        name: "DTL_PLUGIN_PATH",
        meaning: "folders to search for plugins, and plugin files, separated by ':'",
    },
    Variable {
        name: "DTL_MPI_LIBRARY",
        meaning: "MPI library of kind mpi: a path or soname (default: the one in the process, else \
            by launcher)",
    },
    Variable {
        name: "DTL_OPENCL_LIBRARY",
        meaning: "OpenCL loader of backend opencl: a path or soname (default libOpenCL.so.1)",
    },
    Variable {
        name: "DTL_CUDA_LIBRARY",
        meaning: "driver library of backend cuda: a path or soname (default libcuda.so.1)",
    },
    Variable {
        name: "DTL_NCCL_LIBRARY",
        meaning: "collectives of kind nccl, NVIDIA's NCCL: a path or soname (default libnccl.so.2)",
    },
    Variable {
        name: "DTL_RDMA_LIBRARY",
        meaning: "RDMA verbs of kind rdma, rdma-core's libibverbs: a path or soname (default \
            libibverbs.so.1)",
    },
    Variable {
        name: "DTL_RDMA_DEVICES",
        meaning: "devices of kind rdma, each with its port if that matters: mlx5_0:1,mlx5_1 \
            (default: those in use)",
    },
    Variable {
        name: "DTL_RDMA_RAILS",
        meaning: "kind rdma: ports that a rank uses at once, 1 … 4 (default 1)",
    },
    Variable {
        name: "DTL_RDMA_QUEUES",
        meaning: "kind rdma: queue pairs for each peer and rail, 1 … 4 (default 1)",
    },
    Variable {
        name: "DTL_RDMA_GID_INDEX",
        meaning: "kind rdma: index of the port's address, 0 … 255 (default: chosen)",
    },
    Variable {
        name: "DTL_RDMA_SERVICE_LEVEL",
        meaning: "kind rdma: service level, 0 … 15 (default 0)",
    },
    Variable {
        name: "DTL_RDMA_TRAFFIC_CLASS",
        meaning: "kind rdma: traffic class, 0 … 255 (default 0)",
    },
    Variable {
        name: "DTL_RDMA_TIMEOUT",
        meaning: "kind rdma: wait of 4.096 us x 2^N before a packet is sent again, 1 … 31 (default \
            20)",
    },
    Variable {
        name: "DTL_RDMA_RETRIES",
        meaning: "kind rdma: how often a packet is sent again, 0 … 7 (default 7)",
    },
    Variable {
        name: "DTL_RDMA_RECEIVER_RETRIES",
        meaning: "kind rdma: how often for a receiver that is not ready, 0 … 7, 7 = for ever \
            (default 7)",
    },
    Variable {
        name: "DTL_RDMA_MTU",
        meaning: "kind rdma: bytes of a packet at most, 256, 512, … 4096 (default: the port's)",
    },
    Variable {
        name: "DTL_RDMA_PKEY_INDEX",
        meaning: "kind rdma: index of the partition key, 0 … 65535 (default 0)",
    },
    Variable {
        name: "DTL_RDMA_DEPTH",
        meaning: "kind rdma: receives posted for each peer and queue pair, 4 … 4096 (default 16)",
    },
    Variable {
        name: "DTL_RDMA_INLINE_BYTES",
        meaning: "kind rdma: bytes of a message inside of its work request, 0 … 1024 (default 64)",
    },
    Variable {
        name: "DTL_RDMA_COMPLETION",
        meaning: "kind rdma: how a rank waits for its device: poll (default) or event",
    },
    Variable {
        name: "DTL_RDMA_RENDEZVOUS",
        meaning: "kind rdma: large messages are moved by their sender, write (default), or \
            receiver, read",
    },
    Variable {
        name: "DTL_RDMA_CACHE_BYTES",
        meaning: "kind rdma: memory that stays registered for later messages: 0, 512M, 2G … \
            (default 1G)",
    },
    Variable {
        name: "DTL_RDMA_DEVICE_MEMORY",
        meaning: "kind rdma: how large messages of device memory travel: staged (default), dmabuf, \
            peermem",
    },
    Variable {
        name: "DTL_RDMA_MEETING",
        meaning: "kind rdma: how its ranks meet: auto, over, mpi, shm, file:PATH, tcp:HOST:PORT \
            (default auto)",
    },
    Variable {
        name: "DTL_RDMA_ADDRESS",
        meaning: "kind rdma: IP address or network interface of its control sockets (default: \
            chosen)",
    },
    Variable {
        name: "DTL_RDMA_SILENCE_MS",
        meaning: "kind rdma: silence in milliseconds after which a machine counts as dead (default \
            5000)",
    },
    Variable {
        name: "DTL_RDMA_RECONNECT_MS",
        meaning: "kind rdma: how long a connection that breaks over and over is made anew, in \
            milliseconds; 0: not at all (default 5000)",
    },
    Variable {
        name: "DTL_PLUGIN_PROBE",
        meaning: "1: try a plugin in a process of its own before it is loaded; 30s: that, with a \
            time limit",
    },
    Variable {
        name: "DTL_CMA",
        meaning: "copies between processes by the kernel: auto, off, allow (lift ptrace limits)",
    },
    Variable {
        name: "DTL_HIER_ACROSS",
        meaning: "kind between the nodes of kind hier: mpi (default), rdma, shm (for tests) or a \
            registered name",
    },
    Variable {
        name: "DTL_FAKE_NODES",
        meaning: "for tests: the job's nodes, pretended: 2x4 (nodes x ranks) or 3,1 (ranks of \
            each)",
    },
    Variable {
        name: "DTL_MEMORY_KEEP",
        meaning: "host memory kept for later allocations: 0, 512M, 2G … (default 256M or 1/8 of \
            the most used)",
    },
    Variable {
        name: "DTL_HUGE_PAGES",
        meaning: "0: do not ask for huge pages for host memory (default 1)",
    },
    Variable {
        name: "DTL_CC",
        meaning: "C compiler of kernels from source: a path or a name (default: cc, gcc, clang)",
    },
    Variable {
        name: "DTL_NVRTC_LIBRARY",
        meaning: "compiler of CUDA C++, NVIDIA's NVRTC: a path or soname (default libnvrtc.so.12 \
            and its like)",
    },
    Variable {
        name: "DTL_CACHE_DIR",
        meaning: "folder of compiled kernels (default: XDG_CACHE_HOME/dtl, else HOME/.cache/dtl)",
    },
    Variable {
        name: "DTL_COMPILE_TIMEOUT",
        meaning: "time limit of one run of a compiler: 30s, 5m, … (default 2m)",
    },
    Variable { name: "XDG_CACHE_HOME", meaning: "see DTL_CACHE_DIR" },
    Variable { name: "HOME", meaning: "see DTL_CACHE_DIR" },
    Variable { name: "PATH", meaning: "where the C compiler is searched for" },
    Variable { name: "OMP_NUM_THREADS", meaning: "threads of an executor pool that names none" },
    Variable { name: "DTL_RANK", meaning: "this process' rank (set by dtlrun)" },
    Variable { name: "DTL_SIZE", meaning: "number of ranks (set by dtlrun)" },
    Variable { name: "DTL_LOCAL_RANK", meaning: "rank among those of this node (set by dtlrun)" },
    Variable { name: "DTL_LOCAL_SIZE", meaning: "ranks on this node (set by dtlrun)" },
    Variable { name: "DTL_JOB", meaning: "name that the ranks of one job share (set by dtlrun)" },
];

/// Variables that cause code to be loaded or run, or files to be written. A user must not choose
/// these for a program with more privileges than the user has.
pub(super) const LOADING_CODE: &[&str] = &[
    "DTL_PLUGIN_PATH",
    "DTL_PLUGIN_PROBE",
    "DTL_MPI_LIBRARY",
    "DTL_OPENCL_LIBRARY",
    "DTL_CUDA_LIBRARY",
    "DTL_NCCL_LIBRARY",
    "DTL_RDMA_LIBRARY",
    "DTL_CC",
    "DTL_NVRTC_LIBRARY",
    "DTL_CACHE_DIR",
    "DTL_TRACE",
];
