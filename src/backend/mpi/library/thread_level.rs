//! MPI's levels of thread support.

/// Threads that may call MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// The process has only one thread, which may call MPI.
    Single,
    /// Only the thread that initialized MPI may call MPI.
    Funneled,
    /// All threads may call MPI, one at a time.
    Serialized,
    /// All threads may call MPI at once.
    Multiple,
}

impl ThreadLevel {
    /// Returns the name of the level in MPI.
    pub fn text(self) -> &'static str {
        match self {
            ThreadLevel::Single => "MPI_THREAD_SINGLE",
            ThreadLevel::Funneled => "MPI_THREAD_FUNNELED",
            ThreadLevel::Serialized => "MPI_THREAD_SERIALIZED",
            ThreadLevel::Multiple => "MPI_THREAD_MULTIPLE",
        }
    }
}
