//! Tests of the memory table that hold for a backend as a whole. Those of each kind:
//! `memory_kinds`.

use crate::kit::calls::UNTOUCHED;
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::outcome::{Outcome, call, ensure, refused, skip};
use crate::kit::subject::{KINDS, Subject, pattern};
use crate::tests::device::in_threads;
use dtl_sys::*;
use std::ptr;

/// A memory kind that nobody registers: no member has the value 0.
const NO_KIND: u64 = 0x0001_0000_0000_0000;

pub(crate) const GROUPS: &[Group] = &[
    Group {
        slot: "memory.alloc",
        needs: &[Need::Memory],
        rule: "alloc gives size_bytes aligned as asked; an unknown kind is \
            DTL_ERROR_NOT_SUPPORTED. A failed \
               call writes no outputs.",
        usually: "The kind is not looked at, or every failure is answered with one status.",
        tests: tests_alone![
            "memory.alloc.some_kind_works": "there is a kind that gives memory" => some_kind;
            "memory.alloc.unknown_kind_refused": "an unknown kind is \
             DTL_ERROR_NOT_SUPPORTED" => unknown_kind;
            "memory.alloc.zero_kind_refused": "kind 0 is DTL_ERROR_NOT_SUPPORTED" => zero_kind;
            "memory.alloc.absent_kinds_refused": "a kind that kind_info denies is denied by alloc, \
             too" => absent_kinds;
            "memory.alloc.no_bytes_refused": "0 bytes are DTL_ERROR_INVALID_ARGUMENT" => no_bytes;
            "memory.alloc.odd_alignment_refused": "an alignment of 24 is \
             DTL_ERROR_INVALID_ARGUMENT" => odd_alignment;
            "memory.alloc.refusal_leaves_the_output": "a refused call does not write \
             *out" => refusal_leaves;
            "memory.alloc.works_after_a_refusal": "after 100 refused calls memory is given as \
             before" => after_refusals;
            "memory.alloc.kinds_do_not_share_bytes": "live allocations of all kinds are \
             apart" => kinds_apart;
        ],
    },
    Group {
        slot: "memory.free",
        needs: &[Need::Memory],
        rule: "free takes back what alloc gave, with the alloc's size, alignment and kind. NULL is \
            success; \
               what is no live allocation is DTL_ERROR_INVALID_ARGUMENT.",
        usually: "Memory is kept for ever, given back to another kind, or freed with another size.",
        tests: tests_alone![
            "memory.free.null_is_success": "dtl_mem_free(NULL) does nothing" => free_null;
            "memory.free.twice_refused": "the second free is \
             DTL_ERROR_INVALID_ARGUMENT" => free_twice;
            "memory.free.inside_refused": "an address inside of an allocation cannot be \
             freed" => free_inside;
            "memory.free.any_order": "100 allocations are freed in a mixed order" => free_any_order;
            "memory.free.mixed_kinds": "allocations of all kinds freed alternately keep their \
             neighbours" => free_mixed;
            "memory.free.all_counted_back": "statistics are as before after everything was \
             freed" => free_counts;
        ],
    },
    Group {
        slot: "memory.kind_info",
        needs: &[Need::Memory],
        rule: "kind_info describes a kind; an unknown one is DTL_ERROR_NOT_SUPPORTED.",
        usually: "All kinds are described as the first one is.",
        tests: tests_alone![
            "memory.kind_info.unknown_kind_refused": "an unknown kind is \
             DTL_ERROR_NOT_SUPPORTED" => info_unknown;
            "memory.kind_info.same_on_every_thread": "threads that ask at once get one \
             answer" => info_threads;
        ],
    },
    Group {
        slot: "memory.alloc, memory.free",
        needs: &[Need::Memory],
        rule: "All slots: any thread, no locks held.",
        usually: "A list or counter of the backend's is not protected, or a lock is taken twice.",
        tests: tests_alone![
            "memory.threads.mixed_kinds_at_once": "eight threads take and free all kinds; contents \
             stay" => threads_mixed;
            "memory.threads.handed_over": "what one thread took another frees" => threads_hand_over;
        ],
    },
];

fn some_kind(s: &Subject) -> Outcome {
    ensure!(
        !s.kinds.is_empty(),
        "it has a memory table and none of the kinds HOST, DEVICE, PINNED, MANAGED, SHARED"
    );
    Ok(())
}

fn unknown_kind(s: &Subject) -> Outcome {
    refused(s.backend.alloc(NO_KIND, 64, 0), DTL_ERROR_NOT_SUPPORTED, "alloc of an unknown kind")
}

fn zero_kind(s: &Subject) -> Outcome {
    refused(s.backend.alloc(0, 64, 0), DTL_ERROR_NOT_SUPPORTED, "alloc of kind 0")
}

fn absent_kinds(s: &Subject) -> Outcome {
    for (word, name) in KINDS {
        if s.backend.kind_info(word).is_err() {
            refused(
                s.backend.alloc(word, 64, 0),
                DTL_ERROR_NOT_SUPPORTED,
                &format!("alloc of kind {name}"),
            )?;
        }
    }
    Ok(())
}

/// A kind to try things on.
fn any_kind(s: &Subject) -> Outcome<u64> {
    match s.kinds.first() {
        Some(kind) => Ok(kind.word),
        None => skip!("it has no memory kind"),
    }
}

fn no_bytes(s: &Subject) -> Outcome {
    refused(s.backend.alloc(any_kind(s)?, 0, 0), DTL_ERROR_INVALID_ARGUMENT, "alloc of 0 bytes")
}

fn odd_alignment(s: &Subject) -> Outcome {
    refused(s.backend.alloc(any_kind(s)?, 64, 24), DTL_ERROR_INVALID_ARGUMENT, "alignment 24")
}

