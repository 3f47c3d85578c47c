//! Operations of a rank in a communicator, independent of the implementation.

use crate::out::Outcome;

/// Rank of a communicator under measurement. All messages use one tag; reductions add 32-bit
/// floats.
pub(crate) trait Endpoint {
    /// In texts.
    fn name(&self) -> &'static str;

    fn send(&mut self, data: &[u8], to: i32) -> Outcome;
    fn receive(&mut self, into: &mut [u8], from: i32) -> Outcome;

    /// Starts one message of a window. The buffer stays valid until [`Endpoint::finish`].
    fn start_send(&mut self, data: &[u8], to: i32) -> Outcome;
    fn start_receive(&mut self, into: &mut [u8], from: i32) -> Outcome;
    /// Waits for all that were started.
    fn finish(&mut self) -> Outcome;

    fn barrier(&mut self) -> Outcome;
    /// From rank 0.
    fn bcast(&mut self, data: &mut [u8]) -> Outcome;
    /// To rank 0.
    fn reduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    fn allreduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    /// `into` has room for every rank's data.
    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    /// `bytes` for each rank.
    fn alltoall(&mut self, data: &[u8], into: &mut [u8], bytes: usize) -> Outcome;
}

/// The size of what reductions add.
pub(crate) const ELEMENT: usize = size_of::<f32>();
