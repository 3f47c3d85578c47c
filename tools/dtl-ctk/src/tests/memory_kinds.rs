//! Tests of each memory kind: what is taken, whether it keeps what is written, whether it comes
//! back.

use crate::kit::calls::{Block, field};
use crate::kit::catalog::{Group, Need, Test, alone};
use crate::kit::outcome::{Called, Outcome, ensure, refused, skip, wrong};
use crate::kit::subject::{Kind, Subject, difference, pattern, resident_bytes};
use crate::tests::device::in_threads;
use dtl_sys::*;

/// The tests of one kind.
macro_rules! of_kind {
    ($name:literal, $word:ident) => {
        &[
            alone(
                concat!("memory.", $name, ".aligned_as_asked"),
                "alignments of 1 to 4096 bytes are kept",
                aligned_as_asked::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".aligned_as_declared"),
                "every allocation has the alignment that kind_info names",
                aligned_as_declared::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".large_alignment"),
                "an alignment of 2 MiB is kept",
                large_alignment::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".every_byte_usable"),
                "sizes 1 to 300: first to last byte keep what is written",
                every_byte::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".large_block_usable"),
                "all of 24 MiB can be written and read",
                large_block::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".live_blocks_are_apart"),
                "200 live allocations share no byte",
                apart::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".contents_survive_neighbours"),
                "taking and freeing others changes nothing",
                survives::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".freed_memory_comes_back"),
                "4 GiB taken and freed in steps of 16 MiB do not stay",
                comes_back::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".many_small_ones"),
                "20 000 small allocations, taken and freed in order",
                many_small::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".too_much_is_out_of_memory"),
                "2^55 bytes are DTL_ERROR_OUT_OF_MEMORY",
                too_much::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".works_after_out_of_memory"),
                "after that, memory is given as before",
                after_too_much::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".counted_in_bytes"),
                "statistics grow by what was taken and shrink by what was freed",
                counted::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".threads_at_once"),
                "eight threads take, write, compare and free",
                threads::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".named"),
                "kind_info gives a name with its NUL",
                named::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".alignment_is_a_power_of_two"),
                "kind_info's alignment is one",
                alignment::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".properties_agree"),
                "kind_info's properties are known bits that do not contradict",
                properties::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".host_access_is_true"),
                "what is called host accessible can be read and written by the host",
                host_access::<$word>,
            ),
            alone(
                concat!("memory.", $name, ".found_by_address"),
                "each of its addresses leads to it, its neighbours' do not",
                found::<$word>,
            ),
        ] as &[Test]
    };
}

const RULE: &str = "alloc gives size_bytes aligned as asked, free takes them back with size, \
    alignment and kind of \
                    the alloc; kind_info tells who can access them and how they are aligned at \
                    least.";
const USUALLY: &str = "A size or alignment that is passed on to the wrong parameter, a free that \
    gives nothing \
                       back, or a kind_info that promises more than alloc keeps.";

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "memory.alloc, free, kind_info for HOST",
        needs: &[Need::Kind(DTL_MEMORY_HOST)],
        rule: RULE,
        usually: USUALLY,
        tests: of_kind!("host", DTL_MEMORY_HOST),
    },
    Group {
        slot: "memory.alloc, free, kind_info for DEVICE",
        needs: &[Need::Kind(DTL_MEMORY_DEVICE)],
        rule: RULE,
        usually: USUALLY,
        tests: of_kind!("device", DTL_MEMORY_DEVICE),
    },
    Group {
        slot: "memory.alloc, free, kind_info for PINNED",
        needs: &[Need::Kind(DTL_MEMORY_PINNED)],
        rule: RULE,
        usually: USUALLY,
        tests: of_kind!("pinned", DTL_MEMORY_PINNED),
    },
    Group {
        slot: "memory.alloc, free, kind_info for MANAGED",
        needs: &[Need::Kind(DTL_MEMORY_MANAGED)],
        rule: RULE,
        usually: USUALLY,
        tests: of_kind!("managed", DTL_MEMORY_MANAGED),
    },
    Group {
        slot: "memory.alloc, free, kind_info for SHARED",
        needs: &[Need::Kind(DTL_MEMORY_SHARED)],
        rule: RULE,
        usually: USUALLY,
        tests: of_kind!("shared", DTL_MEMORY_SHARED),
    },
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

fn aligned_as_asked<const K: u64>(s: &Subject) -> Outcome {
    for bits in 0..=12 {
        for size in [1, 3, 100, 5000] {
            let block = take(s, K, size, 1 << bits)?;
            let address = block.address();
            ensure!(
                address % (1 << bits) == 0,
                "{size} bytes aligned to {} are at {address:#x}",
                1 << bits
            );
        }
    }
    Ok(())
}