fn refusal_leaves(s: &Subject) -> Outcome {
    let mut out = UNTOUCHED;
    let result = call!(dtl_mem_alloc(s.backend.handle, NO_KIND, 64, 0, &raw mut out));
    ensure!(result.is_err() && ptr::eq(out, UNTOUCHED), "the refused call wrote {out:?}");
    Ok(())
}

fn after_refusals(s: &Subject) -> Outcome {
    let kind = any_kind(s)?;
    for _ in 0..100 {
        ensure!(s.backend.alloc(NO_KIND, 64, 0).is_err(), "an unknown kind was accepted");
    }
    let block = s.backend.alloc(kind, 1000, 0)?;
    let bytes = pattern(1, 1000);
    block.write(0, &bytes)?;
    ensure!(block.all()? == bytes, "memory taken after refused calls does not keep its contents");
    Ok(())
}

fn kinds_apart(s: &Subject) -> Outcome {
    let mut blocks = Vec::new();
    for round in 0..20 {
        for kind in &s.kinds {
            blocks.push(s.backend.alloc(kind.word, 100 + round * 37, 0)?);
        }
    }
    let mut ranges: Vec<(u64, u64)> =
        blocks.iter().map(|block| (block.address(), block.size)).collect();
    ranges.sort_unstable();
    let shared = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    ensure!(shared.is_none(), "two live allocations share bytes: {shared:x?}");
    Ok(())
}

fn free_null(s: &Subject) -> Outcome {
    Ok(s.backend.free_raw(ptr::null_mut())?)
}

fn free_twice(s: &Subject) -> Outcome {
    let pointer = s.backend.alloc_raw(any_kind(s)?, 256, 0)?;
    s.backend.free_raw(pointer)?;
    refused(s.backend.free_raw(pointer), DTL_ERROR_INVALID_ARGUMENT, "the second free")
}

fn free_inside(s: &Subject) -> Outcome {
    let block = s.backend.alloc(any_kind(s)?, 256, 0)?;
    let inside = block.at(64).cast();
    refused(s.backend.free_raw(inside), DTL_ERROR_INVALID_ARGUMENT, "an address inside")
}

fn free_any_order(s: &Subject) -> Outcome {
    let kind = any_kind(s)?;
    let mut blocks = Vec::new();
    for index in 0..100 {
        let block = s.backend.alloc(kind, 1 + index * 13, 0)?;
        block.write(0, &pattern(index, block.size))?;
        blocks.push((index, block));
    }
    for step in 0..100 {
        let (index, block) = blocks.swap_remove((step * 37) % blocks.len());
        ensure!(
            block.all()? == pattern(index, block.size),
            "allocation {index} changed before it was freed"
        );
        block.free()?;
    }
    Ok(())
}

fn free_mixed(s: &Subject) -> Outcome {
    let mut kept = Vec::new();
    for round in 0..30u64 {
        for kind in &s.kinds {
            let (gone, stays) =
                (s.backend.alloc(kind.word, 300, 0)?, s.backend.alloc(kind.word, 300, 0)?);
            stays.write(0, &pattern(round ^ kind.word, 300))?;
            gone.write(0, &[0xEE; 300])?;
            gone.free()?;
            kept.push((round ^ kind.word, stays));
        }
    }
    for (seed, block) in &kept {
        ensure!(
            block.all()? == pattern(*seed, 300),
            "an allocation changed when others were freed"
        );
    }
    Ok(())
}

fn free_counts(s: &Subject) -> Outcome {
    let before = s.backend.stats()?;
    for kind in &s.kinds {
        let blocks: Vec<_> =
            (1..50).map(|size| s.backend.alloc(kind.word, size, 0)).collect::<Result<_, _>>()?;
        blocks.into_iter().try_for_each(|block| block.free())?;
    }
    let after = s.backend.stats()?;
    let same = (before.live_bytes, before.live_count) == (after.live_bytes, after.live_count);
    ensure!(same, "{} bytes are live, before it were {}", after.live_bytes, before.live_bytes);
    Ok(())
}

fn info_unknown(s: &Subject) -> Outcome {
    refused(s.backend.kind_info(NO_KIND), DTL_ERROR_NOT_SUPPORTED, "kind_info of an unknown kind")
}

fn info_threads(s: &Subject) -> Outcome {
    in_threads(8, |_| {
        for kind in &s.kinds {
            let info = s.backend.kind_info(kind.word)?;
            let same = (info.properties, info.alignment) == (kind.properties, kind.alignment);
            ensure!(same, "another answer for kind {:#x} on another thread", kind.word);
        }
        Ok(())
    })
}

fn threads_mixed(s: &Subject) -> Outcome {
    in_threads(8, |thread| {
        for round in 0..100u64 {
            for kind in s.kinds.iter().filter(|kind| kind.properties & 32 != 0) {
                let seed = (thread as u64) << 32 | round;
                let block = s.backend.alloc(kind.word, 64 + seed % 1000, 0)?;
                block.write(0, &pattern(seed, block.size))?;
                ensure!(
                    block.all()? == pattern(seed, block.size),
                    "another thread wrote into this one's memory"
                );
            }
        }
        Ok(())
    })
}

fn threads_hand_over(s: &Subject) -> Outcome {
    let kind = any_kind(s)?;
    let (send, take) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let freeing = scope.spawn(move || -> Outcome {
            take.iter()
                .try_for_each(|block: crate::kit::calls::Block| block.free())
                .map_err(Into::into)
        });
        for size in 1..200 {
            let block = s.backend.alloc(kind, size, 0)?;
            ensure!(send.send(block).is_ok(), "the other thread could not free");
        }
        drop(send);
        freeing.join().unwrap_or(Ok(()))
    })?;
    Ok(())
}
