//! Tests of messages, requests in scopes, and windows, between ranks that are threads.
//!
//! Needs libdtl.so.0.2: DTL_LIB_DIR=$PWD/build/stage/lib cargo test -p dtl-binding.

#![allow(clippy::unwrap_used, reason = "a call that fails fails the test")]

use dtl_binding::{Backend, Comm, Dtype, Event, Open, REPLACE, SUM, Stream, Window, scope, sys};
use std::panic::{AssertUnwindSafe, catch_unwind};

const NO_LIMIT: u64 = sys::DTL_TIMEOUT_INFINITE;

/// Runs `body` on each of two ranks, with its rank and the other rank.
fn on_two_ranks(body: impl Fn(&Comm, i32, i32) + Sync) {
    let ranks = Comm::threads(2, NO_LIMIT).unwrap();
    std::thread::scope(|threads| {
        for comm in &ranks {
            threads.spawn(|| {
                let rank = comm.rank().unwrap();
                body(comm, rank, 1 - rank);
            });
        }
    });
}

fn alone() -> Comm {
    Comm::open(&Open { kind: "self", place: Some((0, 1)), ..Open::default() }).unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq, Dtype)]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    id: u64,
}

mod renamed {
    pub(crate) use dtl_binding as dtl;

    /// A struct whose crate calls this package `dtl`.
    #[derive(Clone, Copy, dtl::Dtype)]
    #[dtype(crate = crate::renamed::dtl)]
    #[repr(C, align(16))]
    pub(crate) struct Aligned(pub(crate) [u64; 2]);
}

#[test]
fn buffers_are_values_arrays_slices_and_vectors() {
    on_two_ranks(|comm, rank, other| {
        let numbers = [1_i32, 2, 3, 4];
        if rank == 0 {
            comm.send(&7_u64, other, 1).unwrap();
            comm.send(&numbers, other, 2).unwrap();
            comm.send(&numbers[1..3], other, 3).unwrap();
            comm.ssend(&numbers.to_vec(), other, 4).unwrap();
            comm.send::<[f64]>(&[], other, 5).unwrap();
            return;
        }
        let (mut value, mut array, mut vector) = (0_u64, [0_i32; 8], vec![0_i32; 8]);
        assert_eq!(comm.recv(&mut value, other, 1).unwrap().count::<u64>(), 1);
        assert_eq!(value, 7);
        let received = comm.recv(&mut array, other, 2).unwrap();
        assert_eq!((received.source, received.tag, received.size_bytes), (other, 2, 16));
        assert_eq!(array, [1, 2, 3, 4, 0, 0, 0, 0]);
        comm.recv(&mut vector[6..], other, 3).unwrap();
        assert_eq!(vector, [0, 0, 0, 0, 0, 0, 2, 3]);
        assert_eq!(comm.recv(&mut vector, sys::DTL_ANY_SOURCE, 4).unwrap().source, other);
        assert_eq!(vector[..4], numbers);
        assert_eq!(comm.recv(&mut value, other, 5).unwrap().size_bytes, 0);
    });
}

#[test]
fn a_message_that_is_too_long_is_truncated() {
    on_two_ranks(|comm, rank, other| {
        if rank == 0 {
            comm.send(&[1_u8, 2, 3], other, 1).unwrap();
        } else {
            let mut room = [0_u8; 4];
            let error = comm.recv(&mut room[..2], other, 1).unwrap_err();
            assert_eq!(error.status, sys::DTL_ERROR_TRUNCATED, "{error}");
            assert_eq!(room, [1, 2, 0, 0]);
        }
    });
}

#[test]
fn messages_are_exchanged_and_probed() {
    on_two_ranks(|comm, rank, other| {
        let mut got = [0_i32; 2];
        comm.sendrecv(&[rank; 2], other, 3, &mut got, other, 3).unwrap();
        assert_eq!(got, [other; 2]);
        comm.sendrecv_replace(&mut got, other, 4, other, 4).unwrap();
        assert_eq!(got, [rank; 2]);
        assert!(comm.iprobe(other, 5).unwrap().is_none());
        comm.barrier().unwrap();
        comm.send(&[rank; 2], other, 5).unwrap();
        assert_eq!(comm.probe(other, 5).unwrap().size_bytes, 8);
        let (message, envelope) = comm.mprobe(other, 5).unwrap();
        assert_eq!(envelope.count::<i32>(), 2);
        assert_eq!(message.recv(&mut got).unwrap(), envelope);
        assert_eq!(got, [other; 2]);
        comm.send(&rank, other, 5).unwrap();
        let mut value = -1;
        scope(|s| {
            let (message, _) = comm.mprobe(other, 5)?;
            s.imrecv(message, &mut value)?.wait().map(drop)
        })
        .unwrap();
        assert_eq!(value, other);
    });
}

