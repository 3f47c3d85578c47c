//! Tests of pitched copies and fills, and of copies and fills on streams.

use crate::kit::prelude::*;
use crate::tests::transfer::{Side, some};

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "transfer.fill.":
        no_bytes_touches_nothing, past_the_end_refused;
    Alone "transfer.copy_async.":
        done_after_synchronize, nothing_beside, back_to_the_program, between_two_blocks,
        after_earlier_work, before_later_work, chain_keeps_its_order, done_when_its_event_is,
        waits_for_an_event, large, from_threads_at_once;
    Alone "transfer.fill_async.":
        exact_bytes, in_order_with_copies;
];

/// Tests of pitched copies from one memory kind to another.
pub(crate) const PITCHED_COPIES: &[(&str, Between)] = named![
    rows_arrive =
        |s, kinds| { each_rows(s, kinds, &[((64, 10), (64, 64)), ((100, 33), (100, 100))]) },
    gaps_stay = |s, kinds| each_rows(s, kinds, &[((50, 20), (64, 64)), ((3, 300), (16, 16))]),
    pitches_differ = |s, kinds| {
        each_rows(s, kinds, &[((30, 12), (128, 48)), ((30, 12), (48, 128)), ((13, 40), (13, 29))])
    },
    one_row_or_column = |s, kinds| {
        each_rows(s, kinds, &[((1000, 1), (1000, 2000)), ((1, 100), (7, 11)), ((1, 1), (1, 1))])
    }
];

const FILL_SIZES: [u64; 12] = [1, 2, 3, 4, 7, 8, 16, 31, 100, 4096, 4097, 70_000];

/// Tests of fills. Each test runs once for each memory kind.
pub(crate) const FILLS: &[(&str, OfKind)] = named![
    exact_bytes = |s, k| FILL_SIZES.iter().try_for_each(|size| check_fill(s, k, 0x5C, 0, *size)),
    every_value = |s, k| (0..=255).try_for_each(|value| check_fill(s, k, value, 3, 21)),
    any_offset = |s, k| (0..20).try_for_each(|at| check_fill(s, k, 0xF1, at, 50 + at)),
    large = |s, k| check_fill(s, k, 0x81, 0, (9 << 20) + 1)
];

/// Area of a pitched copy: width in bytes and number of rows, then the pitches of source and
/// destination in bytes.
type Area = ((u64, u64), (u64, u64));

fn each_rows(s: &Subject, kinds: (u64, u64), areas: &[Area]) -> Outcome {
    areas.iter().try_for_each(|(size, pitches)| check_rows(s, kinds, *size, *pitches))
}

/// Copies `height` rows of `width` bytes between buffers with these pitches, and checks all bytes
/// of both buffers.
fn check_rows(
    s: &Subject,
    (from, to): (u64, u64),
    (width, height): (u64, u64),
    (src_pitch, dst_pitch): (u64, u64),
) -> Outcome {
    let source = pattern(1, src_pitch * height + 8);
    let mut should = pattern(2, dst_pitch * height + 8);
    let (mut src, mut dst) =
        (Side::new(s.backend, from, &source)?, Side::new(s.backend, to, &should)?);
    let (to, from) =
        (Rows { first: dst.at(0), pitch: dst_pitch }, Rows { first: src.at(0), pitch: src_pitch });
    copy_2d(to, from, width, height)?;
    for row in 0..height {
        let (at, into) = ((row * src_pitch) as usize, (row * dst_pitch) as usize);
        should[into..into + width as usize].copy_from_slice(&source[at..at + width as usize]);
    }
    let what = format!("{height} rows of {width} bytes, pitches {src_pitch} and {dst_pitch}");
    same!(&dst.contents()?, &should, "{what}: {}")?;
    check!(src.contents()? == source, "the source changed")
}

