//! Integer constants, with their value in each interface.

use super::names;

/// A value that none of MPI's integer constants has: the interface knows no such name.
pub const ABSENT: i32 = i32::MIN;

names! {
    /// An integer constant.
    ///
    /// `MPI_UNIVERSE_SIZE` and `MPI_LASTUSEDCODE` of the standard ABI are those of the final document; see
    /// [`super::DRAFT_ERRORS_RETURN`].
    Int, value -> i32,

    // ranks and tags
    AnySource MPI_ANY_SOURCE: -1, -2, -1;
    AnyTag MPI_ANY_TAG: -1, -1, -2;
    ProcNull MPI_PROC_NULL: -2, -1, -3;
    Root MPI_ROOT: -4, -3, -4;
    Undefined MPI_UNDEFINED: -32766, -32766, -32766;

    // thread levels
    ThreadSingle MPI_THREAD_SINGLE: 0, 0, 0;
    ThreadFunneled MPI_THREAD_FUNNELED: 1, 1, 1024;
    ThreadSerialized MPI_THREAD_SERIALIZED: 2, 2, 2048;
    ThreadMultiple MPI_THREAD_MULTIPLE: 3, 3, 4096;

    // communicators
    CommTypeShared MPI_COMM_TYPE_SHARED: 0, 1, 221;
    Ident MPI_IDENT: 0, 0, 201;
    Congruent MPI_CONGRUENT: 1, 1, 202;
    Similar MPI_SIMILAR: 2, 2, 203;
    Unequal MPI_UNEQUAL: 3, 3, 204;

    // attributes of communicators
    TagUb MPI_TAG_UB: 0, 0x6440_0001, 501;
    WtimeIsGlobal MPI_WTIME_IS_GLOBAL: 3, 0x6440_0007, 504;
    UniverseSize MPI_UNIVERSE_SIZE: 6, 0x6440_0009, 507;
    Lastusedcode MPI_LASTUSEDCODE: 5, 0x6440_000b, 506;
    KeyvalInvalid MPI_KEYVAL_INVALID: -1, 0x2400_0000, 0;

    // windows: attributes, flavours, models, locks, assertions
    WinBase MPI_WIN_BASE: 7, 0x6600_0001, 601;
    WinSize MPI_WIN_SIZE: 8, 0x6600_0003, 603;
    WinDispUnit MPI_WIN_DISP_UNIT: 9, 0x6600_0005, 602;
    WinCreateFlavor MPI_WIN_CREATE_FLAVOR: 10, 0x6600_0007, 604;
    WinModel MPI_WIN_MODEL: 11, 0x6600_0009, 605;
    WinFlavorCreate MPI_WIN_FLAVOR_CREATE: 1, 1, 311;
    WinFlavorAllocate MPI_WIN_FLAVOR_ALLOCATE: 2, 2, 312;
    WinFlavorDynamic MPI_WIN_FLAVOR_DYNAMIC: 3, 3, 313;
    WinFlavorShared MPI_WIN_FLAVOR_SHARED: 4, 4, 314;
    WinSeparate MPI_WIN_SEPARATE: 1, 1, 322;
    WinUnified MPI_WIN_UNIFIED: 0, 2, 321;
    LockExclusive MPI_LOCK_EXCLUSIVE: 1, 234, 301;
    LockShared MPI_LOCK_SHARED: 2, 235, 302;
    ModeNocheck MPI_MODE_NOCHECK: 1, 1024, 1024;
    ModeNostore MPI_MODE_NOSTORE: 8, 2048, 8192;
    ModeNoput MPI_MODE_NOPUT: 4, 4096, 4096;
    ModeNoprecede MPI_MODE_NOPRECEDE: 2, 8192, 2048;
    ModeNosucceed MPI_MODE_NOSUCCEED: 16, 16384, 16384;

    // room for texts, in bytes
    MaxErrorString MPI_MAX_ERROR_STRING: 256, 512, 512;
    MaxLibraryVersionString MPI_MAX_LIBRARY_VERSION_STRING: 256, 8192, 8192;
    MaxProcessorName MPI_MAX_PROCESSOR_NAME: 256, 128, 256;
    MaxObjectName MPI_MAX_OBJECT_NAME: 64, 128, 128;
    MaxInfoKey MPI_MAX_INFO_KEY: 36, 255, 256;
    MaxInfoVal MPI_MAX_INFO_VAL: 256, 1024, 1024;

    // error classes
    Success MPI_SUCCESS: 0, 0, 0;
    ErrBuffer MPI_ERR_BUFFER: 1, 1, 1;
    ErrCount MPI_ERR_COUNT: 2, 2, 2;
    ErrType MPI_ERR_TYPE: 3, 3, 3;
    ErrTag MPI_ERR_TAG: 4, 4, 4;
    ErrComm MPI_ERR_COMM: 5, 5, 5;
    ErrRank MPI_ERR_RANK: 6, 6, 6;
    ErrRequest MPI_ERR_REQUEST: 7, 19, 7;
    ErrRoot MPI_ERR_ROOT: 8, 7, 8;
    ErrGroup MPI_ERR_GROUP: 9, 8, 9;
    ErrOp MPI_ERR_OP: 10, 9, 10;
    ErrTopology MPI_ERR_TOPOLOGY: 11, 10, 11;
    ErrDims MPI_ERR_DIMS: 12, 11, 12;
    ErrArg MPI_ERR_ARG: 13, 12, 13;
    ErrUnknown MPI_ERR_UNKNOWN: 14, 13, 14;
    ErrTruncate MPI_ERR_TRUNCATE: 15, 14, 15;
    ErrOther MPI_ERR_OTHER: 16, 15, 16;
    ErrIntern MPI_ERR_INTERN: 17, 16, 17;
    ErrInStatus MPI_ERR_IN_STATUS: 18, 17, 19;
    ErrPending MPI_ERR_PENDING: 19, 18, 18;
    ErrNoMem MPI_ERR_NO_MEM: 39, 34, 39;
    ErrKeyval MPI_ERR_KEYVAL: 36, 48, 36;
    ErrInfo MPI_ERR_INFO: 34, 28, 34;
    ErrUnsupportedOperation MPI_ERR_UNSUPPORTED_OPERATION: 52, 44, 55;
    ErrLastcode MPI_ERR_LASTCODE: 92, 0x3fff_ffff, 16383;

    // error classes of windows
    ErrWin MPI_ERR_WIN: 53, 45, 56;
    ErrBase MPI_ERR_BASE: 24, 46, 24;
    ErrSize MPI_ERR_SIZE: 49, 51, 52;
    ErrDisp MPI_ERR_DISP: 26, 52, 26;
    ErrLocktype MPI_ERR_LOCKTYPE: 37, 47, 37;
    ErrAssert MPI_ERR_ASSERT: 22, 53, 22;
    ErrRmaConflict MPI_ERR_RMA_CONFLICT: 46, 49, 47;
    ErrRmaSync MPI_ERR_RMA_SYNC: 47, 50, 50;
    ErrRmaRange MPI_ERR_RMA_RANGE: 68, 55, 48;
    ErrRmaAttach MPI_ERR_RMA_ATTACH: 69, 56, 46;
    ErrRmaShared MPI_ERR_RMA_SHARED: 71, 57, 49;
    ErrRmaFlavor MPI_ERR_RMA_FLAVOR: 70, 58, 57;

    // error classes of fault tolerance: Open MPI 5, MPICH
    ErrProcFailed MPIX_ERR_PROC_FAILED: 75, 101, ABSENT;
    ErrProcFailedPending MPIX_ERR_PROC_FAILED_PENDING: 76, 102, ABSENT;
    ErrRevoked MPIX_ERR_REVOKED: 77, 103, ABSENT;
}