#[test]
fn structs_are_sent_and_have_one_dtype() {
    on_two_ranks(|comm, rank, other| {
        let sent = Particle { position: [1.0, 2.0, f64::from(rank)], id: rank as u64 };
        let mut got = [sent; 2];
        comm.sendrecv(&sent, other, 1, &mut got[..1], other, 1).unwrap();
        assert_eq!(got[0].id, other as u64);
        assert_eq!(got[0].position[2], f64::from(other));
        let mut aligned = renamed::Aligned([rank as u64; 2]);
        comm.bcast(&mut aligned, 1).unwrap();
        assert_eq!(aligned.0, [1; 2]);
    });
    let (dtype, mut size) = (Particle::dtype().unwrap(), 0);
    assert_eq!(dtype, Particle::dtype().unwrap());
    // SAFETY: the output is a local.
    dtl_binding::check("", unsafe { sys::dtl_dtype_size(dtype, &raw mut size) }).unwrap();
    assert_eq!(size, 32);
}

#[test]
fn requests_return_their_buffers() {
    on_two_ranks(|comm, rank, other| {
        let (mut first, mut second) = ([0_u8; 4], vec![0_u64; 100_000]);
        let (small, large) = ([rank as u8; 4], vec![rank as u64; 100_000]);
        scope(|s| {
            let mut receive = s.irecv(comm, &mut first, other, 6)?;
            let long = s.irecv(comm, &mut second, other, 7)?;
            let mut sends =
                vec![s.isend(comm, &small, other, 6)?, s.issend(comm, &large, other, 7)?];
            let completed = loop {
                if let Some(completed) = receive.test()? {
                    break completed;
                }
            };
            assert_eq!(completed.received.size_bytes, 4);
            assert_eq!(*completed.buffer, [other as u8; 4]);
            let error = receive.test().unwrap_err();
            assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE, "{error}");
            // The buffer is used again in the scope.
            let again = s.irecv(comm, completed.buffer, other, 8)?;
            sends.push(s.isend(comm, &small[..2], other, 8)?);
            assert_eq!(again.wait()?.received.size_bytes, 2);
            assert_eq!(long.wait()?.buffer[99_999], other as u64);
            sends.into_iter().try_for_each(|send| send.wait().map(drop))
        })
        .unwrap();
        assert_eq!(second[0], other as u64);
    });
}

#[test]
fn a_scope_waits_for_all() {
    on_two_ranks(|comm, rank, other| {
        let (mut got, sent) = ([[0_i32; 10]; 20], [rank; 10]);
        scope(|s| {
            for (tag, buf) in (0..).zip(&mut got) {
                std::mem::forget(s.irecv(comm, buf, other, tag)?);
                std::mem::forget(s.isend(comm, &sent, other, tag)?);
            }
            s.wait_all()
        })
        .unwrap();
        assert_eq!(got, [[other; 10]; 20]);
    });
}

#[test]
fn the_end_of_a_scope_cancels() {
    let comm = alone();
    let mut buffers = [[0_u8; 8]; 3];
    let [first, second, third] = &mut buffers;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        scope(|s| {
            // Dropped, leaked, and open when the scope unwinds.
            drop(s.irecv(&comm, first, 0, 1).unwrap());
            std::mem::forget(s.irecv(&comm, second, 0, 2).unwrap());
            let _open = s.irecv(&comm, third, 0, 3).unwrap();
            panic!("unwinds");
        })
    }));
    outcome.unwrap_err();
    // No receive takes these messages, or writes into the buffers.
    for tag in 1..4 {
        comm.send(&[9_u8; 8], 0, tag).unwrap();
    }
    assert_eq!(buffers, [[0; 8]; 3]);
    for tag in 1..4 {
        comm.recv(&mut buffers[0], 0, tag).unwrap();
    }
    assert_eq!(buffers[0], [9; 8]);
}

#[test]
fn requests_time_out_and_are_cancelled() {
    let comm = alone();
    let mut byte = 0_u8;
    scope(|s| {
        let mut request = s.irecv(&comm, &mut byte, 0, 1).unwrap();
        assert!(request.wait_for(0).unwrap().is_none());
        request.cancel().unwrap();
        let error = request.wait().unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_CANCELED);
    });
}

#[test]
fn persistent_requests_are_started_again() {
    on_two_ranks(|comm, rank, other| {
        let (mut sent, mut got) = (vec![0_i32; 3000], vec![0_i32; 3000]);
        scope(|s| {
            let mut receive = s.recv_init(comm, &mut got, other, 1)?;
            let mut send = s.send_init(comm, &mut sent, other, 1)?;
            for step in 0..5 {
                receive.start()?;
                assert_eq!(receive.start().unwrap_err().status, sys::DTL_ERROR_INVALID_STATE);
                assert_eq!(receive.elements().unwrap_err().status, sys::DTL_ERROR_INVALID_STATE);
                send.elements()?.fill(10 * step + rank);
                send.start()?;
                let received = loop {
                    if let Some(received) = receive.test()? {
                        break received;
                    }
                };
                assert_eq!((received.source, received.count::<i32>()), (other, 3000));
                assert_eq!(receive.elements()?[2999], 10 * step + other);
                send.wait()?;
            }
            // The first is active when the scope ends, and leaked.
            receive.start()?;
            std::mem::forget(receive);
            Ok::<(), dtl_binding::Error>(())
        })
        .unwrap();
        comm.barrier().unwrap();
        comm.send(&[77; 3], other, 1).unwrap();
        assert_eq!(comm.recv(&mut sent, other, 1).unwrap().count::<i32>(), 3);
        assert_eq!(got[0], 40 + other);
    });
}

