//! What a request may be besides a message: a collective that was started, an operation on a window.

use super::super::recorder::Call;
use super::super::run::Run;
use super::super::schedule::Advance;
use super::super::window::way;
use super::super::{Comm, p2p};
use super::{Outcome, at_rest, failed};
use crate::abi::status::DTL_ERROR_CANCELED;
use crate::error::{Error, Result};
use std::sync::Arc;

#[allow(clippy::large_enum_variant, reason = "always in a box")]
pub(super) enum Other {
    Collective(Run),
    /// Of a window, whose way knows it under this ticket.
    Window(Arc<dyn way::Way>, way::Ticket),
}

impl Other {
    /// Moves it on; its outcome, if it is over.
    #[inline(never)]
    pub(super) fn poll(&mut self, comm: &Comm) -> Option<Outcome> {
        match self {
            Other::Collective(run) => match run.progress(comm) {
                Ok(Advance::Done) => {
                    run.recycle(comm);
                    Some((p2p::NOBODY, Ok(())))
                }
                Ok(_) => None,
                Err(error) => {
                    run.fail(comm, &error);
                    Some(failed(error))
                }
            },
            Other::Window(way, ticket) => match way.is_over(*ticket) {
                Ok(is_over) => is_over.then(at_rest),
                Err(error) => Some(failed(error)),
            },
        }
    }

    pub(super) fn take_back(&mut self, comm: &Comm) -> Result<()> {
        match self {
            Other::Collective(run) => {
                run.fail(comm, &Error::new(DTL_ERROR_CANCELED, "it was given up before it was over"));
                Ok(())
            }
            Other::Window(way, ticket) => way.withdraw(*ticket),
        }
    }

    /// What was called, of a collective.
    pub(super) fn call(&self) -> Option<&Call> {
        match self {
            Other::Collective(run) => Some(run.call()),
            Other::Window(..) => None,
        }
    }

    pub(super) fn is_irrevocable(&self) -> bool {
        matches!(self, Other::Collective(run) if run.is_irrevocable())
    }
}
