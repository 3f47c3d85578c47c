//! Measurement of the messages from a rank, and the choice that follows from it.

use super::copy_choice::{CopyTimes, EAGER_SAMPLE, MessageSize};
use super::copy_method::CopyMethod;
use super::transfer_times::{EagerCopy, TransferEnd};
use crate::backend::shm::peer::Link;
use crate::sys::os::shm_segment::Span;
use crate::sys::sync::wait::now_ns;

impl Link {
    /// Returns true if a message of `len` bytes that arrives from the peer now is to be timed.
    pub(crate) fn is_timed(&mut self, len: usize) -> bool {
        let number = self.exchange.arrived;
        let is_sample = self.choices(false, true).is_timed(len, number);
        self.transfers.is_timed(number, is_sample)
    }

    /// Records that the copy of an eager message to the receive buffer has ended. Returns a
    /// description of the choice if it has changed.
    pub(crate) fn end_eager(
        &mut self,
        copy: &EagerCopy,
        shared: impl FnOnce() -> (Option<Span>, bool),
    ) -> Option<(String, String)> {
        let ns = now_ns().saturating_sub(copy.begun_ns).saturating_add(copy.sender_ns);
        self.times(shared).count(copy.size, EAGER_SAMPLE);
        self.record(copy.size, copy.method, (ns, 1))
    }

    /// Returns the times of the messages from the peer. `shared` returns the argument of
    /// [`CopyTimes::new`].
    fn times(&mut self, shared: impl FnOnce() -> (Option<Span>, bool)) -> &mut CopyTimes {
        self.times.get_or_insert_with(|| Box::new(CopyTimes::new(shared())))
    }

    /// Records that `count` messages took `ns` nanoseconds each, and publishes the choices. Returns
    /// a description of the choice if it has changed ([`CopyTimes::new_choice`]).
    fn record(
        &mut self,
        size: MessageSize,
        method: CopyMethod,
        (ns, count): (u64, u32),
    ) -> Option<(String, String)> {
        let times = self.times.as_mut()?;
        times.record(size, method, (ns, count));
        let new_choice = times.new_choice(size);
        self.publish();
        new_choice
    }

    /// Records that the transfer of a message of `len` bytes begins. `filled_ns` is the time that
    /// the sender took to fill the first cell before it announced the message; `None` if it did not
    /// measure it. Returns the time at which the transfer began, or 0 if it is not timed.
    /// `is_measurable` is false if there is no choice of methods. `shared` returns the argument of
    /// [`CopyTimes::new`].
    pub(crate) fn begin_transfer(
        &mut self,
        len: usize,
        is_measurable: bool,
        filled_ns: Option<u64>,
        shared: impl FnOnce() -> (Option<Span>, bool),
    ) -> u64 {
        if self.ended.take().is_some() {
            self.transfers.break_off();
        }
        let mut begun_ns = 0;
        let (started_ns, start_ns) = self.exchange.take_start();
        if is_measurable {
            self.times(shared).count(MessageSize::large(len), 1);
            if let Some(filled_ns) = filled_ns {
                let before_ns = if self.exchange.is_on { start_ns } else { filled_ns };
                begun_ns = now_ns().saturating_sub(before_ns);
            }
        }
        self.transfers.begin(begun_ns, started_ns);
        begun_ns
    }

    /// Records that a transfer has ended. In an exchange, the last one counts until the messages to
    /// the peer end, too: a method may delay those. Returns a description of the choice if it has
    /// changed.
    pub(crate) fn end_transfer(&mut self, ended: TransferEnd) -> Option<(String, String)> {
        self.exchange.receive();
        if self.exchange.is_on && self.transfers.is_last(&ended) && self.has_open_sends() {
            self.ended = Some(ended);
            return None;
        }
        self.record_transfer(&ended)
    }

    /// Records that a large message to the peer has been sent. Returns a description of the choice
    /// if it has changed.
    pub(crate) fn end_send(&mut self) -> Option<(String, String)> {
        self.transfers.count_sent();
        let is_over = self.ended.is_some() && !self.has_open_sends();
        let ended = self.ended.take_if(|_| is_over)?;
        self.record_transfer(&ended)
    }

    fn record_transfer(&mut self, ended: &TransferEnd) -> Option<(String, String)> {
        let time = self.transfers.end(ended, self.exchange.is_on, now_ns)?;
        self.record(MessageSize::large(ended.len), ended.method, time)
    }

    /// Records that a copy by the kernel failed, so that `method` is rarely tried. Methods that use
    /// cells are exempt.
    pub(crate) fn method_failed(&mut self, len: usize, method: CopyMethod) {
        let times = self.times.as_mut().filter(|_| !method.uses_cells());
        times.into_iter().for_each(|times| times.fail(MessageSize::large(len), method));
        self.publish();
    }

    fn publish(&self) {
        if let (Some(times), Some(consumer)) = (&self.times, &self.consumer) {
            consumer.publish_choices(times.choices.0);
        }
    }
}
