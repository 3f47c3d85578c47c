//! MPI's levels of thread support.

/// Which threads may call MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadLevel {
    /// There is only one.
    Single,
    /// The one that initialised it.
    Funneled,
    /// One at a time.
    Serialized,
    /// All.
    Multiple,
}

impl ThreadLevel {
    /// Its name in MPI.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            ThreadLevel::Single => "MPI_THREAD_SINGLE",
            ThreadLevel::Funneled => "MPI_THREAD_FUNNELED",
            ThreadLevel::Serialized => "MPI_THREAD_SERIALIZED",
            ThreadLevel::Multiple => "MPI_THREAD_MULTIPLE",
        }
    }
}
