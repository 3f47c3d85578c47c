//! Tests of memory in a stream's order, of host memory that a backend is told of, and of
//! prefetches. A backend without the slots has the library's way, to which the same rules apply.

use crate::kit::calls::{Block, UNTOUCHED, copy};
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::exec_calls::{Hold, Stream};
use crate::kit::outcome::{Called, Outcome, call, ensure, optional, refused, skip, wrong};
use crate::kit::subject::{KINDS, Subject, difference, pattern, resident_bytes};
use crate::tests::stream::stream;
use dtl_sys::*;

const SIZE: u64 = 70_000;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "memory.alloc_async, free_async",
        needs: &[Need::Memory],
        rule: "alloc_async gives memory for the work that is queued later; free_async frees behind \
            the work that is in the stream.",
        usually: "free_async frees at once, or never; alloc_async does not look at kind or \
            alignment.",
        tests: tests_alone![
            "memory.alloc_async.aligned_as_asked": "of every kind, at alignments up to \
             4096" => aligned;
            "memory.alloc_async.unknown_kind_refused": "as alloc refuses it; *out stays" => unknown;
            "memory.free_async.twice_refused": "what was freed in order is no allocation any \
             more" => twice;
            "memory.free_async.comes_back": "150 times 1 MiB of every kind is counted back and \
             does not add up" => comes_back;
            "memory.free_async.frees_what_alloc_gave": "and free what alloc_async gave" => crossed;
        ],
    },
    Group {
        slot: "memory.alloc_async, free_async",
        needs: &[Need::Memory, Need::Compute],
        rule: "alloc_async gives memory for the work that is queued later; free_async frees behind \
            the work that is in the stream.",
        usually: "Memory is handed out again while queued work still uses it.",
        tests: tests_alone![
            "memory.alloc_async.holds_what_is_queued": "bytes go in and out by queued \
             copies" => holds;
            "memory.free_async.after_earlier_work": "work in the stream still finds the bytes of \
             freed memory" => in_order;
        ],
    },
    Group {
        slot: "memory.register_host, unregister_host",
        needs: &[Need::Memory],
        rule: "register_host makes memory of the program's PINNED memory of the backend; \
            unregister_host takes that back.",
        usually: "A size that is no multiple of a page is refused, or a second registration of the \
            same memory fails.",
        tests: tests_alone![
            "memory.register_host.known_as_pinned": "odd ranges are PINNED memory of the backend, \
             until they are taken back" => registered;
            "memory.register_host.again_and_again": "the same memory 100 times" => again;
        ],
    },
    Group {
        slot: "transfer.prefetch",
        needs: &[Need::Memory, Need::Compute],
        rule: "prefetch moves memory; it changes no bytes.",
        usually: "The kind is not looked at, or the range is taken for all of the allocation.",
        tests: tests_alone![
            "transfer.prefetch.bytes_stay": "of every kind, to the device and to the \
             host" => prefetched;
        ],
    },
];

fn take(s: &Subject, stream: &Stream, kind: u64, size: u64, alignment: u64) -> Called<Block> {
    let mut out = UNTOUCHED;
    call!(dtl_mem_alloc_async(stream.handle, kind, size, alignment, &raw mut out))?;
    Ok(Block { backend: s.backend, pointer: out.cast(), size })
}

/// Frees a block in a stream's order.
fn give(stream: &Stream, block: Block) -> Called {
    let pointer = block.at(0);
    std::mem::forget(block);
    call!(dtl_mem_free_async(stream.handle, pointer))
}

fn aligned(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for kind in &s.kinds {
        for alignment in [1, 64, 4096] {
            let block = take(s, &stream, kind.word, SIZE, alignment)?;
            ensure!(
                block.address() % alignment == 0,
                "{:#x} is not aligned to {alignment}",
                block.address()
            );
            let info = block.query(SIZE - 1)?;
            ensure!(
                info.kind == kind.word && info.size_bytes == SIZE,
                "dtl_mem_query tells another kind or size"
            );
            give(&stream, block)?;
        }
    }
    Ok(stream.synchronize()?)
}

