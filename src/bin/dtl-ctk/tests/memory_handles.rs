//! Tests of memory that crosses to other processes: export_handle, import_handle, close_handle. Here a process imports
//! what it has exported itself; a backend that cannot do that says so, and the tests that need it are skipped.

use crate::kit::calls::Block;
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::outcome::{Called, Outcome, call, ensure, refused, skip};
use crate::kit::subject::{Kind, Subject, difference, open_files, pattern};
use dtl::abi::device::*;
use dtl::abi::status::*;
use dtl::ffi::memory::{dtl_mem_export, dtl_mem_import};
use std::ptr;

pub(crate) const GROUPS: &[Group] = &[Group {
    slot: "memory.export_handle, import_handle, close_handle",
    needs: &[Need::Memory],
    rule: "A kind with DTL_MEMORY_EXPORTABLE can be exported, another is DTL_ERROR_NOT_SUPPORTED. What is imported is the \
           same memory; it stays when the exporter frees it, and goes with close_handle.",
    usually: "The property and the slot do not agree, import_handle copies, or close_handle frees the exporter's memory.",
    tests: tests_alone![
        "memory.handle.as_the_property_says": "exportable kinds are exported, others are DTL_ERROR_NOT_SUPPORTED" => as_declared;
        "memory.handle.is_the_same_memory": "what one side writes the other reads" => same_memory;
        "memory.handle.survives_the_exporter": "imported memory stays when the exporter has freed it" => survives;
        "memory.handle.stale_after_free": "what was freed cannot be imported: DTL_ERROR_INVALID_HANDLE" => stale;
        "memory.handle.leaves_nothing": "statistics and open files are as before after 100 imports" => leaves_nothing;
    ],
}];

fn export(block: &Block) -> Called<dtl_mem_handle_t> {
    let mut handle = dtl_mem_handle_t { opaque: [0; 16] };
    call!(dtl_mem_export(block.at(0).cast_const(), &raw mut handle))?;
    Ok(handle)
}

fn import(s: &Subject, handle: &dtl_mem_handle_t) -> Called<Block> {
    let (mut pointer, mut size) = (ptr::null_mut(), 0);
    call!(dtl_mem_import(s.backend.handle, ptr::from_ref(handle), &raw mut pointer, &raw mut size))?;
    Ok(Block { backend: s.backend, pointer: pointer.cast(), size })
}

/// A block of each exportable kind, with its handle and a second block that was imported from that.
fn pairs(s: &Subject) -> Outcome<Vec<(Block, dtl_mem_handle_t, Block)>> {
    const SIZE: u64 = 70_000;
    let mut made = Vec::new();
    for kind in exportable(s) {
        let block = s.backend.alloc(kind.word, SIZE, 0)?;
        let handle = export(&block)?;
        match import(s, &handle) {
            Err(refused) if refused.status == DTL_ERROR_NOT_SUPPORTED => {
                skip!("it imports nothing that this very process exported: {}", refused.text)
            }
            other => made.push((block, handle, other?)),
        }
    }
    if made.is_empty() {
        skip!("no kind is DTL_MEMORY_EXPORTABLE");
    }
    Ok(made)
}

fn exportable(s: &Subject) -> impl Iterator<Item = &Kind> {
    s.kinds.iter().filter(|kind| kind.properties & DTL_MEMORY_EXPORTABLE != 0)
}

fn as_declared(s: &Subject) -> Outcome {
    for kind in &s.kinds {
        let block = s.backend.alloc(kind.word, 100, 0)?;
        if kind.properties & DTL_MEMORY_EXPORTABLE != 0 {
            export(&block)?;
        } else {
            refused(export(&block), DTL_ERROR_NOT_SUPPORTED, "export of a kind that is not exportable")?;
        }
    }
    Ok(())
}

fn same_memory(s: &Subject) -> Outcome {
    for (first, _, second) in pairs(s)? {
        ensure!(first.size == second.size, "{} bytes became {}", first.size, second.size);
        for (number, (from, to)) in [(&first, &second), (&second, &first)].into_iter().enumerate() {
            let bytes = pattern(number as u64, first.size);
            from.write(0, &bytes)?;
            if let Some(what) = difference(&bytes, &to.all()?) {
                crate::kit::outcome::wrong!("what was written on one side is not on the other: {what}");
            }
        }
        ensure!(second.query(second.size - 1)?.size_bytes == first.size, "the import has another size");
    }
    Ok(())
}

fn survives(s: &Subject) -> Outcome {
    for (first, _, second) in pairs(s)? {
        let bytes = pattern(3, first.size);
        first.write(0, &bytes)?;
        first.free()?;
        if let Some(what) = difference(&bytes, &second.all()?) {
            crate::kit::outcome::wrong!("the exporter's free changed it: {what}");
        }
    }
    Ok(())
}

fn stale(s: &Subject) -> Outcome {
    for (first, handle, second) in pairs(s)? {
        second.free()?;
        first.free()?;
        refused(import(s, &handle), DTL_ERROR_INVALID_HANDLE, "import of what was freed")?;
    }
    Ok(())
}

fn leaves_nothing(s: &Subject) -> Outcome {
    drop(pairs(s)?);
    let before = (s.backend.stats()?.live_bytes, open_files());
    for _ in 0..100 {
        drop(pairs(s)?);
    }
    let after = (s.backend.stats()?.live_bytes, open_files());
    ensure!(before == after, "bytes and open files were {before:?} and are {after:?}");
    Ok(())
}
