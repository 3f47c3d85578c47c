//! Contents of a status of MPI's: source, tag and number of bytes of a message.
//!
//! MPI has a function for the number of bytes, which would be called after every receive. No
//! standard fixes where a status keeps that number, but each family has always kept it in the same
//! place: `Counter::of` lets MPI write numbers into a status and checks whether they are there.
//! Where they are not, the function is called.

use super::library::functions::Status;
use super::library::mpi_library::Mpi;
use crate::abi::status::DTL_SUCCESS;
use crate::runtime::component::Completion;

/// Where this MPI's statuses keep what. Small: it stands among what every message reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader {
    counter: Counter,
    source: u8,
    tag: u8,
}

impl Reader {
    /// The one that is right for this MPI. In a turn.
    pub(super) fn of(mpi: &Mpi) -> Reader {
        let place = |offset: usize| u8::try_from(offset).unwrap_or(u8::MAX);
        let (source, tag) = (place(mpi.k.status_source), place(mpi.k.status_tag));
        Reader { counter: Counter::of(mpi), source, tag }
    }

    /// Outcome of a receive that is over.
    pub(super) fn done(self, mpi: &Mpi, status: &Status) -> Completion {
        let mut told = Completion::NOBODY;
        self.tell(mpi, status, &mut told);
        told
    }

    /// Writes the outcome of a receive that is over to `told`.
    #[inline]
    pub(super) fn tell(self, mpi: &Mpi, status: &Status, told: &mut Completion) {
        told.source = status.int(self.source.into());
        told.status = DTL_SUCCESS;
        told.match_bits = u64::from(status.int(self.tag.into()).unsigned_abs());
        told.size = self.counter.size(mpi, status);
    }
}

/// Where the number of bytes is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counter {
    /// Open MPI: one number, after three `int`s and one that flags a cancellation.
    Field,
    /// MPICH and its family: 63 bits in front; the lowest bit of the upper half flags a
    /// cancellation.
    Halves,
    /// By MPI's function.
    Call,
}

/// Numbers that lie elsewhere are not taken for the right ones.
const TRIED: [i64; 3] = [8, 0x1_2345_6789, 0];

impl Counter {
    /// The way that is right for this MPI.
    fn of(mpi: &Mpi) -> Counter {
        let is_right = |counter: &Counter| TRIED.iter().all(|size| written(mpi, *size, *counter));
        [Counter::Field, Counter::Halves].into_iter().find(is_right).unwrap_or(Counter::Call)
    }

    /// Bytes of a message; 0 if MPI cannot report them.
    #[inline]
    fn size(self, mpi: &Mpi, status: &Status) -> u64 {
        match self {
            Counter::Field => status.long(16),
            // One after the other, as MPI has written them: together they would have to reach the
            // cache first.
            Counter::Halves => {
                let [low, high] = [0, 4].map(|offset| u64::from(status.int(offset) as u32));
                high >> 1 << 32 | low
            }
            Counter::Call => ask(mpi, status),
        }
    }
}

/// Whether this MPI writes a size where it is looked for.
fn written(mpi: &Mpi, size: i64, counter: Counter) -> bool {
    let set = mpi.call.MPI_Status_set_elements_c.or(mpi.call.MPI_Status_set_elements_x);
    let Some(set) = set else { return false };
    let mut status = Status::new();
    // SAFETY: a status of our own; a datatype of MPI's.
    let told = unsafe { set(&raw mut status, mpi.k.byte, size) };
    told == 0 && Ok(counter.size(mpi, &status)) == u64::try_from(size)
}

fn ask(mpi: &Mpi, status: &Status) -> u64 {
    let (mut count, call) = (0, &mpi.call);
    let ask = call.MPI_Get_elements_c.or(call.MPI_Get_elements_x);
    let told = match ask {
        // SAFETY: a status that MPI has filled in; a writable number.
        Some(ask) => unsafe { ask(status, mpi.k.byte, &raw mut count) },
        None => return 0,
    };
    if told == 0 { u64::try_from(count).unwrap_or(0) } else { 0 }
}
