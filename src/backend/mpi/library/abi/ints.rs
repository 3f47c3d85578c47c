//! Integer constants of MPI, with their values in each MPI ABI.

use super::names;

/// Value that stands for a constant that the ABI lacks; no integer constant of MPI has this value.
pub const ABSENT: i32 = i32::MIN;

names! {
    /// Integer constant of MPI.
    ///
    /// For the standard ABI, `MPI_LASTUSEDCODE` has the value from the final ABI, not from its
    /// draft; see [`super::DRAFT_ERRORS_RETURN`].
    Int, value -> i32,

    // ranks and tags
    AnySource MPI_ANY_SOURCE: -1, -2, -1;
    AnyTag MPI_ANY_TAG: -1, -1, -2;

    // thread levels
    ThreadFunneled MPI_THREAD_FUNNELED: 1, 1, 1024;
    ThreadSerialized MPI_THREAD_SERIALIZED: 2, 2, 2048;
    ThreadMultiple MPI_THREAD_MULTIPLE: 3, 3, 4096;

    // attributes of communicators
    TagUb MPI_TAG_UB: 0, 0x6440_0001, 501;
    Lastusedcode MPI_LASTUSEDCODE: 5, 0x6440_000b, 506;

    // windows: attributes, models, assertions
    WinModel MPI_WIN_MODEL: 11, 0x6600_0009, 605;
    WinUnified MPI_WIN_UNIFIED: 0, 2, 321;
    ModeNocheck MPI_MODE_NOCHECK: 1, 1024, 1024;

    // error classes
    ErrRank MPI_ERR_RANK: 6, 6, 6;
    ErrTruncate MPI_ERR_TRUNCATE: 15, 14, 15;
    ErrNoMem MPI_ERR_NO_MEM: 39, 34, 39;
    ErrLastcode MPI_ERR_LASTCODE: 92, 0x3fff_ffff, 16383;

    // error classes of fault tolerance: Open MPI 5, MPICH
    ErrProcFailed MPIX_ERR_PROC_FAILED: 75, 101, ABSENT;
    ErrProcFailedPending MPIX_ERR_PROC_FAILED_PENDING: 76, 102, ABSENT;
}
