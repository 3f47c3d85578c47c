//! Code of the ranks in tests in which a rank is killed.

use crate::cases::barrier;
use crate::rank::*;
use dtl::abi::status::*;
use dtl::runtime::component::OpId;

/// Kills rank 1 while rank 0 has reserved messages of rank 1 and has a synchronous send to it.
pub(crate) fn killed_while_taken() {
    let comm = &open();
    let large = Buffer::filled(100_000, 3);
    barrier(comm);
    if comm.rank() == 1 {
        wait(comm, send(comm, &Buffer::filled(10, 4), 0, 1));
        let _offers = [send(comm, &large, 0, 2), ssend(comm, &Buffer::filled(10, 6), 0, 3)];
        wait(comm, receive(comm, &Buffer::new(1), from(0, 4)));
        // SAFETY: ends this process, which is what the case is about.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    if comm.rank() == 0 {
        let taken: Vec<OpId> =
            (1..4).map(|word| until(|| comm.take(from(1, word)).expect("take")).message).collect();
        let unmatched = ssend(comm, &Buffer::filled(10, 5), 1, 9);
        wait(comm, send(comm, &Buffer::new(1), 1, 4));
        assert_eq!(wait(comm, unmatched).status, DTL_ERROR_RANK_FAILURE);
        let into = Buffer::new(100_000);
        for (message, status) in
            taken.into_iter().zip([DTL_SUCCESS, DTL_ERROR_RANK_FAILURE, DTL_ERROR_RANK_FAILURE])
        {
            let op = comm.receive_matched(message, into.region()).expect("receive");
            assert_eq!(wait(comm, op).status, status);
        }
        assert!(into.holds(10, 4));
        assert_eq!(comm.probe(from(1, 1)).expect_err("dead").status(), DTL_ERROR_RANK_FAILURE);
        assert_eq!(comm.take(from(1, 1)).expect_err("dead").status(), DTL_ERROR_RANK_FAILURE);
        assert_eq!(comm.probe(from_any(1)).expect("anybody"), None);
        assert_eq!(comm.probe(from(2, 1)).expect("alive"), None);
    }
    for (me, other) in [(0, 2), (2, 0)] {
        if comm.rank() == me {
            let op = ssend(comm, &large, other, 8);
            assert_eq!(
                wait(comm, receive(comm, &Buffer::new(100_000), from(other, 8))).status,
                DTL_SUCCESS
            );
            assert_eq!(wait(comm, op).status, DTL_SUCCESS);
        }
    }
}

#[derive(PartialEq)]
pub(crate) enum Killed {
    Idle,
    InSend,
    InStream,
}

/// Kills rank 1; the other ranks must detect that within two seconds, in every kind of call.
pub(crate) fn killed(how: Killed) {
    let comm = &open();
    let (me, large) = (comm.rank(), Buffer::filled(40 << 20, 3));
    barrier(comm);
    if me == 1 {
        wait(comm, send(comm, &Buffer::filled(1000, 17), 0, 1));
        let op = (how != Killed::Idle).then(|| send(comm, &large, 0, 2));
        if how == Killed::InStream {
            // Until the first fragments are on their way.
            (0..20).for_each(|_| assert_eq!(comm.outcome(op.expect("sent")).expect("test"), None));
        }
        // SAFETY: ends this process, which is what the case is about.
        unsafe { libc::raise(libc::SIGKILL) };
    }
    let into = Buffer::new(40 << 20);
    let doomed = match me {
        0 => receive(comm, &into, from(1, if how == Killed::Idle { 9 } else { 2 })),
        2 => receive(comm, &into, from(1, 9)),
        _ => send(comm, &large, 1, 9),
    };
    assert_eq!(wait(comm, doomed).status, DTL_ERROR_RANK_FAILURE);
    assert_eq!((failed_ranks(comm), failed_count(comm)), (vec![1], 1));
    if me == 0 {
        // What had arrived before stays receivable, from anybody too.
        let early = wait(comm, receive(comm, &into, from_any(1)));
        assert_eq!((early.status, early.source), (DTL_SUCCESS, 1));
        assert!(into.holds(1000, 17));
    }
    // For the communicator to end, which determines whether the dead rank is one of its members.
    let any = receive(comm, &into, from_any(9));
    assert_eq!(comm.outcome(any).expect("test"), None);
    comm.cancel(any).expect("cancel");
    assert_eq!(wait(comm, any).status, DTL_ERROR_CANCELED);
    assert_eq!(wait(comm, send(comm, &large, 1, 9)).status, DTL_ERROR_RANK_FAILURE);
    // The living still talk to each other.
    for rank in [0, 2, 3] {
        let op = send(comm, &Buffer::filled(100, 1), rank, 8);
        assert_eq!(wait(comm, op).status, DTL_SUCCESS);
    }
    for rank in [0, 2, 3] {
        assert_eq!(wait(comm, receive(comm, &into, from(rank, 8))).status, DTL_SUCCESS);
    }
}
