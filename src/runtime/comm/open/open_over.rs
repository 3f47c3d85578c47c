//! Opening of a self-contained communicator kind over another communicator: the ranks exchange
//! addresses over the other communicator, and do not use it afterwards.
//!
//! Not here: kinds that continue to use the communicator that they are opened over
//! (`coll::coll_device`).

use super::{group, open_kind};
use crate::abi::comm::communicator::{DTL_COMM_DETERMINISTIC, dtl_comm_desc_t};
use crate::error::Result;
use crate::runtime::comm::Comm;
use crate::runtime::comm::coll::allgather_words;
use crate::runtime::comm::op_desc::Kind;
use crate::runtime::component::{BOOTSTRAP_NS, Exchange, OpenArgs, all_or_none, failed_elsewhere};
use crate::runtime::registry::Backend;
use crate::sys::memory::buf::Addr;
use std::ffi::CString;
use std::sync::Arc;

impl Exchange for Comm {
    fn rank(&self) -> i32 {
        self.rank
    }

    fn size(&self) -> i32 {
        self.size
    }

    fn allgather(&self, mine: &[u64]) -> Result<Vec<u64>> {
        allgather_words(self, Kind::Open, mine)
    }
}

/// Opens a communicator as described, on all ranks or on none; its default time limit is `over`'s.
/// Collective over the ranks of `over`: a rank that cannot use the backend notifies the others.
pub(in crate::runtime::comm) fn make(
    backend: Arc<Backend>,
    over: &Arc<Comm>,
    raw: &dtl_comm_desc_t,
) -> Result<Comm> {
    let dtl_comm_desc_t { flags, timeout_ns, native, .. } = *raw;
    let timeout_ns = if timeout_ns == 0 { over.timeout_ns } else { timeout_ns };
    let limit_ns = timeout_ns.min(BOOTSTRAP_NS);
    // An internal communicator of the same ranks, used only for this bootstrap.
    let mut twin = group::internal_dup(over, Kind::Open)?;
    twin.timeout_ns = limit_ns;
    all_or_none(&twin, backend.ready(), &[], |rank, status| {
        failed_elsewhere(rank, status, &format!("cannot use kind \"{}\"", backend.name()))
    })?;
    let is_deterministic = flags & DTL_COMM_DETERMINISTIC != 0 || over.link.is_deterministic;
    let args = OpenArgs {
        flags: if is_deterministic { flags | DTL_COMM_DETERMINISTIC } else { flags },
        named: Some((over.rank, over.size)),
        launched: None,
        job: CString::default(),
        is_only_open: false,
        timeout_ns: limit_ns,
        native: Addr::new(native),
        own_algorithms: timeout_ns != u64::MAX || is_deterministic,
        over: Some(Arc::new(twin)),
    };
    open_kind::connect(backend, &args, timeout_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::handle::dtl_comm_t;
    use crate::abi::status::DTL_ERROR_UNAVAILABLE;
    use crate::runtime::component::{self, Availability, BackendProbe, Transport};
    use crate::sys::sync::lock::Mutex;

    type Fabric = Vec<Option<Box<dyn Transport>>>;

    /// Communicator kind whose ranks bootstrap over another communicator, not used afterwards.
    struct Meets(Mutex<Fabric>);

    impl component::Comm for Meets {
        fn bootstraps_over(&self) -> bool {
            true
        }

        fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
            let over = args.over.as_deref().expect("the communicator below");
            let words = over.allgather(&[10 + over.rank() as u64]).expect("all say theirs");
            assert_eq!(words, [10, 11, 12]);
            assert_eq!(
                (args.rank_size(), args.timeout_ns),
                (Some((over.rank(), 3)), 5_000_000_000)
            );
            Ok(self.0.lock()[over.rank() as usize].take().expect("not taken yet"))
        }
    }

    struct Can(bool);

    impl BackendProbe for Can {
        fn available(&self) -> Availability {
            if self.0 { Ok(()) } else { Err("no device".to_owned()) }
        }
    }

    fn fabric() -> (Arc<Backend>, Fabric) {
        let [_, threads] = crate::backend::inproc::backends();
        let ranks = threads
            .comm
            .as_ref()
            .and_then(|comm| comm.open_ranks(3))
            .expect("ranks")
            .expect("open");
        (Arc::new(threads), ranks.into_iter().map(Some).collect())
    }

    fn within(timeout_ns: u64) -> dtl_comm_desc_t {
        dtl_comm_desc_t {
            struct_size: size_of::<dtl_comm_desc_t>() as u32,
            flags: 0,
            kind: std::ptr::null(),
            rank: 0,
            size: 0,
            job: std::ptr::null(),
            timeout_ns,
            native: std::ptr::null_mut(),
            over: dtl_comm_t::NULL,
        }
    }

    /// Opens a communicator on three ranks; the rank `without` cannot use the backend.
    fn open_all(without: Option<usize>) -> Vec<Result<(i32, i32, u64)>> {
        let (threads, below) = fabric();
        let meets = Arc::new(Meets(Mutex::new(fabric().1)));
        std::thread::scope(|scope| {
            let open = |(rank, transport): (usize, Option<Box<dyn Transport>>)| {
                let (threads, meets) = (Arc::clone(&threads), Arc::clone(&meets));
                scope.spawn(move || {
                    let transport = transport.expect("each rank has one");
                    let below = Arc::new(
                        open_kind::assemble(threads, transport, 0, u64::MAX).expect("below"),
                    );
                    let mut kind = Backend::new(
                        c"meets",
                        i32::MIN,
                        true,
                        Box::new(Can(without != Some(rank))),
                    );
                    kind.comm = Some(Box::new(meets));
                    make(Arc::new(kind), &below, &within(5_000_000_000))
                        .map(|made| (made.rank, made.size, made.timeout_ns))
                })
            };
            let ranks: Vec<_> = below.into_iter().enumerate().map(open).collect();
            ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
        })
    }

    impl component::Comm for Arc<Meets> {
        fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
            self.as_ref().open(args)
        }
    }

    #[test]
    fn the_ranks_meet_over_the_one_below() {
        for (rank, made) in (0..).zip(open_all(None)) {
            assert_eq!(made.expect("open"), (rank, 3, 5_000_000_000));
        }
    }

    #[test]
    fn a_rank_that_cannot_is_told_of() {
        for (rank, made) in open_all(Some(1)).into_iter().enumerate() {
            let error = made.expect_err("rank 1 cannot");
            assert_eq!(error.status(), DTL_ERROR_UNAVAILABLE);
            let text = if rank == 1 { "no device" } else { "rank 1 cannot use kind \"meets\"" };
            assert!(error.text().contains(text), "{error}");
        }
    }
}
