//! Groups of methods that some transports have and others do not. A transport returns all of its
//! groups at once, and a group is complete: none of its methods means "not supported".

use super::NativeCollectives;

/// One group: the transport as that trait, if it has it.
type Group<'a, T> = Option<&'a T>;

/// The groups of one transport. The same for its whole life, so that a communicator may keep what
/// it needs often.
#[derive(Clone, Copy)]
pub struct Groups<'a> {
    /// Collectives of the transport's own; on all ranks or on none.
    pub native_collectives: Group<'a, dyn NativeCollectives>,
}

impl Groups<'_> {
    /// Point-to-point messages only.
    pub const NONE: Self = Groups { native_collectives: None };
}
