//! The life of a request: at rest, active, over, gone. Decides which of several threads that ask
//! after, wait for, withdraw or destroy one request does what, and who hears of its end.
//!
//! Not here: what an operation is and how it is moved on (`request` does that, in the functions that
//! it passes in). One lock, held while an operation is polled or withdrawn: so nothing is polled
//! after its end, and each end is heard of once. `tests/models` tries every order of two threads.

use crate::sys::lock::Mutex;

/// Where a request with operation `A` and outcome `O` stands.
pub(super) enum State<A, O> {
    /// Persistent and not started.
    AtRest,
    Active(A),
    /// Over, and nobody has heard of it yet.
    Over(O),
    /// Somebody has.
    Gone,
}

/// How a request stands, for who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    AtRest,
    Active,
    Over,
}

/// See the module's text.
pub(super) struct Life<A, O> {
    state: Mutex<State<A, O>>,
    returns: bool,
}

impl<A, O> Life<A, O> {
    /// Persistent: rests until it is started, and again after each end.
    pub(super) fn persistent() -> Self {
        Life { state: Mutex::new(State::AtRest), returns: true }
    }

    /// For one operation, which runs already.
    pub(super) fn active(operation: A) -> Self {
        Life { state: Mutex::new(State::Active(operation)), returns: false }
    }

    /// For one operation, which is over already.
    pub(super) fn over(outcome: O) -> Self {
        Life { state: Mutex::new(State::Over(outcome)), returns: false }
    }

    /// What follows an end that was heard of.
    fn after(&self) -> State<A, O> {
        if self.returns { State::AtRest } else { State::Gone }
    }

    /// Looks at the state.
    pub(super) fn look<R>(&self, look: impl FnOnce(&State<A, O>) -> R) -> R {
        look(&self.state.lock())
    }

    /// Starts what is at rest; `None` = it is not. If `begin` fails, it rests on.
    pub(super) fn start<E>(&self, begin: impl FnOnce() -> Result<A, E>) -> Option<Result<(), E>> {
        let mut state = self.state.lock();
        if !matches!(*state, State::AtRest) {
            return None;
        }
        Some(begin().map(|operation| *state = State::Active(operation)))
    }

    /// Moves it on without waiting; `poll` gives the outcome of an operation that is over. `None` =
    /// gone. Another thread that does so just now is not waited for.
    pub(super) fn settle<E>(
        &self,
        poll: impl FnOnce(&mut A) -> Result<Option<O>, E>,
    ) -> Result<Option<Standing>, E> {
        let Some(mut state) = self.state.try_lock() else { return Ok(Some(Standing::Active)) };
        let outcome = match &mut *state {
            State::AtRest => return Ok(Some(Standing::AtRest)),
            State::Over(_) => return Ok(Some(Standing::Over)),
            State::Gone => return Ok(None),
            State::Active(operation) => match poll(operation)? {
                Some(outcome) => outcome,
                None => return Ok(Some(Standing::Active)),
            },
        };
        *state = State::Over(outcome);
        Ok(Some(Standing::Over))
    }

    /// The outcome, if it is over and nobody was quicker; whoever takes it is the one to hear of it.
    pub(super) fn take_outcome(&self) -> Option<O> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, self.after()) {
            State::Over(outcome) => Some(outcome),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Ends it: an active operation is passed to `withdraw`, with the lock held, so that who asks
    /// meanwhile does not poll it; if that fails, it stays active. `None` = withdrawn, or another thread
    /// heard of its end; `resting` is the outcome of one at rest.
    pub(super) fn take_back<E>(
        &self,
        resting: O,
        withdraw: impl FnOnce(&mut A) -> Result<Option<O>, E>,
    ) -> Result<Option<O>, E> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, self.after()) {
            State::Active(mut operation) => {
                let withdrawn = withdraw(&mut operation);
                if withdrawn.is_err() {
                    *state = State::Active(operation);
                }
                withdrawn
            }
            State::Over(outcome) => Ok(Some(outcome)),
            State::AtRest => Ok(Some(resting)),
            State::Gone => Ok(None),
        }
    }
}
