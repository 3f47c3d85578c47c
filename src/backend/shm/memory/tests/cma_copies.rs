//! Tests of `cma_copies`.

use super::*;
use crate::sys::os::process;

/// Creates a `Copies` and a segment of two ranks in this process. Rank 1 has published the address
/// and the value of the returned memory word, which together identify its memory.
fn copies(mode: Mode) -> (Copies, Segment, Scratch) {
    let segment = Segment::create(2).expect("segment");
    let word = Scratch::of_words(&[77]).expect("memory");
    segment.set_probe(1, word.region().addr().get() as u64, 77);
    (Copies::new(mode), segment, word)
}

#[test]
fn every_size_is_copied_both_ways() {
    let (copies, segment, _word) = copies(Mode::Auto);
    let memory = copies.find(&segment, 1, process::own_pid()).expect("found");
    assert!(
        Arc::ptr_eq(&memory, &copies.find(&segment, 1, process::own_pid()).expect("found")),
        "opened once"
    );
    for len in [1, 8, LONG_READ - 1, LONG_READ, LONGEST_WRITE] {
        let [from, there, back] = [7, 0, 0].map(|byte| {
            let memory = Scratch::new(len + 1).expect("memory");
            memory.region().fill(byte);
            memory
        });
        let (address, part) =
            (there.region().addr().get() as u64, |all: &Scratch| all.region().part(0, len));
        assert_eq!(memory.write(address, part(&from)), CopyOutcome::All);
        assert_eq!(memory.read(address, part(&back)), CopyOutcome::All);
        // SAFETY: no thread writes the two buffers now.
        let [there, back] = [&there, &back].map(|all| unsafe { all.region().as_slice() });
        assert!(there[..len].iter().chain(&back[..len]).all(|byte| *byte == 7), "{len}");
        assert_eq!([there[len], back[len]], [0, 0], "{len}: no byte more");
    }
    let too_long = Scratch::new(LONGEST_WRITE + 1).expect("memory");
    assert_eq!(memory.write(8, too_long.region()), CopyOutcome::Refused);
    assert_eq!(memory.read(8, too_long.region()), CopyOutcome::Refused, "nothing is mapped there");
}

#[test]
fn what_is_not_the_ranks_memory_is_refused() {
    let (copies, segment, word) = copies(Mode::Auto);
    let find =
        |rank| copies.find(&segment, rank, process::own_pid()).err().expect("no such memory");
    assert!(find(0).text().contains("DTL_SHM_COPY=cells on rank 0"));
    for (address, value) in [(word.region().addr().get() as u64, 78), (8, 77)] {
        segment.set_probe(1, address, value);
        let error = find(1);
        assert_eq!(error.status(), DTL_ERROR_RANK_FAILURE, "{error}");
    }
    let off = Copies::new(Mode::Cells).find(&segment, 1, process::own_pid()).err().expect("off");
    assert_eq!((off.status(), off.text()), (DTL_ERROR_NOT_SUPPORTED, "DTL_SHM_COPY=cells"));
}
