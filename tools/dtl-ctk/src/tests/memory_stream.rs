//! Tests of stream-ordered allocation, registered host memory, and prefetches. If a backend has no
//! functions for them, the library's generic implementation follows the same rules.

use crate::kit::prelude::*;

const SIZE: u64 = 70_000;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "memory.alloc_async.":
        aligned_as_asked, unknown_kind_refused;
    Alone "memory.free_async.":
        twice_refused, comes_back, frees_what_alloc_gave;
    Alone "memory.alloc_async.":
        holds_what_is_queued;
    Alone "memory.free_async.":
        after_earlier_work;
    Alone "memory.register_host.":
        known_as_pinned, again_and_again;
    Alone "transfer.prefetch.":
        bytes_stay;
];

fn take(s: &Subject, stream: &Stream, kind: u64, size: u64, alignment: u64) -> Called<Block> {
    let mut out = UNTOUCHED;
    call!(dtl_mem_alloc_async(stream.handle, kind, size, alignment, &raw mut out))?;
    Ok(Block { backend: s.backend, pointer: out.cast(), size })
}

/// Frees a block in stream order.
fn give(stream: &Stream, block: Block) -> Called {
    let pointer = block.at(0);
    std::mem::forget(block);
    call!(dtl_mem_free_async(stream.handle, pointer))
}

fn aligned_as_asked(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for kind in &s.kinds {
        for alignment in [1, 64, 4096] {
            let block = take(s, &stream, kind.word, SIZE, alignment)?;
            let (at, info) = (block.address(), block.query(SIZE - 1)?);
            ensure!(at % alignment == 0, "{at:#x} is not aligned to {alignment}");
            let same = (info.kind, info.size_bytes) == (kind.word, SIZE);
            ensure!(same, "dtl_mem_query tells another kind or size");
            give(&stream, block)?;
        }
    }
    Ok(stream.synchronize()?)
}

fn unknown_kind_refused(s: &Subject) -> Outcome {
    let (stream, mut out) = (stream(s)?, UNTOUCHED);
    let asked =
        call!(dtl_mem_alloc_async(stream.handle, 0x0001_7ffe_0000_0000, 64, 0, &raw mut out));
    refused(asked, DTL_ERROR_NOT_SUPPORTED, "alloc_async of an unknown kind")?;
    ensure!(std::ptr::eq(out, UNTOUCHED), "the refused call wrote {out:?}");
    for (word, name) in KINDS.into_iter().filter(|(word, _)| s.kind(*word).is_none()) {
        let (asked, what) = (take(s, &stream, word, 64, 0), format!("alloc_async of kind {name}"));
        refused(asked, DTL_ERROR_NOT_SUPPORTED, &what)?;
    }
    Ok(())
}

fn twice_refused(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for kind in &s.kinds {
        let block = take(s, &stream, kind.word, SIZE, 0)?;
        let pointer = block.at(0);
        give(&stream, block)?;
        stream.synchronize()?;
        let again = call!(dtl_mem_free_async(stream.handle, pointer));
        refused(again, DTL_ERROR_INVALID_ARGUMENT, "freeing it again")?;
    }
    Ok(())
}

fn comes_back(s: &Subject) -> Outcome {
    const MIB: u64 = 1 << 20;
    let stream = stream(s)?;
    for kind in &s.kinds {
        let round = || {
            let block = take(s, &stream, kind.word, MIB, 0)?;
            block.fill(0, 1, MIB)?;
            give(&stream, block)?;
            stream.synchronize()
        };
        (0..20).try_for_each(|_| round())?;
        let before = (s.backend.stats()?.live_bytes, resident_bytes());
        (0..150).try_for_each(|_| round())?;
        let after = (s.backend.stats()?.live_bytes, resident_bytes());
        ensure!(before.0 == after.0, "{} bytes were live, and {} are", before.0, after.0);
        let (before, after) = (before.1, after.1);
        ensure!(after < before + 64 * MIB, "memory grew from {before} to {after} bytes");
    }
    Ok(())
}

fn frees_what_alloc_gave(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    let before = s.backend.stats()?.live_count;
    for kind in &s.kinds {
        give(&stream, s.backend.alloc(kind.word, SIZE, 0)?)?;
        let block = take(s, &stream, kind.word, SIZE, 0)?;
        stream.synchronize()?;
        block.free()?;
    }
    stream.synchronize()?;
    let after = s.backend.stats()?.live_count;
    check!(before == after, "{before} allocations were live, and {after} are")
}

