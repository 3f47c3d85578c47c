//! Tests of `posted`.

use super::*;
use crate::backend::in_process::comms;
use crate::runtime::comm::open::agree::{post_recv, post_send};

#[test]
fn dropping_it_cancels_the_operation() {
    let ranks = comms(2);
    let [zero, one] = &ranks[..] else { panic!("two") };
    drop(post_recv(zero, 2, 1, 5).expect("posted"));
    let sent = post_send(one, &[7, 8], 0, 5).expect("sent");
    assert!(sent.is_over(), "no receive has matched it, and it is short");
    let mut again = post_recv(zero, 2, 1, 5).expect("posted");
    assert!(matches!(again.poll(), Ok(Some(done)) if done.size == 16));
    assert_eq!((again.words(), again.is_over()), (vec![7, 8], true));
}

#[test]
fn what_the_transport_does_not_know_is_not_freed() {
    let ranks = comms(2);
    let [zero, _] = &ranks[..] else { panic!("two") };
    let mut posted = Posted::lent(&zero.link, Scratch::new(8), "a test").expect("memory");
    posted.post(|_| Ok(OpId(77 << 32))).expect("posted");
    assert!(posted.cancel().is_err() && !posted.is_over() && posted.words().is_empty());
    assert!(zero.link.has_lost());
    std::mem::forget(posted);
}
