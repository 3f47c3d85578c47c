//! Tests of each memory kind: allocation, contents, release.

use crate::kit::prelude::*;

/// The tests of each kind.
pub(crate) const OF_KIND: &[(&str, OfKind)] = named![
    aligned_as_asked,
    aligned_as_declared,
    large_alignment,
    every_byte_usable,
    large_block_usable = |s, k| keeps(&take(s, k, 24 << 20, 0)?, 5),
    live_blocks_are_apart,
    contents_survive_neighbours,
    freed_memory_comes_back,
    many_small_ones,
    too_much_is_out_of_memory,
    works_after_out_of_memory,
    counted_in_bytes,
    threads_at_once,
    named,
    alignment_is_a_power_of_two,
    properties_agree,
    host_access_is_true,
    found_by_address
];

fn take(s: &Subject, kind: u64, size: u64, alignment: u64) -> Called<Block> {
    s.backend.alloc(kind, size, alignment)
}

fn kind(s: &Subject, word: u64) -> Outcome<Kind> {
    match s.kind(word) {
        Some(kind) => Ok(kind),
        None => skip!("the kind is not there"),
    }
}

fn aligned_as_asked(s: &Subject, k: u64) -> Outcome {
    for alignment in (0..=12).map(|bits| 1 << bits) {
        for size in [1, 3, 100, 5000] {
            let at = take(s, k, size, alignment)?.address();
            ensure!(at % alignment == 0, "{size} bytes aligned to {alignment} are at {at:#x}");
        }
    }
    Ok(())
}

fn aligned_as_declared(s: &Subject, k: u64) -> Outcome {
    let alignment = kind(s, k)?.alignment.max(1);
    for block in &blocks(s, k, (1..100).map(|size| size * 7))? {
        let (at, size) = (block.address(), block.size);
        ensure!(at % alignment == 0, "kind_info says {alignment}, {size} bytes are at {at:#x}");
    }
    Ok(())
}

fn large_alignment(s: &Subject, k: u64) -> Outcome {
    let blocks: Vec<Block> = (0..3).map(|_| take(s, k, 100, 2 << 20)).collect::<Result<_, _>>()?;
    for block in &blocks {
        ensure!(block.address() % (2 << 20) == 0, "aligned to 2 MiB is {:#x}", block.address());
        block.write(0, &pattern(7, 100))?;
    }
    Ok(())
}

/// Writes and reads back.
fn keeps(block: &Block, seed: u64) -> Outcome {
    let bytes = pattern(seed, block.size);
    block.write(0, &bytes)?;
    same!(&block.all()?, &bytes, "an allocation of {} bytes: {}", block.size)
}

fn every_byte_usable(s: &Subject, k: u64) -> Outcome {
    for size in (1..300).chain([4095, 4096, 4097, 65_537]) {
        keeps(&take(s, k, size, 0)?, size)?;
    }
    Ok(())
}

fn live_blocks_are_apart(s: &Subject, k: u64) -> Outcome {
    are_apart(&blocks(s, k, (0..200).map(|index| 1 + index * 29 % 3000))?)
}

fn contents_survive_neighbours(s: &Subject, k: u64) -> Outcome {
    let sizes = [1, 17, 64, 100, 1000, 4096, 10_000];
    let kept = blocks(s, k, sizes)?;
    for (block, seed) in kept.iter().zip(0..) {
        block.write(0, &pattern(seed, block.size))?;
    }
    for round in 0..50 {
        for other in sizes.map(|size| take(s, k, size, 0)) {
            let other = other?;
            other.fill(0, round, other.size)?;
        }
    }
    for (block, seed) in kept.iter().zip(0..) {
        let (is, should, size) = (block.all()?, pattern(seed, block.size), block.size);
        same!(
            &is,
            &should,
            "an allocation of {size} bytes changed while others came and went: {}"
        )?;
    }
    Ok(())
}

fn freed_memory_comes_back(s: &Subject, k: u64) -> Outcome {
    const STEP: u64 = 4 << 20;
    // Every page is touched, so what is not given back is in RAM; a few rounds to warm up caches.
    let round = || -> Outcome {
        let mut block = take(s, k, STEP, 0)?;
        if kind(s, k)?.is_host_accessible() {
            block.as_host().iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        }
        Ok(block.free()?)
    };
    (0..4).try_for_each(|_| round())?;
    let before = resident_bytes();
    for _ in 0..256 {
        round()?;
        let grown = resident_bytes().saturating_sub(before);
        ensure!(grown < 16 * STEP, "{} MiB stay although everything was freed", grown >> 20);
    }
    Ok(())
}

fn many_small_ones(s: &Subject, k: u64) -> Outcome {
    let before = resident_bytes();
    // Of kind SHARED each may take a descriptor, of which a process has few.
    let (rounds, live) = if k == DTL_MEMORY_SHARED { (100, 200) } else { (20, 1000) };
    for round in 0..rounds {
        let blocks: Vec<Block> =
            (0..live).map(|index| take(s, k, 16 + index % 48, 0)).collect::<Result<_, _>>()?;
        for block in &blocks {
            block.write(0, &[round; 16])?;
        }
        blocks.into_iter().try_for_each(Block::free)?;
    }
    let grown = resident_bytes().saturating_sub(before);
    check!(grown < 64 << 20, "{} MiB stay although everything was freed", grown >> 20)
}

