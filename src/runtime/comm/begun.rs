//! A collective that has begun, for who waits for its end and for who wants it under a handle.

use super::Comm;
use super::call::Kind;
use super::run::Run;
use super::staged::Stage;
use crate::error::Result;
use std::ops::Deref;

/// Who calls a collective.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    comm: &'a Comm,
    waits: bool,
}

impl<'a> Caller<'a> {
    /// One who waits for its end.
    #[inline(always)]
    pub fn waiting(comm: &'a Comm) -> Self {
        Caller { comm, waits: true }
    }

    /// One who wants it under a handle.
    #[inline(always)]
    pub fn starting(comm: &'a Comm) -> Self {
        Caller { comm, waits: false }
    }

    #[inline(always)]
    pub(super) fn waits(self) -> bool {
        self.waits
    }
}

impl Deref for Caller<'_> {
    type Target = Comm;

    #[inline(always)]
    fn deref(&self) -> &Comm {
        self.comm
    }
}

/// A collective that has begun.
#[allow(clippy::large_enum_variant, reason = "on the stack, and moved once")]
pub enum Begun {
    /// It is over already.
    Over(Kind),
    /// It goes on.
    Going(Run),
}

impl Begun {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Begun::Over(kind) => *kind,
            Begun::Going(run) => run.call().kind,
        }
    }

    /// What it was started with stands for buffers that get their results when it is over.
    pub(super) fn with(self, stage: Stage) -> Result<Self> {
        match self {
            Begun::Over(kind) => match stage.deliver() {
                Ok(()) => Ok(Begun::Over(kind)),
                Err(error) => Err(error.within(kind.name())),
            },
            Begun::Going(run) => Ok(Begun::Going(run.with(stage))),
        }
    }

    /// Makes it go on as a request: what can be done at once is done. `None` = it is over.
    pub(super) fn start(self, comm: &Comm) -> Result<Option<Run>> {
        match self {
            Begun::Over(_) => Ok(None),
            Begun::Going(run) => run.start(comm),
        }
    }
}

/// Waits for the end of one that was to begin. After a failure nothing touches the caller's
/// buffers.
#[inline(always)]
pub fn wait(comm: &Comm, begun: Result<Begun>) -> Result<()> {
    if let Ok(Begun::Over(_)) = begun {
        // It owns nothing; to drop it is a call.
        std::mem::forget(begun);
        return Ok(());
    }
    wait_for(comm, begun)
}

#[inline(never)]
fn wait_for(comm: &Comm, begun: Result<Begun>) -> Result<()> {
    // As a whole, for taking it to pieces first would move it.
    match begun {
        Ok(Begun::Over(_)) => Ok(()),
        Ok(Begun::Going(run)) => run.wait(comm),
        Err(error) => Err(error),
    }
}
