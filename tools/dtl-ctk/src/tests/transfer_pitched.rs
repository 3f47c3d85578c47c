//! Tests of pitched copies, fills, and copies and fills on streams.

use crate::kit::calls::{Block, Rows, copy_2d};
use crate::kit::catalog::{Group, Need, Test, alone, tests_alone};
use crate::kit::exec_calls::{Event, Job, Stream};
use crate::kit::outcome::{Outcome, ensure, refused, skip, wrong};
use crate::kit::subject::{Subject, difference, pattern};
use crate::tests::device::in_threads;
use crate::tests::transfer::Side;
use dtl_sys::*;
use std::thread;
use std::time::Duration;

const PLAIN: u64 = 0;

/// The tests of pitched copies in one direction.
macro_rules! rows {
    ($name:literal, $from:ident, $to:ident) => {
        &[
            alone(
                concat!("transfer.copy_2d.", $name, ".rows_arrive"),
                "each row arrives at its place",
                rows_arrive::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy_2d.", $name, ".gaps_stay"),
                "bytes between the rows stay",
                gaps_stay::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy_2d.", $name, ".pitches_differ"),
                "either side's pitch is its own",
                pitches_differ::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy_2d.", $name, ".one_row_or_column"),
                "a height or width of 1",
                one_row::<$from, $to>,
            ),
        ] as &[Test]
    };
}

/// The tests of fills of one kind.
macro_rules! fills {
    ($name:literal, $kind:ident) => {
        &[
            alone(
                concat!("transfer.fill.", $name, ".exact_bytes"),
                "lengths 1 to 70 000 are filled, nothing beside",
                fill_exact::<$kind>,
            ),
            alone(
                concat!("transfer.fill.", $name, ".every_value"),
                "all values from 0 to 255",
                fill_values::<$kind>,
            ),
            alone(
                concat!("transfer.fill.", $name, ".any_offset"),
                "unaligned beginnings",
                fill_offsets::<$kind>,
            ),
            alone(
                concat!("transfer.fill.", $name, ".large"),
                "9 MiB and 1 byte",
                fill_large::<$kind>,
            ),
        ] as &[Test]
    };
}

const ROWS: &str = "copy_2d copies height rows of width_bytes, pitch apart.";
const ROWS_USUALLY: &str =
    "The two pitches are swapped, the pitch is taken for the width, or height and width are.";
const FILL: &str = "fill sets size_bytes to a value.";
const FILL_USUALLY: &str = "The size is rounded to words, or the value is widened with its sign.";
const ASYNC: &str = "copy_async queues a copy on one of the backend's streams: it is made after \
    what is queued \
                     before, and is done when what is queued behind it begins.";
const ASYNC_USUALLY: &str =
    "The copy is made at once, on another stream, or is not finished when the stream is.";