fn unknown(s: &Subject) -> Outcome {
    let (stream, mut out) = (stream(s)?, UNTOUCHED);
    let asked =
        call!(dtl_mem_alloc_async(stream.handle, 0x0001_7ffe_0000_0000, 64, 0, &raw mut out));
    refused(asked, DTL_ERROR_NOT_SUPPORTED, "alloc_async of an unknown kind")?;
    ensure!(std::ptr::eq(out, UNTOUCHED), "the refused call wrote {out:?}");
    for (word, name) in KINDS {
        if s.kind(word).is_none() {
            refused(
                take(s, &stream, word, 64, 0),
                DTL_ERROR_NOT_SUPPORTED,
                &format!("alloc_async of kind {name}"),
            )?;
        }
    }
    Ok(())
}

fn twice(s: &Subject) -> Outcome {
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
        ensure!(
            after.1 < before.1 + 64 * MIB,
            "memory grew from {} to {} bytes",
            before.1,
            after.1
        );
    }
    Ok(())
}

fn crossed(s: &Subject) -> Outcome {
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
    ensure!(before == after, "{before} allocations were live, and {after} are");
    Ok(())
}

fn holds(s: &Subject) -> Outcome {
    let stream = stream(s)?;
    for (number, kind) in (1..).zip(&s.kinds) {
        let (bytes, mut back) = (pattern(number, SIZE), vec![0; SIZE as usize]);
        let block = take(s, &stream, kind.word, SIZE, 0)?;
        stream.copy(block.at(0), bytes.as_ptr().cast(), SIZE)?;
        stream.copy(back.as_mut_ptr().cast(), block.at(0), SIZE)?;
        give(&stream, block)?;
        stream.synchronize()?;
        if let Some(what) = difference(&back, &bytes) {
            wrong!("{what}");
        }
    }
    Ok(())
}

fn in_order(s: &Subject) -> Outcome {
    let (stream, other) = (stream(s)?, stream(s)?);
    for (number, kind) in (1..).zip(&s.kinds) {
        let (bytes, mut back) = (pattern(number, SIZE), vec![0; SIZE as usize]);
        let block = s.backend.alloc(kind.word, SIZE, 0)?;
        block.write(0, &bytes)?;
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
        if let Some(what) = difference(&back, &bytes) {
            wrong!("freed while work before it still read it: {what}");
        }
    }
    Ok(())
}

fn register(s: &Subject, bytes: &mut [u8]) -> Outcome {
    let told = call!(dtl_mem_register_host(
        s.backend.handle,
        bytes.as_mut_ptr().cast(),
        bytes.len() as u64
    ));
    match optional(told)? {
        Some(()) => Ok(()),
        None => skip!("it registers no memory of the program's"),
    }
}

fn unregister(s: &Subject, bytes: &mut [u8]) -> Called {
    let pointer = bytes.as_mut_ptr().cast();
    call!(dtl_mem_unregister_host(s.backend.handle, pointer))
}

fn registered(s: &Subject) -> Outcome {
    for size in [1, 4095, 4096, SIZE] {
        let (mut bytes, mut back) = (pattern(7, size + 3), vec![0; size as usize]);
        let Some(own) = bytes.get_mut(3..) else { wrong!("{size} bytes") };
        register(s, own)?;
        let known = Block { backend: s.backend, pointer: own.as_mut_ptr(), size };
        let info = known.query(size - 1)?;
        std::mem::forget(known); // it is the vector's
        ensure!(
            info.kind == DTL_MEMORY_PINNED
                && info.backend.id == s.backend.handle.id
                && info.size_bytes == size,
            "dtl_mem_query tells another kind, backend or size"
        );
        copy(back.as_mut_ptr().cast(), own.as_ptr().cast(), size)?;
        let copied = difference(&back, own);
        unregister(s, own)?;
        if let Some(what) = copied.filter(|_| s.computes) {
            wrong!("a copy from registered memory: {what}");
        }
    }
    Ok(())
}

fn again(s: &Subject) -> Outcome {
    let mut bytes = vec![1; SIZE as usize];
    for _ in 0..100 {
        register(s, &mut bytes)?;
        unregister(s, &mut bytes)?;
    }
    ensure!(bytes.iter().all(|byte| *byte == 1), "the bytes have changed");
    Ok(())
}

fn prefetched(s: &Subject) -> Outcome {
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
        if let Some(what) = difference(&block.all()?, &bytes) {
            wrong!("{what}");
        }
    }
    Ok(())
}