fn aligned_as_declared<const K: u64>(s: &Subject) -> Outcome {
    let alignment = kind(s, K)?.alignment.max(1);
    let blocks: Vec<Block> =
        (1..100).map(|size| take(s, K, size * 7, 0)).collect::<Result<_, _>>()?;
    for block in &blocks {
        let address = block.address();
        ensure!(
            address % alignment == 0,
            "kind_info says {alignment}, {} bytes are at {address:#x}",
            block.size
        );
    }
    Ok(())
}

fn large_alignment<const K: u64>(s: &Subject) -> Outcome {
    let blocks: Vec<Block> = (0..3).map(|_| take(s, K, 100, 2 << 20)).collect::<Result<_, _>>()?;
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
    match difference(&block.all()?, &bytes) {
        Some(difference) => wrong!("an allocation of {} bytes: {difference}", block.size),
        None => Ok(()),
    }
}

fn every_byte<const K: u64>(s: &Subject) -> Outcome {
    for size in (1..300).chain([4095, 4096, 4097, 65_537]) {
        keeps(&take(s, K, size, 0)?, size)?;
    }
    Ok(())
}

fn large_block<const K: u64>(s: &Subject) -> Outcome {
    keeps(&take(s, K, 24 << 20, 0)?, 5)
}

fn apart<const K: u64>(s: &Subject) -> Outcome {
    let blocks: Vec<Block> =
        (0..200).map(|index| take(s, K, 1 + index * 29 % 3000, 0)).collect::<Result<_, _>>()?;
    let mut ranges: Vec<(u64, u64)> =
        blocks.iter().map(|block| (block.address(), block.size)).collect();
    ranges.sort_unstable();
    let shared = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    ensure!(shared.is_none(), "two live allocations share bytes: {shared:x?}");
    Ok(())
}

fn survives<const K: u64>(s: &Subject) -> Outcome {
    let sizes = [1, 17, 64, 100, 1000, 4096, 10_000];
    let kept: Vec<Block> =
        sizes.iter().map(|size| take(s, K, *size, 0)).collect::<Result<_, _>>()?;
    for (block, seed) in kept.iter().zip(0..) {
        block.write(0, &pattern(seed, block.size))?;
    }
    for round in 0..50 {
        for size in sizes {
            let other = take(s, K, size, 0)?;
            other.fill(0, round, size)?;
        }
    }
    for (block, seed) in kept.iter().zip(0..) {
        let Some(difference) = difference(&block.all()?, &pattern(seed, block.size)) else {
            continue;
        };
        wrong!(
            "an allocation of {} bytes changed while others came and went: {difference}",
            block.size
        );
    }
    Ok(())
}

