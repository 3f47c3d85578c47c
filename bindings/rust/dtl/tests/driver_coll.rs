//! A transport between two threads that executes broadcasts and barriers itself.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]
#![allow(clippy::indexing_slicing, reason = "ranks of the test are indexes")]

use dtl_binding::driver::{
    Collective, CollectiveInfo, Collectives, Driver, Incoming, OpenRequest, Opened, Outgoing,
    Table, Transport,
};
use dtl_binding::{Comm, Error, Library, Open, Result, SUM, sys};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a rank has got: source, match word or `COLLECTIVE`, bytes.
type Inbox = Mutex<Vec<(i32, u64, Vec<u8>)>>;

/// No match word of the library.
const COLLECTIVE: u64 = u64::MAX;

#[derive(Default)]
struct Pair {
    inboxes: Arc<[Inbox; 2]>,
    started: Arc<AtomicUsize>,
}

struct Side {
    rank: usize,
    posted: Vec<Incoming>,
    collectives: Vec<Collective>,
}

impl Driver for Pair {}

impl Transport for Pair {
    type Comm = Side;

    fn open(&self, request: OpenRequest<'_>) -> Result<Opened<Side>> {
        let (rank, size) = request.place.unwrap();
        let side = Side { rank: rank as usize, posted: Vec::new(), collectives: Vec::new() };
        Ok(Opened { comm: side, rank, size })
    }

    fn send(&self, side: &mut Side, message: Outgoing) -> Result {
        let letter = (side.rank as i32, message.match_word(), message.bytes().to_vec());
        self.inboxes[message.dest() as usize].lock().unwrap().push(letter);
        message.complete();
        Ok(())
    }

    fn receive(&self, side: &mut Side, message: Incoming) -> Result {
        side.posted.push(message);
        Ok(())
    }

    fn progress(&self, side: &mut Side) -> Result {
        self.inboxes[side.rank].lock().unwrap().retain(|(source, word, bytes)| {
            if *word == COLLECTIVE && !side.collectives.is_empty() {
                let mut first = side.collectives.remove(0);
                first.write(0, 0, bytes);
                first.complete();
                return false;
            }
            let place = side.posted.iter().position(|one| one.matches(*source, *word));
            place.map(|place| side.posted.remove(place).deliver(*source, bytes)).is_none()
        });
        Ok(())
    }
}

impl Collectives for Pair {
    fn supports(&self, _side: &mut Side, which: &CollectiveInfo) -> Result<bool> {
        if which.collective == sys::DTL_COLLECTIVE_GATHER {
            return Err(Error::new(sys::DTL_ERROR_BACKEND, "no gathers today"));
        }
        assert!(which.collective != sys::DTL_COLLECTIVE_BCAST || which.dtype.is_some());
        Ok(matches!(which.collective, sys::DTL_COLLECTIVE_BCAST | sys::DTL_COLLECTIVE_BARRIER))
    }

    /// Each rank sends something to the other. The root of a broadcast is complete at once.
    fn start(&self, side: &mut Side, collective: Collective) -> Result {
        self.started.fetch_add(1, Ordering::SeqCst);
        let is_root = collective.info().root == Some(side.rank as i32);
        let has_root = collective.info().root.is_some();
        if is_root || !has_root {
            let bytes = if is_root { collective.result(0).to_vec() } else { Vec::new() };
            self.inboxes[1 - side.rank].lock().unwrap().push((side.rank as i32, COLLECTIVE, bytes));
        }
        assert!(collective.data(0).is_empty() && collective.data(7).is_empty());
        if is_root {
            collective.complete();
        } else {
            side.collectives.push(collective);
        }
        Ok(())
    }
}

#[test]
fn a_transport_executes_collectives() {
    let library = Library::init().unwrap();
    let pair = Pair::default();
    let started = Arc::clone(&pair.started);
    let backend = Table::new(pair).collectives().register("pair").unwrap();
    let both = |rank: i32| -> Result {
        let open =
            Open { kind: "pair", place: Some((rank, 2)), job: Some("pair"), ..Open::default() };
        let comm = Comm::open(&Open { timeout_ns: 20_000_000_000, ..open })?;
        let mut numbers = if rank == 1 { [1, 2, 3] } else { [0; 3] };
        comm.bcast(&mut numbers, 1)?;
        assert_eq!(numbers, [1, 2, 3]);
        comm.barrier()?;
        let mut sum = 0;
        comm.allreduce(&(rank + 1), &mut sum, SUM)?; // by the library's messages
        assert_eq!(sum, 3);
        let error = comm.gather(&[rank], &mut [0; 2][..], 0).unwrap_err();
        assert!(error.text.contains("no gathers today"), "{error}");
        Ok(())
    };
    std::thread::scope(|threads| {
        let sides = [0, 1].map(|rank| threads.spawn(move || both(rank)));
        sides.into_iter().for_each(|side| side.join().unwrap().unwrap());
    });
    assert_eq!(started.load(Ordering::SeqCst), 4, "two collectives on two ranks");
    backend.unregister().unwrap();
    drop(library);
}