/// Fills `size` bytes of a block with `value`, and checks all bytes of the block.
fn check_fill(s: &Subject, kind: u64, value: u8, at: u64, size: u64) -> Outcome {
    let mut should = pattern(size, at + size + 20);
    let block = s.backend.alloc_with(kind, &should)?;
    block.fill(at, value, size)?;
    should[at as usize..(at + size) as usize].fill(value);
    same!(&block.all()?, &should, "{size} bytes at offset {at} with {value:#04x}: {}")
}

fn no_bytes_touches_nothing(s: &Subject) -> Outcome {
    let block = some(s, &[7; 50])?;
    block.fill(10, 1, 0)?;
    check!(block.all()? == [7; 50], "a fill of 0 bytes wrote")
}

fn past_the_end_refused(s: &Subject) -> Outcome {
    let block = some(s, &[7; 50])?;
    refused(block.fill(40, 1, 11), DTL_ERROR_OUT_OF_BOUNDS, "a byte over the end")?;
    check!(block.all()? == [7; 50], "the refused fill wrote")
}

/// Checks that the block has these bytes.
fn holds(block: &Block, should: &[u8], when: &str) -> Outcome {
    same!(&block.all()?, should, "{when}: {}")
}

fn done_after_synchronize(s: &Subject) -> Outcome {
    let (stream, block) = (stream(s)?, some(s, &[0; 5000])?);
    for bytes in (0..50).map(|round| pattern(round, 5000)) {
        put(&stream, &block, &bytes)?;
        stream.synchronize()?;
        holds(&block, &bytes, "after synchronize")?;
    }
    Ok(())
}

fn nothing_beside(s: &Subject) -> Outcome {
    let (stream, mut should) = (stream(s)?, pattern(3, 300));
    let (block, bytes) = (some(s, &should)?, pattern(4, 100));
    stream.copy(block.at(77), bytes.as_ptr().cast(), 100)?;
    stream.synchronize()?;
    should[77..177].copy_from_slice(&bytes);
    holds(&block, &should, "100 bytes at offset 77")
}

fn back_to_the_program(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(6, 9999));
    let block = some(s, &bytes)?;
    let mut into = vec![0u8; 9999];
    stream.copy(into.as_mut_ptr().cast(), block.at(0), 9999)?;
    stream.synchronize()?;
    same!(&into, &bytes, "in the program's memory, {}")
}

fn between_two_blocks(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(6, 4321));
    let (one, other) = (some(s, &bytes)?, some(s, &[0; 4321])?);
    stream.copy(other.at(0), one.at(0), 4321)?;
    stream.synchronize()?;
    holds(&other, &bytes, "the destination")?;
    holds(&one, &bytes, "the source")
}

/// Creates a function to run on a stream. The function sleeps, then writes `bytes` to a leaked
/// buffer.
fn slow_writer(bytes: &'static [u8]) -> (&'static Job, *const u8) {
    let place: &'static mut [u8] = Box::leak(vec![0u8; bytes.len()].into_boxed_slice());
    let address = place.as_mut_ptr().expose_provenance();
    let job = Job::new(move || {
        thread::sleep(Duration::from_millis(20));
        let place = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the leaked buffer has as many bytes; only this job writes it.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        0
    });
    (job, std::ptr::with_exposed_provenance(address))
}

fn after_earlier_work(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (block, bytes, place) = slow_bytes(s, &stream, 2000)?;
    stream.copy(block.at(0), place, 2000)?;
    stream.synchronize()?;
    holds(&block, bytes, "a copy behind slow work")
}

fn before_later_work(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(8, 3 << 20));
    let block = some(s, &bytes)?;
    let into: &'static mut [u8] = Box::leak(vec![0u8; 3 << 20].into_boxed_slice());
    let address = into.as_mut_ptr().expose_provenance();
    stream.copy(std::ptr::with_exposed_provenance_mut(address), block.at(0), 3 << 20)?;
    let job = Job::new(move || {
        let place = std::ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: the leaked buffer has as many bytes; the copy that wrote it is over.
        let seen = unsafe { std::slice::from_raw_parts(place, 3 << 20) };
        if seen == bytes { 0 } else { DTL_ERROR_INVALID_STATE }
    });
    stream.callback(job)?;
    match stream.synchronize() {
        Err(refused) if refused.status == DTL_ERROR_INVALID_STATE => {
            wrong!("work behind the copy did not see its bytes")
        }
        other => Ok(other?),
    }
}