fn comes_back<const K: u64>(s: &Subject) -> Outcome {
    const STEP: u64 = 16 << 20;
    // Every page is touched, so what is not given back is in RAM; a few rounds to warm up caches.
    let round = || -> Outcome {
        let mut block = take(s, K, STEP, 0)?;
        if kind(s, K)?.is_host_accessible() {
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

fn many_small<const K: u64>(s: &Subject) -> Outcome {
    let before = resident_bytes();
    // Of kind SHARED each may take a descriptor, of which a process has few.
    let (rounds, live) = if K == DTL_MEMORY_SHARED { (100, 200) } else { (20, 1000) };
    for round in 0..rounds {
        let blocks: Vec<Block> =
            (0..live).map(|index| take(s, K, 16 + index % 48, 0)).collect::<Result<_, _>>()?;
        for block in &blocks {
            block.write(0, &[round; 16])?;
        }
        blocks.into_iter().try_for_each(Block::free)?;
    }
    let grown = resident_bytes().saturating_sub(before);
    ensure!(grown < 64 << 20, "{} MiB stay although everything was freed", grown >> 20);
    Ok(())
}

fn too_much<const K: u64>(s: &Subject) -> Outcome {
    refused(take(s, K, 1 << 55, 0), DTL_ERROR_OUT_OF_MEMORY, "alloc of 2^55 bytes")?;
    refused(
        take(s, K, (1 << 55) + 4095, 4096),
        DTL_ERROR_OUT_OF_MEMORY,
        "alloc of 2^55 + 4095 bytes",
    )
}

fn after_too_much<const K: u64>(s: &Subject) -> Outcome {
    for _ in 0..50 {
        ensure!(take(s, K, 1 << 55, 0).is_err(), "2^55 bytes were given");
    }
    keeps(&take(s, K, 1000, 0)?, 3)
}

fn counted<const K: u64>(s: &Subject) -> Outcome {
    let before = s.backend.stats()?;
    let block = take(s, K, 12_345, 0)?;
    let during = s.backend.stats()?;
    block.free()?;
    let after = s.backend.stats()?;
    let grown = during.live_bytes - before.live_bytes;
    ensure!(grown == 12_345, "live_bytes grew by {grown} for 12345 bytes");
    ensure!(during.peak_bytes >= during.live_bytes, "the peak is below what is live");
    ensure!(after.live_bytes == before.live_bytes, "live_bytes did not come back");
    Ok(())
}

fn threads<const K: u64>(s: &Subject) -> Outcome {
    if kind(s, K)?.properties & DTL_MEMORY_THREAD_SAFE == 0 {
        skip!("the kind is not declared DTL_MEMORY_THREAD_SAFE");
    }
    in_threads(8, |thread| {
        let mut kept = Vec::new();
        for round in 0..300u64 {
            let seed = (thread as u64) << 32 | round;
            let block = take(s, K, 1 + seed % 777, 0)?;
            block.write(0, &pattern(seed, block.size))?;
            kept.push((seed, block));
            if kept.len() > 8 {
                let (seed, block) = kept.swap_remove((round % 8) as usize);
                let Some(difference) = difference(&block.all()?, &pattern(seed, block.size)) else {
                    continue;
                };
                wrong!("memory of one thread was changed by another: {difference}");
            }
        }
        Ok(())
    })
}

fn named<const K: u64>(s: &Subject) -> Outcome {
    match field(&s.backend.kind_info(K)?.name) {
        Some(name) if !name.is_empty() => Ok(()),
        Some(_) => wrong!("the name is empty"),
        None => wrong!("the name has no NUL or is not UTF-8"),
    }
}

fn alignment<const K: u64>(s: &Subject) -> Outcome {
    let alignment = s.backend.kind_info(K)?.alignment;
    ensure!(alignment.is_power_of_two() && alignment <= 1 << 30, "the alignment is {alignment}");
    Ok(())
}

fn properties<const K: u64>(s: &Subject) -> Outcome {
    let properties = s.backend.kind_info(K)?.properties;
    let has = |bits: u64| properties & bits == bits;
    ensure!(properties & !127 == 0, "unknown bits in {properties:#x}");
    let both = has(DTL_MEMORY_HOST_ACCESSIBLE | DTL_MEMORY_DEVICE_ACCESSIBLE);
    ensure!(
        !has(DTL_MEMORY_UNIFIED) || both,
        "unified, but not accessible from both sides ({properties:#x})"
    );
    ensure!(K != DTL_MEMORY_HOST || has(DTL_MEMORY_HOST_ACCESSIBLE), "HOST is not host accessible");
    ensure!(K != DTL_MEMORY_PINNED || !has(DTL_MEMORY_PAGEABLE), "PINNED is pageable");
    ensure!(
        K != DTL_MEMORY_MANAGED || both,
        "MANAGED is not accessible from both sides ({properties:#x})"
    );
    Ok(())
}

fn host_access<const K: u64>(s: &Subject) -> Outcome {
    if !kind(s, K)?.is_host_accessible() {
        skip!("the kind is not host accessible");
    }
    let mut block = take(s, K, 10_000, 0)?;
    let bytes = pattern(9, 10_000);
    block.as_host().copy_from_slice(&bytes);
    if let Some(difference) = difference(&block.all()?, &bytes) {
        wrong!("the host wrote, a copy reads: {difference}");
    }
    block.write(0, &pattern(10, 10_000))?;
    match difference(block.as_host(), &pattern(10, 10_000)) {
        Some(difference) => wrong!("a copy wrote, the host reads: {difference}"),
        None => Ok(()),
    }
}

fn found<const K: u64>(s: &Subject) -> Outcome {
    let block = take(s, K, 1000, 0)?;
    for offset in [0, 1, 500, 999] {
        let info = block.query(offset)?;
        let same =
            info.kind == K && info.size_bytes == 1000 && info.base.addr() as u64 == block.address();
        ensure!(
            same,
            "offset {offset}: {} bytes at {:?} of kind {:#x}",
            info.size_bytes,
            info.base,
            info.kind
        );
    }
    match block.query(1000) {
        Ok(info) if info.base.addr() as u64 == block.address() => {
            wrong!("the byte behind it leads to it")
        }
        _ => Ok(()),
    }
}
