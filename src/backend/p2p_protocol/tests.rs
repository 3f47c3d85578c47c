//! Tests of the protocol engine over a mock raw transport (`Wire`): comparison with a reference
//! matcher, and the effects of each kind of failure.

use super::frame::INLINE;
use super::mock::World;
use crate::abi::comm::communicator::DTL_ANY_SOURCE;
use crate::abi::status::*;
use crate::backend::in_process::{bytes, from};
use crate::backend::match_queues::reference_matcher::ReferenceMatcher;
use crate::runtime::component::{Completion, OpId, Selector, SendMode, Transport};
use crate::sys::memory::buf::{Region, Scratch};
use SendMode::{Standard, Synchronous};
use proptest::prelude::*;

fn filled(len: usize, value: u8) -> Scratch {
    let data = Scratch::new(len).expect("memory");
    data.region().fill(value);
    data
}

fn over(end: &dyn Transport, op: OpId) -> Option<dtl_status_t> {
    end.outcome(op).expect("test").map(|done| done.status)
}

#[derive(Clone, Debug)]
enum Step {
    Send { from: usize, to: usize, word: u64, len: usize, mode: SendMode },
    Receive { at: usize, source: i32, word: u64, ignore: u64, room: usize },
    Take { at: usize, source: i32, word: u64, ignore: u64, room: usize },
    Withdraw { which: usize },
}

const RANKS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rank = || 0..RANKS;
    let source = || prop_oneof![Just(DTL_ANY_SOURCE), 0..RANKS as i32];
    let len =
        prop_oneof![Just(0), Just(1), Just(100), Just(INLINE), Just(INLINE + 1), Just(20_000)];
    let mode = prop_oneof![Just(Standard), Just(Synchronous)];
    let room = || prop_oneof![2 => Just(30_000), 1 => Just(50), 1 => Just(0)];
    let word = || (0..3_u64).prop_map(|word| word | 1 << 60);
    let receive = || (rank(), source(), word(), 0..4_u64, room());
    let step = prop_oneof![
        6 => (rank(), rank(), word(), len, mode)
            .prop_map(|(from, to, word, len, mode)| Step::Send { from, to, word, len, mode }),
        6 => receive().prop_map(|(at, source, word, ignore, room)| Step::Receive { at, source,
            word, ignore, room }),
        2 => receive().prop_map(|(at, source, word, ignore, room)| Step::Take { at, source, word,
            ignore, room }),
        3 => (0..64_usize).prop_map(|which| Step::Withdraw { which }),
    ];
    proptest::collection::vec(step, 1..50)
}

struct Sent {
    from: usize,
    to: usize,
    word: u64,
    data: Scratch,
    mode: SendMode,
    op: OpId,
    state: State,
}

struct Received {
    at: usize,
    into: Scratch,
    op: OpId,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Open,
    /// The operation must be complete. For a receive, the number is the index of the send whose
    /// message it must have received.
    Matched(usize),
    Gone,
}

/// Engine and reference matcher, which execute the same steps. After each step all pending work is
/// completed, and both must agree on the matches.
struct Pair {
    world: World,
    naive: Vec<ReferenceMatcher>,
    sends: Vec<Sent>,
    receives: Vec<Received>,
}

impl Pair {
    fn matched(&mut self, pair: Option<(u32, u32)>) {
        if let Some((receive, send)) = pair {
            self.receives[receive as usize].state = State::Matched(send as usize);
            if self.sends[send as usize].state == State::Open {
                self.sends[send as usize].state = State::Matched(receive as usize);
            }
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send { from, to, word, len, mode } => {
                let id = self.sends.len();
                let data = filled(len, id as u8 + 1);
                let op = self.world.ends[from]
                    .isend(data.region(), to as i32, word, mode)
                    .expect("isend");
                self.sends.push(Sent { from, to, word, data, mode, op, state: State::Open });
                let pair = self.naive[to].message(from as i32, word, id as u32);
                self.matched(pair);
            }
            Step::Receive { at, source, word, ignore, room } => {
                let into = filled(room, 0);
                let select = Selector { source, match_bits: word, ignore };
                let op = self.world.ends[at].irecv(into.region(), select).expect("irecv");
                let pair = self.naive[at].receive(select, self.receives.len() as u32);
                self.receives.push(Received { at, into, op, state: State::Open });
                self.matched(pair);
            }
            Step::Take { at, source, word, ignore, room } => {
                self.take(at, Selector { source, match_bits: word, ignore }, room);
            }
            Step::Withdraw { which } if which % 2 == 0 => self.withdraw_send(which / 2),
            Step::Withdraw { which } => self.withdraw_receive(which / 2),
        }
        self.world.settle();
        self.check();
    }

