//! Tests of copies and fills that wait: every direction, every length, nothing beside.

use crate::kit::calls::{Backend, Block, copy, to_host};
use crate::kit::catalog::{Group, Need, Test, alone, tests_alone};
use crate::kit::outcome::{Outcome, ensure, refused, skip, wrong};
use crate::kit::subject::{Subject, difference, pattern};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::ffi::c_void;

/// Memory of the program's own, as a kind.
const PLAIN: u64 = 0;

/// The tests of copies from one kind to another.
macro_rules! direction {
    ($name:literal, $from:ident, $to:ident) => {
        &[
            alone(
                concat!("transfer.copy.", $name, ".exact_bytes"),
                "lengths 1 to 70 000 arrive as they are",
                exact::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy.", $name, ".nothing_beside"),
                "bytes before and behind the destination stay",
                beside::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy.", $name, ".any_offset"),
                "unaligned sources and destinations",
                offsets::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy.", $name, ".large"),
                "17 MiB and 3 bytes arrive as they are",
                large::<$from, $to>,
            ),
            alone(
                concat!("transfer.copy.", $name, ".source_stays"),
                "the source is as before",
                source_stays::<$from, $to>,
            ),
        ] as &[Test]
    };
}

const RULE: &str = "copy copies size_bytes and returns when it is done; at least one side is the \
    backend's, the \
                    other its own or host memory. The ranges do not overlap.";
const USUALLY: &str = "Source and destination are swapped, a length is rounded or counted in \
    elements, a kind is \
                       taken for the other side's, or the copy is not finished when the slot \
                       returns.";

/// A group for a direction.
macro_rules! group {
    ($slot:literal, $needs:expr, $name:literal, $from:ident, $to:ident) => {
        Group {
            slot: $slot,
            needs: $needs,
            rule: RULE,
            usually: USUALLY,
            tests: direction!($name, $from, $to),
        }
    };
}

const HOST: Need = Need::Kind(DTL_MEMORY_HOST);
const DEVICE: Need = Need::Kind(DTL_MEMORY_DEVICE);
const PINNED: Need = Need::Kind(DTL_MEMORY_PINNED);
const MANAGED: Need = Need::Kind(DTL_MEMORY_MANAGED);

pub(crate) const GROUPS: &[Group] = &[
    group!("transfer.copy", &[DEVICE], "program_to_device", PLAIN, DTL_MEMORY_DEVICE),
    group!("transfer.copy", &[DEVICE], "device_to_program", DTL_MEMORY_DEVICE, PLAIN),
    group!("transfer.copy", &[DEVICE], "device_to_device", DTL_MEMORY_DEVICE, DTL_MEMORY_DEVICE),
    group!("transfer.copy", &[HOST], "program_to_host", PLAIN, DTL_MEMORY_HOST),
    group!("transfer.copy", &[HOST], "host_to_program", DTL_MEMORY_HOST, PLAIN),
    group!("transfer.copy", &[HOST, DEVICE], "host_to_device", DTL_MEMORY_HOST, DTL_MEMORY_DEVICE),
    group!("transfer.copy", &[HOST, DEVICE], "device_to_host", DTL_MEMORY_DEVICE, DTL_MEMORY_HOST),
    group!(
        "transfer.copy",
        &[PINNED, DEVICE],
        "pinned_to_device",
        DTL_MEMORY_PINNED,
        DTL_MEMORY_DEVICE
    ),
    group!(
        "transfer.copy",
        &[PINNED, DEVICE],
        "device_to_pinned",
        DTL_MEMORY_DEVICE,
        DTL_MEMORY_PINNED
    ),
    group!(
        "transfer.copy",
        &[MANAGED, DEVICE],
        "managed_to_device",
        DTL_MEMORY_MANAGED,
        DTL_MEMORY_DEVICE
    ),
    group!(
        "transfer.copy",
        &[MANAGED, DEVICE],
        "device_to_managed",
        DTL_MEMORY_DEVICE,
        DTL_MEMORY_MANAGED
    ),
    Group {
        slot: "transfer.copy",
        needs: &[Need::Memory],
        rule: RULE,
        usually: USUALLY,
        tests: tests_alone![
            "transfer.copy.no_bytes_touches_nothing": "a copy of 0 bytes writes \
             nothing" => no_bytes;
            "transfer.copy.past_the_end_refused": "a range over an allocation's end is \
             DTL_ERROR_OUT_OF_BOUNDS" => past_end;
            "transfer.copy.overlap_refused": "ranges that overlap are \
             DTL_ERROR_INVALID_ARGUMENT" => overlap;
            "transfer.copy.within_one_block": "halves of one allocation can be copied" => within;
            "transfer.copy.there_and_back_100_times": "nothing is lost on the \
             way" => there_and_back;
            "transfer.copy.from_threads_at_once": "eight threads copy between their own \
             buffers" => threads;
            "transfer.copy.to_host_and_other_backend": "memory of the backend and of backend host \
             exchange bytes" => other_backend;
            "transfer.to_device.contents_arrive": "dtl_mem_to_device and dtl_mem_to_host are \
             inverse" => to_device;
        ],
    },
];

