//! Tests of `shared_region`.

use super::*;
use crate::abi::status::*;
use std::os::unix::fs::MetadataExt;

/// Creates the `Parts` of `count` ranks of one segment in this process, and a function that returns
/// the number of bytes allocated to the segment's file.
fn ranks(count: usize) -> (Vec<Parts>, impl Fn() -> u64) {
    let opener = transport::enter().expect("enter");
    let first = Segment::create(count).expect("segment");
    let file = first.descriptor().expect("file").try_clone_to_owned().expect("dup");
    let all =
        (0..count).map(|rank| Parts::new(first.again().expect("again"), rank, opener)).collect();
    let file = std::fs::File::from(file);
    (all, move || file.metadata().expect("metadata").blocks() * 512)
}

fn word(part: &dyn component::SharedRegion, index: usize) -> &AtomicU64 {
    &part.words()[index]
}

#[test]
fn all_see_a_part_and_the_last_takes_it_along() {
    let (ranks, held) = ranks(3);
    let before = held();
    let own = ranks[1].offer(10_000).expect("offer");
    let there = held();
    assert!(there >= before + 10_000, "its pages are there");
    assert!(
        own.words().len() == PART_WORDS && own.words().iter().all(|word| word.load(Relaxed) == 0)
    );
    let others = [0, 2].map(|rank: usize| ranks[rank].find(1, own.key()).expect("find"));
    own.region().fill(7);
    word(&*own, PART_WORDS - 1).store(9, Release);
    for other in &others {
        assert_eq!(
            (other.region().len(), word(&**other, PART_WORDS - 1).load(Acquire)),
            (10_000, 9)
        );
        assert_ne!(other.region().addr(), own.region().addr());
        // SAFETY: no thread writes the memory now.
        assert!(unsafe { other.region().as_slice() }.iter().all(|byte| *byte == 7));
        assert_eq!(other.region().addr().get() % 128, 0);
    }
    let key = own.key();
    drop(own);
    assert!(ranks[0].find(1, key).is_ok(), "others still have it");
    assert_eq!(held(), there);
    drop(others);
    assert_eq!(held(), before, "its pages have gone");
    assert_eq!(ranks[0].find(1, key).err().expect("gone").status(), DTL_ERROR_NOT_FOUND);
    assert_eq!(held(), before, "who asks too late leaves nothing");
}

#[test]
fn parts_do_not_meet_and_may_be_empty() {
    let (ranks, held) = ranks(2);
    let before = held();
    let parts: Vec<_> = [0, 1, 100_000].map(|len| ranks[0].offer(len).expect("offer")).into();
    for (value, part) in (1..).zip(&parts) {
        part.region().fill(value);
        word(&**part, 0).store(u64::from(value), Relaxed);
    }
    for ((value, part), len) in (1..).zip(&parts).zip([0, 1, 100_000]) {
        let found = ranks[1].find(0, part.key()).expect("find");
        // SAFETY: no thread writes the memory now.
        let bytes = unsafe { found.region().as_slice() };
        assert!(bytes.len() == len && bytes.iter().all(|byte| *byte == value));
        assert_eq!(word(&*found, 0).load(Relaxed), u64::from(value));
    }
    drop(parts);
    assert_eq!(held(), before);
}

#[test]
fn what_is_no_key_finds_nothing() {
    let (ranks, _) = ranks(2);
    let part = ranks[0].offer(5000).expect("offer");
    let [offset, nonce] = part.key();
    let begin = ranks[0].segment.parts_at() as u64;
    for key in [
        [0, 0],
        [0, nonce],
        [offset, 0],
        [offset, nonce + 2],
        [offset + 8, nonce],
        [offset + page_size() as u64, nonce],
        [begin - page_size() as u64, 0],
        [1 << 40, nonce],
        [u64::MAX, u64::MAX],
        [1 << 63, nonce],
    ] {
        assert_eq!(
            ranks[1].find(0, key).err().expect("no key").status(),
            DTL_ERROR_NOT_FOUND,
            "{key:?}"
        );
    }
}

#[test]
fn the_dead_do_not_keep_memory() {
    let (ranks, held) = ranks(70);
    let before = held();
    // First the finder of the part dies, then its owner.
    for (owner, finder) in [(0, 69), (68, 2)] {
        let own = ranks[owner].offer(8).expect("offer");
        let find = |rank: usize| ranks[rank].find(owner as i32, own.key()).expect("find");
        let (one, other) = (find(1), find(finder));
        let (stays, goes, dead) =
            if owner == 0 { (own, other, finder) } else { (other, own, owner) };
        // The process ends, and with it the mapping, without releasing the part.
        std::mem::forget(goes);
        ranks[1].segment.mark(dead, PeerState::Dead);
        drop(one);
        assert!(held() > before, "somebody still uses it");
        drop(stays);
        assert_eq!(held(), before);
    }
}

#[test]
fn too_much_is_a_status() {
    let (ranks, held) = ranks(1);
    let before = held();
    for len in [usize::MAX, usize::MAX - DATA_AT, isize::MAX as usize, 1 << 60] {
        let error = ranks[0].offer(len).err().expect("too much");
        assert_eq!(error.status(), DTL_ERROR_OUT_OF_MEMORY, "{error}");
    }
    assert_eq!(held(), before);
    ranks[0].offer(1).expect("still possible");
}
