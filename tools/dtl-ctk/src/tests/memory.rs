//! Tests of the memory table of a backend as a whole. Tests of each memory kind are in
//! `memory_kinds`.

use crate::kit::prelude::*;
use crate::tests::memory_kinds::are_apart;

/// Memory kind that is never registered: its bits 47..32, which contain the value of the
/// enumeration member, are 0, and no member has the value 0.
const NO_KIND: u64 = 0x0001_0000_0000_0000;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "memory.alloc.":
        some_kind_works, unknown_kind_refused = unknown_kind, zero_kind_refused,
        absent_kinds_refused, no_bytes_refused, odd_alignment_refused, refusal_leaves_the_output,
        works_after_a_refusal, kinds_do_not_share_bytes;
    Alone "memory.free.":
        null_is_success = |s| Ok(s.backend.free_raw(ptr::null_mut())?), twice_refused,
        inside_refused, any_order, mixed_kinds, all_counted_back;
    Alone "memory.kind_info.":
        unknown_kind_refused = info_unknown, same_on_every_thread;
    Alone "memory.threads.":
        mixed_kinds_at_once, handed_over;
];

fn some_kind_works(s: &Subject) -> Outcome {
    check!(
        !s.kinds.is_empty(),
        "it has a memory table and none of the kinds HOST, DEVICE, PINNED, MANAGED, SHARED"
    )
}

fn unknown_kind(s: &Subject) -> Outcome {
    refused(s.backend.alloc(NO_KIND, 64, 0), DTL_ERROR_NOT_SUPPORTED, "alloc of an unknown kind")
}

fn zero_kind_refused(s: &Subject) -> Outcome {
    refused(s.backend.alloc(0, 64, 0), DTL_ERROR_NOT_SUPPORTED, "alloc of kind 0")
}

fn absent_kinds_refused(s: &Subject) -> Outcome {
    for (word, name) in KINDS.into_iter().filter(|(word, _)| s.backend.kind_info(*word).is_err()) {
        let (asked, what) = (s.backend.alloc(word, 64, 0), format!("alloc of kind {name}"));
        refused(asked, DTL_ERROR_NOT_SUPPORTED, &what)?;
    }
    Ok(())
}

/// Returns any memory kind of the backend.
fn any_kind(s: &Subject) -> Outcome<u64> {
    match s.kinds.first() {
        Some(kind) => Ok(kind.word),
        None => skip!("it has no memory kind"),
    }
}

fn no_bytes_refused(s: &Subject) -> Outcome {
    refused(s.backend.alloc(any_kind(s)?, 0, 0), DTL_ERROR_INVALID_ARGUMENT, "alloc of 0 bytes")
}

fn odd_alignment_refused(s: &Subject) -> Outcome {
    refused(s.backend.alloc(any_kind(s)?, 64, 24), DTL_ERROR_INVALID_ARGUMENT, "alignment 24")
}

fn refusal_leaves_the_output(s: &Subject) -> Outcome {
    let mut out = UNTOUCHED;
    let result = call!(dtl_mem_alloc(s.backend.handle, NO_KIND, 64, 0, &raw mut out));
    check!(result.is_err() && ptr::eq(out, UNTOUCHED), "the refused call wrote {out:?}")
}

fn works_after_a_refusal(s: &Subject) -> Outcome {
    let (kind, bytes) = (any_kind(s)?, pattern(1, 1000));
    for _ in 0..100 {
        ensure!(s.backend.alloc(NO_KIND, 64, 0).is_err(), "an unknown kind was accepted");
    }
    let kept = s.backend.alloc_with(kind, &bytes)?.all()? == bytes;
    check!(kept, "memory taken after refused calls does not keep its contents")
}

fn kinds_do_not_share_bytes(s: &Subject) -> Outcome {
    let mut blocks = Vec::new();
    for round in 0..20 {
        for kind in &s.kinds {
            blocks.push(s.backend.alloc(kind.word, 100 + round * 37, 0)?);
        }
    }
    are_apart(&blocks)
}