fn chain_keeps_its_order(s: &Subject) -> Outcome {
    let (stream, one, other) = (stream(s)?, some(s, &[0; 2000])?, some(s, &[0; 2000])?);
    let sources: Vec<Vec<u8>> = (0..50).map(|round| pattern(round, 2000)).collect();
    for bytes in &sources {
        put(&stream, &one, bytes)?;
        stream.copy(other.at(0), one.at(0), 2000)?;
    }
    stream.synchronize()?;
    holds(&other, &sources[49], "the end of the chain")
}

fn done_when_its_event_is(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (block, bytes, place) = slow_bytes(s, &stream, 1 << 20)?;
    stream.copy(block.at(0), place, 1 << 20)?;
    let event = Event::on(s.backend, &stream)?;
    event.sync()?;
    holds(&block, bytes, "when the event behind the copy is done")
}

fn waits_for_an_event(s: &Subject) -> Outcome {
    let (one, other) = (stream(s)?, stream(s)?);
    let (block, bytes, place) = slow_bytes(s, &one, 2000)?;
    let event = Event::on(s.backend, &one)?;
    other.wait_event(&event)?;
    other.copy(block.at(0), place, 2000)?;
    other.synchronize()?;
    holds(&block, bytes, "a copy that had to wait for the other stream")?;
    Ok(one.synchronize()?)
}

fn large(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(8, (12 << 20) + 5));
    let block = some(s, &vec![0; (12 << 20) + 5])?;
    put(&stream, &block, &bytes)?;
    stream.synchronize()?;
    holds(&block, &bytes, "12 MiB and 5 bytes")
}

fn from_threads_at_once(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        let (stream, block) = (stream(s)?, some(s, &[0; 3000])?);
        for round in 0..30u64 {
            let bytes = pattern((thread as u64) << 32 | round, 3000);
            put(&stream, &block, &bytes)?;
            stream.synchronize()?;
            holds(&block, &bytes, "while other threads copy")?;
        }
        Ok(())
    })
}

fn exact_bytes(s: &Subject) -> Outcome {
    let (stream, mut should) = (stream(s)?, pattern(3, 5000));
    let block = some(s, &should)?;
    stream.fill(block.at(100), 0xB7, 4321)?;
    stream.synchronize()?;
    should[100..4421].fill(0xB7);
    holds(&block, &should, "a fill on a stream")
}

fn in_order_with_copies(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let (one, other) = (some(s, &[0; 1000])?, some(s, &[0; 1000])?);
    stream.fill(one.at(0), 1, 1000)?;
    stream.copy(other.at(0), one.at(0), 1000)?;
    stream.fill(one.at(0), 2, 1000)?;
    stream.copy(other.at(0), one.at(0), 500)?;
    stream.synchronize()?;
    let mut should = vec![2; 1000];
    should[500..].fill(1);
    holds(&other, &should, "after fill, copy, fill, copy")
}

/// Copies bytes to the beginning of a block, in stream order.
fn put(stream: &Stream, block: &Block, bytes: &[u8]) -> Called {
    stream.copy(block.at(0), bytes.as_ptr().cast(), bytes.len() as u64)
}

/// Source address of a copy.
type Source = *const std::ffi::c_void;

/// Queues slow work that writes bytes into a buffer. Returns a zeroed block as the destination of a
/// copy, the bytes, and the address of the buffer.
fn slow_bytes(s: &Subject, on: &Stream, size: u64) -> Outcome<(Block, &'static [u8], Source)> {
    let bytes: &[u8] = kept(pattern(8, size));
    let (job, place) = slow_writer(bytes);
    let block = some(s, &vec![0; size as usize])?;
    on.callback(job)?;
    Ok((block, bytes, place.cast()))
}
