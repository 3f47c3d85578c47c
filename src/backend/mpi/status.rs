//! Contents of an MPI status: source, tag and number of bytes of a message.
//!
//! MPI has a function that returns the number of bytes, but it would have to be called after every
//! receive. No standard fixes the offset of that number in a status, but each MPI family has always
//! had it at the same offset: `Counter::of` has MPI write numbers into a status and checks whether
//! they are at that offset. If they are not, the function is called.

use super::library::functions::Status;
use super::library::mpi_library::Mpi;
use crate::abi::status::DTL_SUCCESS;
use crate::runtime::component::Completion;

/// Offsets of the fields of MPI_Status in the loaded MPI library. `Reader` is small because the
/// library reads it for every message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    counter: Counter,
    source: u8,
    tag: u8,
}

impl Reader {
    /// Determines the offsets of the fields of MPI_Status in this MPI library. The caller must hold
    /// an `MpiGuard`.
    pub(super) fn of(mpi: &Mpi) -> Reader {
        let place = |offset: usize| u8::try_from(offset).unwrap_or(u8::MAX);
        let (source, tag) = (place(mpi.abi.status_source), place(mpi.abi.status_tag));
        Reader { counter: Counter::of(mpi), source, tag }
    }

    /// Converts the status of a completed receive to a `Completion`.
    pub(super) fn done(self, mpi: &Mpi, status: &Status) -> Completion {
        let mut completion = Completion::NOBODY;
        self.tell(mpi, status, &mut completion);
        completion
    }

    /// Writes the outcome of a completed receive to the caller's `Completion`.
    pub(super) fn tell(self, mpi: &Mpi, status: &Status, completion: &mut Completion) {
        completion.source = status.int(self.source.into());
        completion.status = DTL_SUCCESS;
        completion.match_bits = u64::from(status.int(self.tag.into()).unsigned_abs());
        completion.size = self.counter.size(mpi, status);
    }
}

/// Method of reading the number of bytes of a message from a status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counter {
    /// Open MPI: one 64-bit field, after three `int`s and an `int` with the cancellation flag.
    Field,
    /// MPICH family: the first 64 bits of the status, except bit 32, which is the cancellation
    /// flag.
    Halves,
    /// Call to an MPI function (such as MPI_Get_elements_x).
    Call,
}

/// Message sizes, in bytes, that are used to check a `Counter`. They are chosen so that another
/// field of the status is not mistaken for the size.
const TRIED: [i64; 3] = [8, 0x1_2345_6789, 0];

impl Counter {
    /// Determines the method that reads the correct number of bytes with this MPI.
    fn of(mpi: &Mpi) -> Counter {
        let is_right = |counter: &Counter| TRIED.iter().all(|size| written(mpi, *size, *counter));
        [Counter::Field, Counter::Halves].into_iter().find(is_right).unwrap_or(Counter::Call)
    }

    /// Returns the number of bytes of a message; returns 0 if MPI cannot report it.
    fn size(self, mpi: &Mpi, status: &Status) -> u64 {
        match self {
            Counter::Field => status.long(16),
            // Two separate loads, because MPI has written the halves separately: one load of both
            // would have to wait until the stores reach the cache.
            Counter::Halves => {
                let [low, high] = [0, 4].map(|offset| u64::from(status.int(offset) as u32));
                high >> 1 << 32 | low
            }
            Counter::Call => ask(mpi, status),
        }
    }
}

/// Returns true if this MPI writes a size at the offset at which `counter` reads it.
fn written(mpi: &Mpi, size: i64, counter: Counter) -> bool {
    let set = mpi.call.MPI_Status_set_elements_c.or(mpi.call.MPI_Status_set_elements_x);
    let Some(set) = set else { return false };
    let mut status = Status::new();
    // SAFETY: the status is a local, and the datatype is MPI's.
    let code = unsafe { set(&raw mut status, mpi.k.byte, size) };
    code == 0 && Ok(counter.size(mpi, &status)) == u64::try_from(size)
}

fn ask(mpi: &Mpi, status: &Status) -> u64 {
    let ask = mpi.call.MPI_Get_elements_c.or(mpi.call.MPI_Get_elements_x);
    let Some(ask) = ask else { return 0 };
    let mut count = 0;
    // SAFETY: MPI has filled in the status; `count` is a writable number.
    let code = unsafe { ask(status, mpi.k.byte, &raw mut count) };
    if code == 0 { u64::try_from(count).unwrap_or(0) } else { 0 }
}
