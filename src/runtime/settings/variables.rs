//! Names and meanings of the environment variables that the library reads (`settings` parses them).

/// Builds the table of environment variables. Each row consists of a name and its meaning.
macro_rules! variables {
    ($($name:ident: $meaning:literal,)+) => {
        &[$((stringify!($name), $meaning)),+]
    };
}

/// Names of the environment variables that the library reads, each with its meaning, except
/// variables that only launchers other than dtlrun set. `dtl-info --env` prints this table.
pub const VARIABLES: &[(&str, &str)] = variables! {
    DTL_BACKEND: "backend that dtl_backend_get(NULL) gives: a name or auto",
    STEPMESH_BACKEND: "as DTL_BACKEND, read if that is not set",
    STEPMESH_BAKCEND: "StepMesh's misspelling of the line above, read last",
    DTL_COMM: "kind of the world communicator: auto, self, shm, mpi, rdma, hier, nccl or a \
        registered name",
    DTL_TIMEOUT: "time limit of blocking communication: 30s, 500ms, … (default none)",
    DTL_DETERMINISTIC: "1: reductions depend neither on the kind nor on which ranks share a node",
    DTL_LOG: "messages on standard error: off, error, warn (default), info (choices), debug",
    DTL_TRACE: "file to write a trace to, Chrome's JSON: %r in it is the rank, %p the process id",
    DTL_STRICT: "1: a degraded automatic choice is an error",
    DTL_PLUGIN_PATH: "folders to search for plugins, and plugin files, separated by ':'",
    DTL_MPI_LIBRARY: "MPI library of kind mpi, if the process has none yet: a path or soname \
        (default: by launcher); an error if the process has another one",
    DTL_OPENCL_LIBRARY: "OpenCL loader of backend opencl: a path or soname (default \
        libOpenCL.so.1)",
    DTL_CUDA_LIBRARY: "driver library of backend cuda: a path or soname (default libcuda.so.1)",
    DTL_NCCL_LIBRARY: "collectives of kind nccl, NVIDIA's NCCL: a path or soname (default \
        libnccl.so.2)",
    DTL_RDMA_LIBRARY: "RDMA verbs of kind rdma, rdma-core's libibverbs: a path or soname (default \
        libibverbs.so.1)",
    DTL_RDMA_DEVICES: "devices of kind rdma, each with its port if that matters: mlx5_0:1,mlx5_1 \
        (default: those in use)",
    DTL_RDMA_RAILS: "kind rdma: ports that a rank uses at once, 1 … 4 (default 1)",
    DTL_RDMA_QUEUES: "kind rdma: queue pairs for each peer and rail, 1 … 4 (default 1)",
    DTL_RDMA_GID_INDEX: "kind rdma: index of the port's address, 0 … 255 (default: chosen)",
    DTL_RDMA_SERVICE_LEVEL: "kind rdma: service level, 0 … 15 (default 0)",
    DTL_RDMA_TRAFFIC_CLASS: "kind rdma: traffic class, 0 … 255 (default 0)",
    DTL_RDMA_TIMEOUT: "kind rdma: wait of 4.096 us x 2^N before a packet is sent again, 1 … 31 \
        (default 20)",
    DTL_RDMA_RETRIES: "kind rdma: how often a packet is sent again, 0 … 7 (default 7)",
    DTL_RDMA_RECEIVER_RETRIES: "kind rdma: how often for a receiver that is not ready, 0 … 7, 7 = \
        for ever (default 7)",
    DTL_RDMA_MTU: "kind rdma: bytes of a packet at most, 256, 512, … 4096 (default: the port's)",
    DTL_RDMA_PKEY_INDEX: "kind rdma: index of the partition key, 0 … 65535 (default 0)",
    DTL_RDMA_DEPTH: "kind rdma: receives posted for each peer and queue pair, 4 … 4096 (default \
        16)",
    DTL_RDMA_INLINE_BYTES: "kind rdma: bytes of a message inside of its work request, 0 … 1024 \
        (default 64)",
    DTL_RDMA_COMPLETION: "kind rdma: how a rank waits for its device: poll (default) or event",
    DTL_RDMA_RENDEZVOUS: "kind rdma: large messages are moved by their sender, write (default), \
        or receiver, read",
    DTL_RDMA_CACHE_BYTES: "kind rdma: memory that stays registered for later messages: 0, 512M, \
        2G … (default 1G)",
    DTL_RDMA_DEVICE_MEMORY: "kind rdma: how large messages of device memory travel: staged \
        (default), dmabuf, peermem",
    DTL_RDMA_MEETING: "kind rdma: how its ranks meet: auto, over, mpi, shm, file:PATH, \
        tcp:HOST:PORT (default auto)",
    DTL_RDMA_ADDRESS: "kind rdma: IP address or network interface of its control sockets \
        (default: chosen)",
    DTL_RDMA_SILENCE_MS: "kind rdma: silence in milliseconds after which a machine counts as dead \
        (default 5000)",
    DTL_RDMA_RECONNECT_MS: "kind rdma: how long a connection that breaks over and over is made \
        anew, in milliseconds; 0: not at all (default 5000)",
    DTL_PLUGIN_PROBE: "1: try a plugin in a process of its own before it is loaded; 30s: that, \
        with a time limit",
    DTL_SHM_COPY: "kind shm: method that copies large messages: auto, allow (auto, and lift \
        Yama's ptrace limit), cells, cells_nt, cma_get, cma_split",
    DTL_HIER_ACROSS: "kind between the nodes of kind hier: mpi (default), rdma, shm (for tests) \
        or a registered name",
    DTL_FAKE_NODES: "for tests: the job's nodes, pretended: 2x4 (nodes x ranks) or 3,1 (ranks of \
        each)",
    DTL_MEMORY_KEEP: "host memory kept for later allocations: 0, 512M, 2G … (default 256M or 1/8 \
        of the most used)",
    DTL_HUGE_PAGES: "0: do not ask for huge pages for host memory (default 1)",
    DTL_CC: "C compiler of kernels from source: a path or a name (default: cc, gcc, clang)",
    DTL_NVRTC_LIBRARY: "compiler of CUDA C++, NVIDIA's NVRTC: a path or soname (default \
        libnvrtc.so.12 and its like)",
    DTL_CACHE_DIR: "folder of compiled kernels (default: XDG_CACHE_HOME/dtl, else HOME/.cache/dtl)",
    DTL_COMPILE_TIMEOUT: "time limit of one run of a compiler: 30s, 5m, … (default 2m)",
    DTL_CACHE_BYTES: "limit of that folder: 512M, 2G …; 0: compile each time (default: none)",
    XDG_CACHE_HOME: "see DTL_CACHE_DIR",
    HOME: "see DTL_CACHE_DIR",
    PATH: "where the C compiler is searched for",
    OMP_NUM_THREADS: "threads of an executor pool that names none",
    DTL_RANK: "this process' rank (set by dtlrun)",
    DTL_SIZE: "number of ranks (set by dtlrun)",
    DTL_LOCAL_RANK: "rank among those of this node (set by dtlrun)",
    DTL_LOCAL_SIZE: "ranks on this node (set by dtlrun)",
    DTL_JOB: "name that the ranks of one job share (set by dtlrun)",
    DTL_LAUNCHER: "socket on which the launcher takes requests for processes (set by dtlrun)",
};

/// Environment variables that cause code to be loaded or run, or files to be written. A user must
/// not be able to set these for a program with more privileges than the user.
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