    fn take(&mut self, at: usize, select: Selector, room: usize) {
        loop {
            let end = &self.world.ends[at];
            let seen = end.probe(select).expect("probe");
            let Some(taken) = end.take(select).expect("take") else {
                assert_eq!((seen, self.naive[at].peek(select)), (None, None));
                return;
            };
            assert_eq!(seen, Some(taken.done));
            let into = filled(room, 0);
            let op = end.receive_matched(taken.message, into.region()).expect("receive");
            self.world.settle();
            let got = self.world.ends[at].outcome(op).expect("test").expect("over");
            if got.status == DTL_ERROR_CANCELED {
                continue; // its sender had canceled it
            }
            let (source, word, send) = self.naive[at].peek(select).expect("the oracle has one");
            assert_eq!((taken.done.source, taken.done.match_bits), (source, word));
            self.naive[at].arrived.retain(|(_, _, id)| *id != send);
            check_received(&got, &into, &self.sends[send as usize]);
            if self.sends[send as usize].state == State::Open {
                self.sends[send as usize].state = State::Matched(0);
            }
            return;
        }
    }

    fn withdraw_send(&mut self, which: usize) {
        let Some(send) = self.sends.get_mut(which).filter(|send| send.state == State::Open) else {
            return;
        };
        let (end, to) = (&self.world.ends[send.from], send.to);
        end.cancel(send.op).expect("cancel");
        let is_small = send.data.region().len() <= INLINE;
        let was_over = is_small && send.mode == Standard;
        let expected = if was_over { DTL_SUCCESS } else { DTL_ERROR_CANCELED };
        assert_eq!(over(end.as_ref(), send.op), Some(expected));
        send.state = State::Gone;
        // A small message is sent together with its send.
        if !was_over {
            self.naive[to].arrived.retain(|(_, _, id)| *id != which as u32);
        }
    }

    fn withdraw_receive(&mut self, which: usize) {
        let Some(receive) = self.receives.get_mut(which).filter(|r| r.state == State::Open) else {
            return;
        };
        let end = &self.world.ends[receive.at];
        end.cancel(receive.op).expect("cancel");
        assert_eq!(over(end.as_ref(), receive.op), Some(DTL_ERROR_CANCELED));
        receive.state = State::Gone;
        self.naive[receive.at].posted.retain(|(_, id)| *id != which as u32);
    }

    fn check(&mut self) {
        for receive in &mut self.receives {
            if receive.state == State::Gone {
                continue;
            }
            let got = self.world.ends[receive.at].outcome(receive.op).expect("test");
            match receive.state {
                State::Matched(send) => {
                    check_received(&got.expect("received"), &receive.into, &self.sends[send]);
                    receive.state = State::Gone;
                }
                _ => assert_eq!(got, None),
            }
        }
        for send in self.sends.iter_mut().filter(|send| send.state != State::Gone) {
            let is_buffered = send.mode == Standard && send.data.region().len() <= INLINE;
            if let State::Matched(_) = send.state {
                assert_eq!(over(self.world.ends[send.from].as_ref(), send.op), Some(DTL_SUCCESS));
                send.state = State::Gone;
            } else if !is_buffered {
                assert_eq!(over(self.world.ends[send.from].as_ref(), send.op), None);
            }
        }
    }
}