const DEVICE: Need = Need::Kind(DTL_MEMORY_DEVICE);
const HOST: Need = Need::Kind(DTL_MEMORY_HOST);
const PINNED: Need = Need::Kind(DTL_MEMORY_PINNED);
const MANAGED: Need = Need::Kind(DTL_MEMORY_MANAGED);

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "transfer.copy_2d",
        needs: &[DEVICE],
        rule: ROWS,
        usually: ROWS_USUALLY,
        tests: rows!("program_to_device", PLAIN, DTL_MEMORY_DEVICE),
    },
    Group {
        slot: "transfer.copy_2d",
        needs: &[DEVICE],
        rule: ROWS,
        usually: ROWS_USUALLY,
        tests: rows!("device_to_program", DTL_MEMORY_DEVICE, PLAIN),
    },
    Group {
        slot: "transfer.copy_2d",
        needs: &[DEVICE],
        rule: ROWS,
        usually: ROWS_USUALLY,
        tests: rows!("device_to_device", DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE),
    },
    Group {
        slot: "transfer.fill",
        needs: &[HOST],
        rule: FILL,
        usually: FILL_USUALLY,
        tests: fills!("host", DTL_MEMORY_HOST),
    },
    Group {
        slot: "transfer.fill",
        needs: &[DEVICE],
        rule: FILL,
        usually: FILL_USUALLY,
        tests: fills!("device", DTL_MEMORY_DEVICE),
    },
    Group {
        slot: "transfer.fill",
        needs: &[PINNED],
        rule: FILL,
        usually: FILL_USUALLY,
        tests: fills!("pinned", DTL_MEMORY_PINNED),
    },
    Group {
        slot: "transfer.fill",
        needs: &[MANAGED],
        rule: FILL,
        usually: FILL_USUALLY,
        tests: fills!("managed", DTL_MEMORY_MANAGED),
    },
    Group {
        slot: "transfer.fill",
        needs: &[Need::Memory],
        rule: FILL,
        usually: FILL_USUALLY,
        tests: tests_alone![
            "transfer.fill.no_bytes_touches_nothing": "a fill of 0 bytes writes \
             nothing" => fill_nothing;
            "transfer.fill.past_the_end_refused": "a range over an allocation's end is \
             DTL_ERROR_OUT_OF_BOUNDS" => fill_past_end;
        ],
    },
    Group {
        slot: "transfer.copy_async",
        needs: &[Need::Memory, Need::Streams],
        rule: ASYNC,
        usually: ASYNC_USUALLY,
        tests: tests_alone![
            "transfer.copy_async.done_after_synchronize": "the bytes are there when the stream is \
             synchronised" => async_done;
            "transfer.copy_async.nothing_beside": "bytes beside the destination \
             stay" => async_beside;
            "transfer.copy_async.back_to_the_program": "device to program memory" => async_back;
            "transfer.copy_async.between_two_blocks": "from one allocation to \
             another" => async_between;
            "transfer.copy_async.after_earlier_work": "a copy behind slow work sees what that work \
             wrote" => async_after_work;
            "transfer.copy_async.before_later_work": "work behind a copy sees its \
             bytes" => async_before_work;
            "transfer.copy_async.chain_keeps_its_order": "a chain of 50 copies through two \
             blocks" => async_chain;
            "transfer.copy_async.done_when_its_event_is": "the bytes are there when an event \
             behind it is done" => async_event;
            "transfer.copy_async.waits_for_an_event": "a copy behind stream_wait_event sees the \
             other stream's bytes" => async_wait;
            "transfer.copy_async.large": "12 MiB and 5 bytes" => async_large;
            "transfer.copy_async.from_threads_at_once": "eight threads with streams of their \
             own" => async_threads;
            "transfer.fill_async.exact_bytes": "a fill on a stream fills, and nothing \
             beside" => fill_async;
            "transfer.fill_async.in_order_with_copies": "fill, copy, fill: each sees the one \
             before" => fill_async_order;
        ],
    },
];

/// Copies `height` rows between areas with these pitches, all of both compared.
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
    if let Some(difference) = difference(&dst.contents()?, &should) {
        wrong!("{height} rows of {width} bytes, pitches {src_pitch} and {dst_pitch}: {difference}");
    }
    ensure!(src.contents()? == source, "the source changed");
    Ok(())
}

fn rows_arrive<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    check_rows(s, (FROM, TO), (64, 10), (64, 64))?;
    check_rows(s, (FROM, TO), (100, 33), (100, 100))
}

fn gaps_stay<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    check_rows(s, (FROM, TO), (50, 20), (64, 64))?;
    check_rows(s, (FROM, TO), (3, 300), (16, 16))
}

fn pitches_differ<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    check_rows(s, (FROM, TO), (30, 12), (128, 48))?;
    check_rows(s, (FROM, TO), (30, 12), (48, 128))?;
    check_rows(s, (FROM, TO), (13, 40), (13, 29))
}

fn one_row<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    check_rows(s, (FROM, TO), (1000, 1), (1000, 2000))?;
    check_rows(s, (FROM, TO), (1, 100), (7, 11))?;
    check_rows(s, (FROM, TO), (1, 1), (1, 1))
}