/// One side of a copy.
pub(crate) enum Side {
    Program(Vec<u8>),
    Backend(Block),
}

impl Side {
    pub(crate) fn new(backend: Backend, kind: u64, contents: &[u8]) -> Outcome<Side> {
        if kind == PLAIN {
            return Ok(Side::Program(contents.to_vec()));
        }
        let block = backend.alloc(kind, contents.len() as u64, 0)?;
        block.write(0, contents)?;
        Ok(Side::Backend(block))
    }

    pub(crate) fn at(&mut self, offset: usize) -> *mut c_void {
        match self {
            Side::Program(bytes) => bytes.as_mut_ptr().wrapping_add(offset).cast(),
            Side::Backend(block) => block.at(offset as u64),
        }
    }

    pub(crate) fn contents(&self) -> Outcome<Vec<u8>> {
        match self {
            Side::Program(bytes) => Ok(bytes.clone()),
            Side::Backend(block) => Ok(block.all()?),
        }
    }
}

/// Copies `size` bytes between offsets of larger areas and compares all of both sides.
fn check(s: &Subject, (from, to): (u64, u64), size: usize, (at, into): (usize, usize)) -> Outcome {
    let source = pattern(size as u64, (size + at + 40) as u64);
    let mut should = pattern(!(size as u64), (size + into + 40) as u64);
    let (mut src, mut dst) =
        (Side::new(s.backend, from, &source)?, Side::new(s.backend, to, &should)?);
    copy(dst.at(into), src.at(at), size as u64)?;
    should[into..into + size].copy_from_slice(&source[at..at + size]);
    if let Some(difference) = difference(&dst.contents()?, &should) {
        wrong!("{size} bytes from offset {at} to {into}: destination's {difference}");
    }
    match difference(&src.contents()?, &source) {
        Some(difference) => {
            wrong!("{size} bytes from offset {at} to {into}: source's {difference}")
        }
        None => Ok(()),
    }
}

const SIZES: [usize; 16] = [1, 2, 3, 4, 7, 8, 15, 16, 31, 64, 100, 255, 4096, 4097, 65_536, 70_001];

fn exact<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    SIZES.iter().try_for_each(|size| {
        let source = pattern(*size as u64, *size as u64);
        let (mut src, mut dst) =
            (Side::new(s.backend, FROM, &source)?, Side::new(s.backend, TO, &vec![0; *size])?);
        copy(dst.at(0), src.at(0), *size as u64)?;
        match difference(&dst.contents()?, &source) {
            Some(difference) => wrong!("{size} bytes: {difference}"),
            None => Ok(()),
        }
    })
}

fn beside<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    SIZES.iter().try_for_each(|size| check(s, (FROM, TO), *size, (0, 16)))
}

fn offsets<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    for at in [0, 1, 3, 7, 13] {
        for into in [0, 1, 5, 9] {
            check(s, (FROM, TO), 1000 + at, (at, into))?;
        }
    }
    Ok(())
}

fn large<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    check(s, (FROM, TO), (17 << 20) + 3, (0, 0))
}