fn check_received(got: &Completion, into: &Scratch, send: &Sent) {
    let (sent, room) = (send.data.region().len(), into.region().len());
    let status = if sent > room { DTL_ERROR_TRUNCATED } else { DTL_SUCCESS };
    assert_eq!(
        *got,
        Completion { source: send.from as i32, status, match_bits: send.word, size: sent as u64 }
    );
    let moved = sent.min(room);
    assert_eq!(bytes(into)[..moved], bytes(&send.data)[..moved]);
    assert!(
        bytes(into)[moved..].iter().all(|byte| *byte == 0),
        "nothing beyond the message is written"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn agrees_with_the_oracle(steps in steps(), seed in any::<u64>(), is_slow in any::<bool>()) {
        let naive = (0..RANKS).map(|_| ReferenceMatcher::default()).collect();
        let mut pair =
            Pair { world: World::new(RANKS, seed, is_slow), naive, sends: Vec::new(),
                receives: Vec::new() };
        steps.into_iter().for_each(|step| pair.step(step));
    }

    /// Combines sends, receives, cancellation and progress at random. No message may overtake
    /// another unless some send was canceled, no message may be lost or duplicated, and a message
    /// whose send completes with CANCELED must never be received.
    #[test]
    fn nothing_overtakes(
        plan in proptest::collection::vec((0..6_usize, any::<bool>(), 0..8_u8), 1..40),
        seed in any::<u64>(),
    ) {
        let world = World::new(2, seed, true);
        let (a, b) = (world.ends[0].as_ref(), world.ends[1].as_ref());
        let lens = [0, 1, 100, INLINE, INLINE + 1, 20_000];
        let select = Selector { source: 0, match_bits: 0, ignore: 0xFFFF };
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        for (id, (len, is_sync, then)) in (0_u64..).zip(&plan) {
            let data = filled(lens[*len], id as u8);
            let mode = if *is_sync { Synchronous } else { Standard };
            let op = a.isend(data.region(), 1, id, mode).expect("isend");
            sends.push((op, data, mode));
            if then & 1 != 0 {
                b.progress();
            }
            if then & 2 != 0 {
                let into = filled(20_000, 0xFF);
                receives.push((b.irecv(into.region(), select).expect("irecv"), into));
            }
            if then & 4 != 0 {
                let (op, ..) = sends[seed as usize % sends.len()];
                drop(a.cancel(op));
            }
        }
        while receives.len() < sends.len() {
            let into = filled(20_000, 0xFF);
            receives.push((b.irecv(into.region(), select).expect("irecv"), into));
        }
        world.settle();
        let ended: Vec<_> = sends.iter().map(|(op, ..)| over(a, *op).expect("every send is \
            over")).collect();
        let got: Vec<_> = receives.iter().filter_map(|(op,
            into)| Some((b.outcome(*op).expect("test")?, into))).collect();
        // While a request is being canceled, its receive and a later one may change places.
        if !ended.contains(&DTL_ERROR_CANCELED) {
            prop_assert!(got.windows(2).all(|two| two[0].0.match_bits < two[1].0.match_bits));
        }
        for (id, (_, data, _)) in sends.iter().enumerate() {
            let found = got.iter().find(|(done, _)| done.match_bits == id as u64);
            if let Some((done, into)) = found {
                prop_assert_eq!(done.size as usize, data.region().len());
                prop_assert_eq!(&bytes(into)[..data.region().len()], bytes(data));
            }
            match ended[id] {
                DTL_SUCCESS => prop_assert!(found.is_some()),
                DTL_ERROR_CANCELED => prop_assert!(found.is_none()),
                status => prop_assert!(false, "send {} ended with {}", id, status),
            }
        }
        for (op, _) in &receives {
            drop(b.cancel(*op));
        }
    }

    /// Makes a rank fail after random sends and receives: all operations that need the failed rank
    /// must complete, and live ranks must continue.
    #[test]
    fn a_death_ends_what_needs_the_dead(
        plan in proptest::collection::vec((0..4_usize, 0..4_u8), 0..20),
        seed in any::<u64>(),
    ) {
        let world = World::new(3, seed, true);
        let lens = [0, 100, INLINE + 1, 20_000];
        let mut started = Vec::new();
        for (len, what) in &plan {
            let data = filled(20_000, 3);
            let (me, other) = if what & 1 == 0 { (0, 1) } else { (1, 0) };
            let part = data.region().part(0, lens[*len]);
            let op = if what & 2 == 0 {
                world.ends[me].isend(part, other as i32, 5, Synchronous).expect("isend")
            } else {
                world.ends[me].irecv(data.region(), from(other as i32, 5)).expect("irecv")
            };
            started.push((me, op, data));
            world.ends[other].progress();
        }
        let (any, waiting) = (filled(10, 0), filled(10, 0));
        let from_any = world.ends[2].irecv(any.region(), from(DTL_ANY_SOURCE, 9)).expect("irecv");
        let alive = world.ends[2].irecv(waiting.region(), from(0, 9)).expect("irecv");
        world.net.lock().kill(1);
        world.settle();
        for (_, op, _) in started.iter().filter(|(me, ..)| *me == 0) {
            let status = over(world.ends[0].as_ref(), *op);
            prop_assert!([Some(DTL_SUCCESS), Some(DTL_ERROR_RANK_FAILURE)].contains(&status),
                "{status:?}");
        }
        // The communicator must end this receive, because it has the list of members and so can
        // decide whether the dead rank is one.
        prop_assert_eq!(over(world.ends[2].as_ref(), from_any), None);
        prop_assert_eq!(over(world.ends[2].as_ref(), alive), None);
        for end in [&world.ends[0], &world.ends[2]] {
            let liveness = end.groups().liveness.expect("provided");
            prop_assert_eq!((liveness.failed_ranks(), liveness.failed_count()), (vec![1], 1));
            prop_assert_eq!(end.probe(from(1, 77)).expect_err("dead").status(),
                DTL_ERROR_RANK_FAILURE);
            prop_assert!(end.take(from(-2, 77)).expect("any").is_none());
            let op = end.isend(any.region(), 1, 1, Standard).expect("isend");
            prop_assert_eq!(over(end.as_ref(), op), Some(DTL_ERROR_RANK_FAILURE));
        }
        let op = world.ends[0].isend(any.region(), 2, 9, Synchronous).expect("isend");
        world.settle();
        prop_assert_eq!(over(world.ends[0].as_ref(), op), Some(DTL_SUCCESS));
        prop_assert_eq!(over(world.ends[2].as_ref(), from_any), Some(DTL_SUCCESS));
    }
}

#[test]
fn a_receive_whose_offer_is_withdrawn_returns_to_its_place() {
    let world = World::new(2, 1, false);
    let (a, b) = (world.ends[0].as_ref(), world.ends[1].as_ref());
    let (one, two) = (filled(20_000, 1), filled(20_000, 2));
    let (first, second) = (filled(20_000, 0), filled(20_000, 0));
    let receives = [&first, &second].map(|into| b.irecv(into.region(), from(0, 7)).expect("irecv"));
    let gone = a.isend(one.region(), 1, 7, Standard).expect("isend");
    b.progress(); // accepts the request, requests the payload
    a.cancel(gone).expect("cancel");
    assert_eq!(over(a, gone), Some(DTL_ERROR_CANCELED));
    b.cancel(receives[0]).expect("a matched receive finishes first");
    assert_eq!(over(b, receives[0]), None);
    world.settle();
    let sent = a.isend(two.region(), 1, 7, Standard).expect("isend");
    world.settle();
    assert_eq!((over(b, receives[0]), over(b, receives[1])), (Some(DTL_SUCCESS), None));
    assert_eq!((bytes(&first), over(a, sent)), (bytes(&two), Some(DTL_SUCCESS)));
}

#[test]
fn the_reason_of_one_death_is_not_reported_for_another() {
    let world = World::new(3, 1, false);
    let (a, data) = (world.ends[0].as_ref(), filled(20_000, 1));
    let reason = || a.groups().diagnostics.and_then(|own| own.failure_text());
    let fails = |peer: i32| {
        let op = a.irecv(data.region(), from(peer, 1)).expect("irecv");
        world.settle();
        assert_eq!(over(a, op), Some(DTL_ERROR_RANK_FAILURE));
    };
    world.net.lock().kill(1);
    fails(1);
    assert_eq!(reason().as_deref(), Some("the mock says why"));
    world.net.lock().why = None;
    fails(1); // still the reason why this rank died
    assert_eq!(reason().as_deref(), Some("the mock says why"));
    world.net.lock().kill(2);
    fails(2);
    assert_eq!(reason(), None);
}

#[test]
fn a_wire_that_fails_ends_everything_and_says_why() {
    for source in [-1, 0, 7] {
        let world = World::new(2, 1, false);
        let (a, data) = (world.ends[0].as_ref(), filled(20_000, 1));
        let ops = [
            a.irecv(data.region(), from(1, 1)).expect("irecv"),
            a.isend(data.region(), 1, 2, Standard).expect("isend"),
            a.isend(data.region(), 0, 3, Synchronous).expect("isend"),
        ];
        let status = if source == 0 { DTL_ERROR_RANK_FAILURE } else { DTL_ERROR_CONNECTION_LOST };
        world.net.lock().fail_receive(0, Completion { source, status, match_bits: 0, size: 0 });
        world.settle();
        ops.into_iter().for_each(|op| assert_eq!(over(a, op), Some(status)));
        let reason = a.groups().diagnostics.and_then(|own| own.failure_text()).unwrap_or_default();
        let unnamed = source == 0; // this rank itself: no other rank died
        assert!(
            reason.ends_with("the mock says why") && reason.contains("named rank 0") == unnamed,
            "{reason}"
        );
        let error = a.isend(data.region(), 1, 1, Standard).expect_err("failed");
        assert_eq!(
            (error.status(), error.text().contains("the mock says why")),
            (status, true),
            "{error}"
        );
        assert_eq!(a.irecv(data.region(), from(0, 1)).expect_err("failed").status(), status);
        assert_eq!(a.probe(from(0, 1)).expect_err("failed").status(), status);
    }
}

#[test]
fn a_send_that_the_wire_refuses_fails_alone() {
    let world = World::new(2, 1, false);
    let (a, b, data) = (world.ends[0].as_ref(), world.ends[1].as_ref(), filled(10, 1));
    world.net.lock().refuse = Some(DTL_ERROR_LIMIT);
    assert_eq!(
        a.isend(data.region(), 1, 1, Standard).expect_err("refused").status(),
        DTL_ERROR_LIMIT
    );
    world.net.lock().refuse = Some(DTL_ERROR_BUSY);
    let waits = a.isend(data.region(), 1, 1, Standard).expect("isend");
    assert_eq!(over(a, waits), None);
    world.net.lock().refuse = None;
    assert_eq!(over(a, waits), Some(DTL_SUCCESS));
    let receive = b.irecv(filled(10, 0).region(), from(0, 1)).expect("irecv");
    assert_eq!(over(b, receive), Some(DTL_SUCCESS));
}

#[test]
fn closing_sends_what_has_left_and_leaves_no_receive_behind() {
    for can_cancel in [false, true] {
        let world = World::new(2, 7, true);
        world.net.lock().can_cancel = can_cancel;
        let data = filled(INLINE, 6);
        for word in 0..100 {
            let op = world.ends[0].isend(data.region(), 1, word, Standard).expect("isend");
            while over(world.ends[0].as_ref(), op).is_none() {
                world.ends[1].progress();
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| world.ends[0].close().expect("close"));
            let end = world.ends[1].as_ref();
            for word in 0..100 {
                let into = filled(INLINE, 0);
                let op = end.irecv(into.region(), from(0, word)).expect("irecv");
                while over(end, op).is_none() {}
                assert_eq!(bytes(&into), bytes(&data));
            }
        });
        let net = world.net.lock();
        assert_eq!((net.posted(0), net.closed.as_slice()), (0, &[0][..]));
        drop(net);
        assert_eq!(world.ends[0].close().expect_err("closed").status(), DTL_ERROR_INVALID_STATE);
        let refused = world.ends[0].isend(Region::EMPTY, 1, 1, Standard).expect_err("closed");
        assert_eq!(refused.status(), DTL_ERROR_INVALID_STATE);
    }
}