/// Fills a part and compares all.
fn check_fill(s: &Subject, kind: u64, value: u8, at: u64, size: u64) -> Outcome {
    let mut should = pattern(size, at + size + 20);
    let block = s.backend.alloc(kind, at + size + 20, 0)?;
    block.write(0, &should)?;
    block.fill(at, value, size)?;
    should[at as usize..(at + size) as usize].fill(value);
    match difference(&block.all()?, &should) {
        Some(difference) => wrong!("{size} bytes at offset {at} with {value:#04x}: {difference}"),
        None => Ok(()),
    }
}

fn fill_exact<const K: u64>(s: &Subject) -> Outcome {
    [1, 2, 3, 4, 7, 8, 16, 31, 100, 4096, 4097, 70_000]
        .iter()
        .try_for_each(|size| check_fill(s, K, 0x5C, 0, *size))
}

fn fill_values<const K: u64>(s: &Subject) -> Outcome {
    (0..=255).try_for_each(|value| check_fill(s, K, value, 3, 21))
}

fn fill_offsets<const K: u64>(s: &Subject) -> Outcome {
    (0..20).try_for_each(|at| check_fill(s, K, 0xF1, at, 50 + at))
}

fn fill_large<const K: u64>(s: &Subject) -> Outcome {
    check_fill(s, K, 0x81, 0, (9 << 20) + 1)
}

/// An allocation of DEVICE memory, or else of what there is.
fn some(s: &Subject, contents: &[u8]) -> Outcome<Block> {
    let Some(kind) = s.kind(DTL_MEMORY_DEVICE).or(s.kinds.first().copied()) else {
        skip!("it has no memory")
    };
    let block = s.backend.alloc(kind.word, contents.len() as u64, 0)?;
    block.write(0, contents)?;
    Ok(block)
}

fn fill_nothing(s: &Subject) -> Outcome {
    let block = some(s, &[7; 50])?;
    block.fill(10, 1, 0)?;
    ensure!(block.all()? == [7; 50], "a fill of 0 bytes wrote");
    Ok(())
}

fn fill_past_end(s: &Subject) -> Outcome {
    let block = some(s, &[7; 50])?;
    refused(block.fill(40, 1, 11), DTL_ERROR_OUT_OF_BOUNDS, "a byte over the end")?;
    ensure!(block.all()? == [7; 50], "the refused fill wrote");
    Ok(())
}

fn stream(s: &Subject) -> Outcome<Stream> {
    Ok(Stream::new(s.backend, 0)?)
}

/// The block must hold these bytes.
fn holds(block: &Block, should: &[u8], when: &str) -> Outcome {
    match difference(&block.all()?, should) {
        Some(difference) => wrong!("{when}: {difference}"),
        None => Ok(()),
    }
}

fn async_done(s: &Subject) -> Outcome {
    let (stream, block) = (stream(s)?, some(s, &[0; 5000])?);
    for round in 0..50 {
        let bytes = pattern(round, 5000);
        stream.copy(block.at(0), bytes.as_ptr().cast(), 5000)?;
        stream.synchronize()?;
        holds(&block, &bytes, "after synchronize")?;
    }
    Ok(())
}

fn async_beside(s: &Subject) -> Outcome {
    let (stream, mut should) = (stream(s)?, pattern(3, 300));
    let (block, bytes) = (some(s, &should)?, pattern(4, 100));
    stream.copy(block.at(77), bytes.as_ptr().cast(), 100)?;
    stream.synchronize()?;
    should[77..177].copy_from_slice(&bytes);
    holds(&block, &should, "100 bytes at offset 77")
}

fn async_back(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(6, 9999));
    let block = some(s, &bytes)?;
    let mut into = vec![0u8; 9999];
    stream.copy(into.as_mut_ptr().cast(), block.at(0), 9999)?;
    stream.synchronize()?;
    match difference(&into, &bytes) {
        Some(difference) => wrong!("in the program's memory, {difference}"),
        None => Ok(()),
    }
}