fn source_stays<const FROM: u64, const TO: u64>(s: &Subject) -> Outcome {
    let source = pattern(77, 5000);
    let mut src = Side::new(s.backend, FROM, &source)?;
    for _ in 0..10 {
        let mut dst = Side::new(s.backend, TO, &pattern(78, 5000))?;
        copy(dst.at(0), src.at(0), 5000)?;
    }
    match difference(&src.contents()?, &source) {
        Some(difference) => wrong!("the source changed: {difference}"),
        None => Ok(()),
    }
}

/// An allocation of whatever kind there is, with these contents.
fn some(s: &Subject, contents: &[u8]) -> Outcome<Block> {
    let Some(kind) = s.kind(DTL_MEMORY_DEVICE).or(s.kinds.first().copied()) else {
        skip!("it has no memory")
    };
    let block = s.backend.alloc(kind.word, contents.len() as u64, 0)?;
    block.write(0, contents)?;
    Ok(block)
}

fn no_bytes(s: &Subject) -> Outcome {
    let block = some(s, &[7; 100])?;
    copy(block.at(10), [1u8; 10].as_ptr().cast(), 0)?;
    ensure!(block.all()? == [7; 100], "a copy of 0 bytes wrote");
    Ok(())
}

fn past_end(s: &Subject) -> Outcome {
    let block = some(s, &[7; 100])?;
    let bytes = [1u8; 200];
    refused(block.write(50, &bytes), DTL_ERROR_OUT_OF_BOUNDS, "150 bytes over the end")?;
    refused(block.read(99, 2), DTL_ERROR_OUT_OF_BOUNDS, "a byte over the end")?;
    ensure!(block.all()? == [7; 100], "the refused copy wrote");
    Ok(())
}

fn overlap(s: &Subject) -> Outcome {
    let block = some(s, &pattern(1, 100))?;
    refused(copy(block.at(10), block.at(0), 20), DTL_ERROR_INVALID_ARGUMENT, "ranges that overlap")
}

fn within(s: &Subject) -> Outcome {
    let bytes = pattern(1, 2000);
    let block = some(s, &bytes)?;
    copy(block.at(1000), block.at(0), 1000)?;
    let is = block.all()?;
    ensure!(is[..1000] == bytes[..1000] && is[1000..] == bytes[..1000], "the halves differ");
    Ok(())
}

fn there_and_back(s: &Subject) -> Outcome {
    let mut bytes = pattern(3, 3333);
    let (one, other) = (some(s, &bytes)?, some(s, &bytes)?);
    for round in 0..100 {
        bytes[round * 33] ^= 0xFF;
        one.write(0, &bytes)?;
        copy(other.at(0), one.at(0), 3333)?;
        match difference(&other.all()?, &bytes) {
            Some(difference) => wrong!("round {round}: {difference}"),
            None => bytes.rotate_left(1),
        }
    }
    Ok(())
}

fn threads(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        let (one, other) = (some(s, &pattern(0, 5000))?, some(s, &pattern(0, 5000))?);
        for round in 0..100u64 {
            let bytes = pattern((thread as u64) << 32 | round, 5000);
            one.write(0, &bytes)?;
            copy(other.at(0), one.at(0), 5000)?;
            if let Some(difference) = difference(&other.all()?, &bytes) {
                wrong!("thread {thread}, round {round}: {difference}");
            }
        }
        Ok(())
    })
}

fn other_backend(s: &Subject) -> Outcome {
    let host = Backend::find("host")?;
    let bytes = pattern(12, 70_000);
    let (here, there) = (some(s, &bytes)?, host.alloc(DTL_MEMORY_HOST, 70_000, 0)?);
    copy(there.at(0), here.at(0), 70_000)?;
    ensure!(there.all()? == bytes, "to the host backend's memory");
    let back = some(s, &[0; 70_000])?;
    copy(back.at(0), there.at(0), 70_000)?;
    ensure!(back.all()? == bytes, "from the host backend's memory");
    Ok(())
}

fn to_device(s: &Subject) -> Outcome {
    if s.kind(DTL_MEMORY_DEVICE).is_none() {
        skip!("it has no DEVICE memory");
    }
    for size in [1, 100, 4097] {
        let bytes = pattern(size, size);
        let block = s.backend.to_device(&bytes)?;
        match difference(&to_host(&block)?, &bytes) {
            Some(difference) => wrong!("{size} bytes: {difference}"),
            None => block.free()?,
        }
    }
    Ok(())
}