fn too_much_is_out_of_memory(s: &Subject, k: u64) -> Outcome {
    let (much, more) = (take(s, k, 1 << 55, 0), take(s, k, (1 << 55) + 4095, 4096));
    refused(much, DTL_ERROR_OUT_OF_MEMORY, "alloc of 2^55 bytes")?;
    refused(more, DTL_ERROR_OUT_OF_MEMORY, "alloc of 2^55 + 4095 bytes")
}

fn works_after_out_of_memory(s: &Subject, k: u64) -> Outcome {
    for _ in 0..50 {
        ensure!(take(s, k, 1 << 55, 0).is_err(), "2^55 bytes were given");
    }
    keeps(&take(s, k, 1000, 0)?, 3)
}

fn counted_in_bytes(s: &Subject, k: u64) -> Outcome {
    let before = s.backend.stats()?;
    let block = take(s, k, 12_345, 0)?;
    let during = s.backend.stats()?;
    block.free()?;
    let after = s.backend.stats()?;
    let grown = during.live_bytes - before.live_bytes;
    ensure!(grown == 12_345, "live_bytes grew by {grown} for 12345 bytes");
    ensure!(during.peak_bytes >= during.live_bytes, "the peak is below what is live");
    check!(after.live_bytes == before.live_bytes, "live_bytes did not come back")
}

fn threads_at_once(s: &Subject, k: u64) -> Outcome {
    if kind(s, k)?.properties & DTL_MEMORY_THREAD_SAFE == 0 {
        skip!("the kind is not declared DTL_MEMORY_THREAD_SAFE");
    }
    in_threads(8, |thread| {
        let mut kept = Vec::new();
        for round in 0..300u64 {
            let seed = (thread as u64) << 32 | round;
            let block = take(s, k, 1 + seed % 777, 0)?;
            block.write(0, &pattern(seed, block.size))?;
            kept.push((seed, block));
            if kept.len() > 8 {
                let (seed, block) = kept.swap_remove((round % 8) as usize);
                let (is, should) = (block.all()?, pattern(seed, block.size));
                same!(&is, &should, "memory of one thread was changed by another: {}")?;
            }
        }
        Ok(())
    })
}

fn named(s: &Subject, k: u64) -> Outcome {
    match field(&s.backend.kind_info(k)?.name) {
        Some(name) if !name.is_empty() => Ok(()),
        Some(_) => wrong!("the name is empty"),
        None => wrong!("the name has no NUL or is not UTF-8"),
    }
}

fn alignment_is_a_power_of_two(s: &Subject, k: u64) -> Outcome {
    let alignment = s.backend.kind_info(k)?.alignment;
    check!(alignment.is_power_of_two() && alignment <= 1 << 30, "the alignment is {alignment}")
}

fn properties_agree(s: &Subject, k: u64) -> Outcome {
    let properties = s.backend.kind_info(k)?.properties;
    let has = |bits: u64| properties & bits == bits;
    ensure!(properties & !127 == 0, "unknown bits in {properties:#x}");
    let both = has(DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE);
    let not_both = |what| format!("{what} accessible from both sides ({properties:#x})");
    ensure!(!has(DTL_MEMORY_UNIFIED) || both, "{}", not_both("unified, but not"));
    ensure!(k != DTL_MEMORY_HOST || has(DTL_MEMORY_HOST_ACCESSIBLE), "HOST is not host accessible");
    ensure!(k != DTL_MEMORY_PINNED || !has(DTL_MEMORY_PAGEABLE), "PINNED is pageable");
    check!(k != DTL_MEMORY_MANAGED || both, "{}", not_both("MANAGED is not"))
}

fn host_access_is_true(s: &Subject, k: u64) -> Outcome {
    if !kind(s, k)?.is_host_accessible() {
        skip!("the kind is not host accessible");
    }
    let mut block = take(s, k, 10_000, 0)?;
    let bytes = pattern(9, 10_000);
    block.as_host().copy_from_slice(&bytes);
    same!(&block.all()?, &bytes, "the host wrote, a copy reads: {}")?;
    block.write(0, &pattern(10, 10_000))?;
    same!(block.as_host(), &pattern(10, 10_000), "a copy wrote, the host reads: {}")
}

fn found_by_address(s: &Subject, k: u64) -> Outcome {
    let block = take(s, k, 1000, 0)?;
    for offset in [0, 1, 500, 999] {
        let dtl_mem_info_t { kind, size_bytes, base, .. } = block.query(offset)?;
        let same = (kind, size_bytes, base.addr() as u64) == (k, 1000, block.address());
        ensure!(same, "offset {offset}: {size_bytes} bytes at {base:?} of kind {kind:#x}");
    }
    match block.query(1000) {
        Ok(info) if info.base.addr() as u64 == block.address() => {
            wrong!("the byte behind it leads to it")
        }
        _ => Ok(()),
    }
}

/// Allocates blocks of memory kind `k` with these sizes in bytes.
fn blocks(s: &Subject, k: u64, sizes: impl IntoIterator<Item = u64>) -> Called<Vec<Block>> {
    sizes.into_iter().map(|size| take(s, k, size, 0)).collect()
}

/// Fails if two blocks share a byte.
pub(crate) fn are_apart(blocks: &[Block]) -> Outcome {
    let mut ranges: Vec<(u64, u64)> =
        blocks.iter().map(|block| (block.address(), block.size)).collect();
    ranges.sort_unstable();
    let shared = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    check!(shared.is_none(), "two live allocations share bytes: {shared:x?}")
}