fn async_between(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(6, 4321));
    let (one, other) = (some(s, &bytes)?, some(s, &[0; 4321])?);
    stream.copy(other.at(0), one.at(0), 4321)?;
    stream.synchronize()?;
    holds(&other, &bytes, "the destination")?;
    holds(&one, &bytes, "the source")
}

/// A job that sleeps, then writes bytes into a buffer that the test leaks.
fn slow_writer(bytes: Vec<u8>) -> (&'static Job, *const u8) {
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

fn async_after_work(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(8, 2000));
    let block = some(s, &[0; 2000])?;
    let (job, place) = slow_writer(bytes.clone());
    stream.callback(job)?;
    stream.copy(block.at(0), place.cast(), 2000)?;
    stream.synchronize()?;
    holds(&block, &bytes, "a copy behind slow work")
}

fn async_before_work(s: &Subject) -> Outcome {
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

fn async_chain(s: &Subject) -> Outcome {
    let (stream, last) = (stream(s)?, pattern(49, 2000));
    let blocks = [some(s, &[0; 2000])?, some(s, &[0; 2000])?];
    let sources: Vec<Vec<u8>> = (0..50).map(|round| pattern(round, 2000)).collect();
    for bytes in &sources {
        stream.copy(blocks[0].at(0), bytes.as_ptr().cast(), 2000)?;
        stream.copy(blocks[1].at(0), blocks[0].at(0), 2000)?;
    }
    stream.synchronize()?;
    holds(&blocks[1], &last, "the end of the chain")
}

fn async_event(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(8, 1 << 20));
    let block = some(s, &vec![0; 1 << 20])?;
    let (job, place) = slow_writer(bytes.clone());
    stream.callback(job)?;
    stream.copy(block.at(0), place.cast(), 1 << 20)?;
    let event = Event::on(s.backend, &stream)?;
    event.sync()?;
    holds(&block, &bytes, "when the event behind the copy is done")
}

fn async_wait(s: &Subject) -> Outcome {
    let (one, other, bytes) = (stream(s)?, stream(s)?, pattern(8, 2000));
    let block = some(s, &[0; 2000])?;
    let (job, place) = slow_writer(bytes.clone());
    one.callback(job)?;
    let event = Event::on(s.backend, &one)?;
    other.wait_event(&event)?;
    other.copy(block.at(0), place.cast(), 2000)?;
    other.synchronize()?;
    holds(&block, &bytes, "a copy that had to wait for the other stream")?;
    Ok(one.synchronize()?)
}

fn async_large(s: &Subject) -> Outcome {
    let (stream, bytes) = (stream(s)?, pattern(8, (12 << 20) + 5));
    let block = some(s, &vec![0; (12 << 20) + 5])?;
    stream.copy(block.at(0), bytes.as_ptr().cast(), bytes.len() as u64)?;
    stream.synchronize()?;
    holds(&block, &bytes, "12 MiB and 5 bytes")
}

fn async_threads(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        let (stream, block) = (stream(s)?, some(s, &[0; 3000])?);
        for round in 0..30u64 {
            let bytes = pattern((thread as u64) << 32 | round, 3000);
            stream.copy(block.at(0), bytes.as_ptr().cast(), 3000)?;
            stream.synchronize()?;
            holds(&block, &bytes, "while other threads copy")?;
        }
        Ok(())
    })
}

fn fill_async(s: &Subject) -> Outcome {
    let (stream, mut should) = (stream(s)?, pattern(3, 5000));
    let block = some(s, &should)?;
    stream.fill(block.at(100), 0xB7, 4321)?;
    stream.synchronize()?;
    should[100..4421].fill(0xB7);
    holds(&block, &should, "a fill on a stream")
}

fn fill_async_order(s: &Subject) -> Outcome {
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
