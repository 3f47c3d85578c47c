//! Tests of `open_over`.

use super::*;
use crate::abi::status::DTL_ERROR_UNAVAILABLE;
use crate::backend::in_process;
use crate::from_c::blank;
use crate::runtime::component::{self, Availability, BackendProbe, Transport};
use crate::sys::sync::lock::Mutex;

type Fabric = Vec<Option<Box<dyn Transport>>>;

/// Backend of a communicator kind whose ranks use an existing communicator only to bootstrap.
struct Meets(Mutex<Fabric>);

impl component::Comm for Meets {
    fn bootstraps_over(&self) -> bool {
        true
    }

    fn open(&self, args: &OpenArgs) -> Result<Box<dyn Transport>> {
        let over = args.over.as_deref().expect("the communicator below");
        let words = over.allgather(&[10 + over.rank() as u64]).expect("all say theirs");
        assert_eq!(words, [10, 11, 12]);
        assert_eq!((args.rank_size(), args.timeout_ns), (Some((over.rank(), 3)), 5_000_000_000));
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
    let (threads, ranks) = in_process::threads(3);
    (threads, ranks.into_iter().map(Some).collect())
}

fn within(timeout_ns: u64) -> dtl_comm_desc_t {
    dtl_comm_desc_t { timeout_ns, ..blank() }
}

/// Opens a communicator on three ranks. The backend is unavailable on the rank `without`, if any.
fn open_all(without: Option<usize>) -> Vec<Result<(i32, i32, u64)>> {
    let (threads, below) = fabric();
    let meets = Arc::new(Meets(Mutex::new(fabric().1)));
    std::thread::scope(|scope| {
        let open = |(rank, transport): (usize, Option<Box<dyn Transport>>)| {
            let (threads, meets) = (Arc::clone(&threads), Arc::clone(&meets));
            scope.spawn(move || {
                let transport = transport.expect("each rank has one");
                let below =
                    Arc::new(open_kind::assemble(threads, transport, 0, u64::MAX).expect("below"));
                let mut kind =
                    Backend::new(c"meets", i32::MIN, true, Box::new(Can(without != Some(rank))));
                kind.comm = Some(Box::new(meets));
                make(Arc::new(kind), &below, &within(5_000_000_000), Addr::NULL)
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
