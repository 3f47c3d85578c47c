//! Kinds of operations on a communicator: messages, collectives, one-sided operations, and
//! operations that create a communicator.

macro_rules! kinds {
    ($($name:ident $text:literal),+ $(,)?) => {
        /// Kind of an operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Kind { $(#[doc = $text] $name),+ }
        /// All kinds of operations with their names, in the order of their numbers.
        pub(crate) const KINDS: &[(Kind, &str)] = &[$((Kind::$name, $text)),+];
    };
}
kinds! {
    Send "send", Ssend "ssend", Recv "recv", Probe "probe", Sendrecv "sendrecv",
    Put "put", Get "get", Barrier "barrier", Bcast "bcast", Reduce "reduce", Allreduce "allreduce",
        Gather "gather",
    Gatherv "gatherv", Scatter "scatter", Scatterv "scatterv", Allgather "allgather",
    Allgatherv "allgatherv", Alltoall "alltoall", Alltoallv "alltoallv",
    ReduceScatter "reduce_scatter", ReduceScatterBlock "reduce_scatter_block", Scan "scan",
    Exscan "exscan", NeighborAlltoallv "neighbor_alltoallv", Split "split", Dup "dup", Open "open",
        Shrink "shrink",
    GroupCreate "group_create", WinCreate "win_create/allocate", WinDestroy "win_destroy",
        Fence "fence",
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("?", |(_, name)| name)
    }

    /// Returns the kind whose index in `KINDS` is `number`; `None` if the index is out of range.
    pub(crate) fn of(number: u64) -> Option<Kind> {
        KINDS.get(usize::try_from(number).ok()?).map(|(kind, _)| *kind)
    }

    pub(crate) fn is_collective(self) -> bool {
        self as u8 >= Kind::Barrier as u8
    }

    /// Returns true if the operation creates a communicator, either for the user or for internal
    /// use.
    pub(crate) fn makes_comm(self) -> bool {
        matches!(
            self,
            Kind::Dup
                | Kind::Split
                | Kind::GroupCreate
                | Kind::Open
                | Kind::WinCreate
                | Kind::Shrink
        )
    }
}
