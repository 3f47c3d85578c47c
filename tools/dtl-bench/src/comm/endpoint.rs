//! Interface to the operations of a rank, independent of the measured implementation (the library,
//! MPI).

use crate::out::Outcome;

/// Rank of the measured communicator. All messages have the same tag. Reductions compute sums of
/// 32-bit floats.
pub(crate) trait Endpoint {
    /// Returns the name of the measured implementation, for output.
    fn name(&self) -> &'static str;

    fn send(&mut self, data: &[u8], to: i32) -> Outcome;
    fn receive(&mut self, into: &mut [u8], from: i32) -> Outcome;

    /// Starts a nonblocking send. The buffer must stay valid until [`Endpoint::finish`] returns.
    fn start_send(&mut self, data: &[u8], to: i32) -> Outcome;
    fn start_receive(&mut self, into: &mut [u8], from: i32) -> Outcome;
    /// Waits for the completion of all nonblocking sends and receives that were started.
    fn finish(&mut self) -> Outcome;

    fn barrier(&mut self) -> Outcome;
    /// Broadcasts `data` from rank 0 to all ranks.
    fn bcast(&mut self, data: &mut [u8]) -> Outcome;
    /// Reduces data to rank 0.
    fn reduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    fn allreduce(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    /// Gathers the data of all ranks on every rank. `into` has space for the data of all ranks
    /// together.
    fn allgather(&mut self, data: &[u8], into: &mut [u8]) -> Outcome;
    /// Exchanges blocks of `bytes` bytes between all pairs of ranks.
    fn alltoall(&mut self, data: &[u8], into: &mut [u8], bytes: usize) -> Outcome;
}

/// Size in bytes of the elements of reductions.
pub(crate) const ELEMENT: usize = size_of::<f32>();
