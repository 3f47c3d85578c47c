//! Tests of blocking copies and fills in every direction and with many lengths. Bytes outside the
//! range must remain unchanged.

use crate::kit::prelude::*;
use std::ffi::c_void;

/// Value that is used in place of a memory kind for memory that the test program itself allocates.
pub(crate) const PLAIN: u64 = 0;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "transfer.copy.":
        no_bytes_touches_nothing, past_the_end_refused, overlap_refused, within_one_block,
        there_and_back_100_times, from_threads_at_once, to_host_and_other_backend;
    Alone "transfer.to_device.":
        contents_arrive;
];

/// Tests of copies from one memory kind to another.
pub(crate) const COPIES: &[(&str, Between)] = named![
    exact_bytes,
    nothing_beside =
        |s, kinds| { SIZES.iter().try_for_each(|size| arrives(s, kinds, *size, (0, 16))) },
    any_offset,
    large = |s, kinds| arrives(s, kinds, (17 << 20) + 3, (0, 0)),
    source_stays
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
        Ok(Side::Backend(backend.alloc_with(kind, contents)?))
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

/// Copies `size` bytes from offset `at` of one buffer to offset `into` of another buffer, and
/// checks all bytes of both buffers.
fn arrives(
    s: &Subject,
    (from, to): (u64, u64),
    size: usize,
    (at, into): (usize, usize),
) -> Outcome {
    let source = pattern(size as u64, (size + at + 40) as u64);
    let mut should = pattern(!(size as u64), (size + into + 40) as u64);
    let (mut src, mut dst) =
        (Side::new(s.backend, from, &source)?, Side::new(s.backend, to, &should)?);
    copy(dst.at(into), src.at(at), size as u64)?;
    should[into..into + size].copy_from_slice(&source[at..at + size]);
    same!(&dst.contents()?, &should, "{size} bytes from offset {at} to {into}: destination's {}")?;
    same!(&src.contents()?, &source, "{size} bytes from offset {at} to {into}: source's {}")
}

const SIZES: [usize; 16] = [1, 2, 3, 4, 7, 8, 15, 16, 31, 64, 100, 255, 4096, 4097, 65_536, 70_001];

fn exact_bytes(s: &Subject, (from, to): (u64, u64)) -> Outcome {
    SIZES.iter().try_for_each(|size| {
        let source = pattern(*size as u64, *size as u64);
        let (mut src, mut dst) =
            (Side::new(s.backend, from, &source)?, Side::new(s.backend, to, &vec![0; *size])?);
        copy(dst.at(0), src.at(0), *size as u64)?;
        same!(&dst.contents()?, &source, "{size} bytes: {}")
    })
}

fn any_offset(s: &Subject, (from, to): (u64, u64)) -> Outcome {
    for at in [0, 1, 3, 7, 13] {
        for into in [0, 1, 5, 9] {
            arrives(s, (from, to), 1000 + at, (at, into))?;
        }
    }
    Ok(())
}

fn source_stays(s: &Subject, (from, to): (u64, u64)) -> Outcome {
    let source = pattern(77, 5000);
    let mut src = Side::new(s.backend, from, &source)?;
    for _ in 0..10 {
        let mut dst = Side::new(s.backend, to, &pattern(78, 5000))?;
        copy(dst.at(0), src.at(0), 5000)?;
    }
    same!(&src.contents()?, &source, "the source changed: {}")
}

/// Allocates memory and fills it with `contents`. Uses device memory if the backend has it,
/// otherwise the first kind of memory available.
pub(crate) fn some(s: &Subject, contents: &[u8]) -> Outcome<Block> {
    let Some(kind) = s.kind(DTL_MEMORY_DEVICE).or(s.kinds.first().copied()) else {
        skip!("it has no memory")
    };
    Ok(s.backend.alloc_with(kind.word, contents)?)
}

fn no_bytes_touches_nothing(s: &Subject) -> Outcome {
    let block = some(s, &[7; 100])?;
    copy(block.at(10), [1u8; 10].as_ptr().cast(), 0)?;
    check!(block.all()? == [7; 100], "a copy of 0 bytes wrote")
}

fn past_the_end_refused(s: &Subject) -> Outcome {
    let block = some(s, &[7; 100])?;
    let bytes = [1u8; 200];
    refused(block.write(50, &bytes), DTL_ERROR_OUT_OF_BOUNDS, "150 bytes over the end")?;
    refused(block.read(99, 2), DTL_ERROR_OUT_OF_BOUNDS, "a byte over the end")?;
    check!(block.all()? == [7; 100], "the refused copy wrote")
}

fn overlap_refused(s: &Subject) -> Outcome {
    let block = some(s, &pattern(1, 100))?;
    refused(copy(block.at(10), block.at(0), 20), DTL_ERROR_INVALID_ARGUMENT, "ranges that overlap")
}

fn within_one_block(s: &Subject) -> Outcome {
    let bytes = pattern(1, 2000);
    let block = some(s, &bytes)?;
    copy(block.at(1000), block.at(0), 1000)?;
    let is = block.all()?;
    check!(is[..1000] == bytes[..1000] && is[1000..] == bytes[..1000], "the halves differ")
}

fn there_and_back_100_times(s: &Subject) -> Outcome {
    let mut bytes = pattern(3, 3333);
    let (one, other) = (some(s, &bytes)?, some(s, &bytes)?);
    for round in 0..100 {
        bytes[round * 33] ^= 0xFF;
        one.write(0, &bytes)?;
        copy(other.at(0), one.at(0), 3333)?;
        same!(&other.all()?, &bytes, "round {round}: {}")?;
        bytes.rotate_left(1);
    }
    Ok(())
}

fn from_threads_at_once(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        let (one, other) = (some(s, &pattern(0, 5000))?, some(s, &pattern(0, 5000))?);
        for round in 0..100u64 {
            let bytes = pattern((thread as u64) << 32 | round, 5000);
            one.write(0, &bytes)?;
            copy(other.at(0), one.at(0), 5000)?;
            same!(&other.all()?, &bytes, "thread {thread}, round {round}: {}")?;
        }
        Ok(())
    })
}

fn to_host_and_other_backend(s: &Subject) -> Outcome {
    let host = Backend::find("host")?;
    let bytes = pattern(12, 70_000);
    let (here, there) = (some(s, &bytes)?, host.alloc(DTL_MEMORY_HOST, 70_000, 0)?);
    copy(there.at(0), here.at(0), 70_000)?;
    ensure!(there.all()? == bytes, "to the host backend's memory");
    let back = some(s, &[0; 70_000])?;
    copy(back.at(0), there.at(0), 70_000)?;
    check!(back.all()? == bytes, "from the host backend's memory")
}

fn contents_arrive(s: &Subject) -> Outcome {
    if s.kind(DTL_MEMORY_DEVICE).is_none() {
        skip!("it has no DEVICE memory");
    }
    for size in [1, 100, 4097] {
        let bytes = pattern(size, size);
        let block = s.backend.to_device(&bytes)?;
        same!(&to_host(&block)?, &bytes, "{size} bytes: {}")?;
        block.free()?;
    }
    Ok(())
}