#[test]
fn a_send_waits_for_an_event() {
    let (comm, host) = (alone(), Backend::find("host").unwrap());
    let (stream, event) = (Stream::new(host.device(0)).unwrap(), Event::new(host, 0).unwrap());
    event.record(&stream).unwrap();
    let (value, mut got) = (5_u64, 0_u64);
    scope(|s| {
        let send = s.isend_on(&comm, &value, 0, 1, &event)?;
        s.irecv(&comm, &mut got, 0, 1)?.wait()?;
        send.wait().map(drop)
    })
    .unwrap();
    assert_eq!(got, 5);
}

#[test]
fn memory_of_a_backend_is_a_buffer() {
    let (comm, host) = (alone(), Backend::find("host").unwrap());
    let mut memory = host.alloc(sys::DTL_MEMORY_DEVICE, 16, 0).unwrap();
    memory.fill(0, 3, 16).unwrap();
    let mut bytes = [0_u8; 16];
    scope(|s| {
        let send = s.isend(&comm, &memory, 0, 1)?;
        comm.recv(&mut bytes, 0, 1)?;
        send.wait().map(drop)
    })
    .unwrap();
    assert_eq!(bytes, [3; 16]);
    comm.bcast(&mut memory, 0).unwrap();
}

#[test]
fn epochs_complete_their_operations() {
    on_two_ranks(|comm, rank, other| {
        let window = Window::allocate(comm, 64, 8).unwrap();
        assert_eq!(window.info(rank).unwrap().size_bytes, 64);
        window.fence().unwrap();
        let (mine, mut before, mut theirs) = ([rank as u64 + 1; 2], 9_u64, [0_u64; 2]);
        window.lock(sys::DTL_LOCK_EXCLUSIVE, other, |epoch| epoch.put(&mine, other, 0)).unwrap();
        comm.barrier().unwrap();
        window
            .lock_all(|epoch| {
                epoch.get(&mut theirs, rank, 0)?;
                epoch.accumulate(&[10_u64; 2], other, 2, SUM)?;
                epoch.flush(other)?;
                epoch.fetch_op(&0, &mut before, other, 2, REPLACE)?;
                epoch.flush_all()
            })
            .unwrap();
        assert_eq!((theirs, before), ([other as u64 + 1; 2], 10));
        let (mut old, mut two, mut short) = (5_u64, [0_u64; 2], [0_u64; 1]);
        window
            .lock(sys::DTL_LOCK_SHARED, other, |epoch| {
                epoch.compare_and_swap(&8, &0, &mut old, other, 4)?;
                epoch.get_accumulate(&[1_u64; 2], &mut two, other, 4, SUM)?;
                let error =
                    epoch.get_accumulate(&[1_u64; 2], &mut short, other, 4, SUM).unwrap_err();
                assert_eq!(error.status, sys::DTL_ERROR_OUT_OF_BOUNDS, "{error}");
                Ok(())
            })
            .unwrap();
        assert_eq!((old, two), (0, [8, 0]));
        let error = window.lock(99, other, |_| Ok(())).unwrap_err();
        assert_eq!(error.status, sys::DTL_ERROR_INVALID_ARGUMENT);
        // An epoch completes only the operations on its own target.
        window
            .lock(sys::DTL_LOCK_SHARED, rank, |_| {
                window.lock(sys::DTL_LOCK_SHARED, other, |inner| {
                    let error = inner.put(&mine, rank, 0).unwrap_err();
                    assert_eq!(error.status, sys::DTL_ERROR_INVALID_STATE, "{error}");
                    inner.put(&mine, other, 0)
                })
            })
            .unwrap();
        // A failure in the closure, and a panic, end the epoch.
        let far = window.lock(sys::DTL_LOCK_SHARED, other, |epoch| epoch.put(&mine, other, 8));
        assert_eq!(far.unwrap_err().status, sys::DTL_ERROR_OUT_OF_BOUNDS);
        let locked = || window.lock::<_, ()>(sys::DTL_LOCK_SHARED, other, |_| panic!("unwinds"));
        catch_unwind(AssertUnwindSafe(locked)).unwrap_err();
        window.lock(sys::DTL_LOCK_EXCLUSIVE, other, |_| Ok(())).unwrap();
        window.destroy().unwrap();
    });
}

#[test]
fn a_wait_for_all_completes_persistent_requests() {
    let comm = alone();
    let mut numbers = [0_u64; 4];
    scope(|s| {
        let mut receive = s.recv_init(&comm, &mut numbers, 0, 1).unwrap();
        for round in 1..3 {
            receive.start().unwrap();
            assert_eq!(receive.elements().unwrap_err().call, "Persistent::elements");
            comm.send(&[round; 4], 0, 1).unwrap();
            s.wait_all().unwrap();
            assert_eq!(receive.elements().unwrap(), [round; 4]);
        }
    });
}