fn holds_what_is_queued(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for (number, kind) in (1..).zip(&s.kinds) {
        let (bytes, mut back) = (pattern(number, SIZE), vec![0; SIZE as usize]);
        let block = take(s, &stream, kind.word, SIZE, 0)?;
        stream.copy(block.at(0), bytes.as_ptr().cast(), SIZE)?;
        stream.copy(back.as_mut_ptr().cast(), block.at(0), SIZE)?;
        give(&stream, block)?;
        stream.synchronize()?;
        same!(&back, &bytes, "{}")?;
    }
    Ok(())
}

fn after_earlier_work(s: &Subject) -> Outcome {
    let (stream, other) = (stream(s)?, stream(s)?);
    for (number, kind) in (1..).zip(&s.kinds) {
        let (bytes, mut back) = (pattern(number, SIZE), vec![0; SIZE as usize]);
        let block = s.backend.alloc_with(kind.word, &bytes)?;
        let hold = Hold::new();
        hold.on(&stream)?;
        stream.copy(back.as_mut_ptr().cast(), block.at(0), SIZE)?;
        give(&stream, block)?;
        // If it was freed early, this is the same memory.
        let next = take(s, &other, kind.word, SIZE, 0)?;
        other.fill(next.at(0), 0, SIZE)?;
        other.synchronize()?;
        hold.release();
        stream.synchronize()?;
        same!(&back, &bytes, "freed while work before it still read it: {}")?;
    }
    Ok(())
}

fn register(s: &Subject, bytes: &mut [u8]) -> Outcome {
    let (size, at) = (bytes.len() as u64, bytes.as_mut_ptr().cast());
    match optional(call!(dtl_mem_register_host(s.backend.handle, at, size)))? {
        Some(()) => Ok(()),
        None => skip!("it registers no memory of the program's"),
    }
}

fn unregister(s: &Subject, bytes: &mut [u8]) -> Called {
    let pointer = bytes.as_mut_ptr().cast();
    call!(dtl_mem_unregister_host(s.backend.handle, pointer))
}

fn known_as_pinned(s: &Subject) -> Outcome {
    for size in [1, 4095, 4096, SIZE] {
        let (mut bytes, mut back) = (pattern(7, size + 3), vec![0; size as usize]);
        let Some(own) = bytes.get_mut(3..) else { wrong!("{size} bytes") };
        register(s, own)?;
        let known = Block { backend: s.backend, pointer: own.as_mut_ptr(), size };
        let info = known.query(size - 1)?;
        std::mem::forget(known); // it is the vector's
        let told = (info.kind, info.backend.id, info.size_bytes);
        let same = told == (DTL_MEMORY_PINNED, s.backend.handle.id, size);
        ensure!(same, "dtl_mem_query tells another kind, backend or size");
        copy(back.as_mut_ptr().cast(), own.as_ptr().cast(), size)?;
        let copied = difference(&back, own);
        unregister(s, own)?;
        if let Some(what) = copied.filter(|_| s.computes) {
            wrong!("a copy from registered memory: {what}");
        }
    }
    Ok(())
}

fn again_and_again(s: &Subject) -> Outcome {
    let mut bytes = vec![1; SIZE as usize];
    for _ in 0..100 {
        register(s, &mut bytes)?;
        unregister(s, &mut bytes)?;
    }
    check!(bytes.iter().all(|byte| *byte == 1), "the bytes have changed")
}

fn bytes_stay(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for (number, kind) in (1..).zip(&s.kinds) {
        let (block, bytes) = (s.backend.alloc(kind.word, SIZE, 0)?, pattern(number, SIZE));
        block.write(0, &bytes)?;
        for (begin, size, device) in
            [(0, SIZE, 0), (100, 5000, DTL_PREFETCH_HOST), (SIZE - 1, 1, 0)]
        {
            call!(dtl_mem_prefetch(stream.handle, block.at(begin), size, device))?;
        }
        stream.synchronize()?;
        same!(&block.all()?, &bytes, "{}")?;
    }
    Ok(())
}