fn twice_refused(s: &Subject) -> Outcome {
    let pointer = s.backend.alloc_raw(any_kind(s)?, 256, 0)?;
    s.backend.free_raw(pointer)?;
    refused(s.backend.free_raw(pointer), DTL_ERROR_INVALID_ARGUMENT, "the second free")
}

fn inside_refused(s: &Subject) -> Outcome {
    let block = s.backend.alloc(any_kind(s)?, 256, 0)?;
    let inside = block.at(64).cast();
    refused(s.backend.free_raw(inside), DTL_ERROR_INVALID_ARGUMENT, "an address inside")
}

fn any_order(s: &Subject) -> Outcome {
    let (kind, mut blocks) = (any_kind(s)?, Vec::new());
    for index in 0..100 {
        let bytes = pattern(index, 1 + index * 13);
        blocks.push((index, s.backend.alloc_with(kind, &bytes)?, bytes));
    }
    for step in 0..100 {
        let (index, block, bytes) = blocks.swap_remove((step * 37) % blocks.len());
        ensure!(block.all()? == bytes, "allocation {index} changed before it was freed");
        block.free()?;
    }
    Ok(())
}

fn mixed_kinds(s: &Subject) -> Outcome {
    let mut kept = Vec::new();
    for round in 0..30u64 {
        for kind in &s.kinds {
            let (gone, bytes) =
                (s.backend.alloc(kind.word, 300, 0)?, pattern(round ^ kind.word, 300));
            kept.push((s.backend.alloc_with(kind.word, &bytes)?, bytes));
            gone.write(0, &[0xEE; 300])?;
            gone.free()?;
        }
    }
    for (block, bytes) in &kept {
        ensure!(block.all()? == *bytes, "an allocation changed when others were freed");
    }
    Ok(())
}

fn all_counted_back(s: &Subject) -> Outcome {
    let before = s.backend.stats()?;
    for kind in &s.kinds {
        let blocks: Vec<_> =
            (1..50).map(|size| s.backend.alloc(kind.word, size, 0)).collect::<Result<_, _>>()?;
        blocks.into_iter().try_for_each(|block| block.free())?;
    }
    let after = s.backend.stats()?;
    let same = (before.live_bytes, before.live_count) == (after.live_bytes, after.live_count);
    check!(same, "{} bytes are live, before it were {}", after.live_bytes, before.live_bytes)
}

fn info_unknown(s: &Subject) -> Outcome {
    refused(s.backend.kind_info(NO_KIND), DTL_ERROR_NOT_SUPPORTED, "kind_info of an unknown kind")
}

fn same_on_every_thread(s: &Subject) -> Outcome {
    in_threads(8, |_| {
        for kind in &s.kinds {
            let info = s.backend.kind_info(kind.word)?;
            let same = (info.properties, info.alignment) == (kind.properties, kind.alignment);
            ensure!(same, "another answer for kind {:#x} on another thread", kind.word);
        }
        Ok(())
    })
}

fn mixed_kinds_at_once(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        for round in 0..100u64 {
            for kind in s.kinds.iter().filter(|kind| kind.properties & 32 != 0) {
                let seed = (thread as u64) << 32 | round;
                let bytes = pattern(seed, 64 + seed % 1000);
                let kept = s.backend.alloc_with(kind.word, &bytes)?.all()? == bytes;
                ensure!(kept, "another thread wrote into this one's memory");
            }
        }
        Ok(())
    })
}

fn handed_over(s: &Subject) -> Outcome {
    let kind = any_kind(s)?;
    let (send, take) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let freeing = scope.spawn(move || -> Outcome {
            Ok(take.iter().try_for_each(|block: Block| block.free())?)
        });
        for size in 1..200 {
            let block = s.backend.alloc(kind, size, 0)?;
            ensure!(send.send(block).is_ok(), "the other thread could not free");
        }
        drop(send);
        freeing.join().unwrap_or(Ok(()))
    })
}
