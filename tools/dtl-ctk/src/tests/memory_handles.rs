//! Tests of memory that crosses to other processes: export_handle, import_handle, close_handle; and
//! to other drivers: export_dmabuf. Here a process imports what it has exported itself; a backend
//! that cannot do that says so, and the tests that need it are skipped.

use crate::kit::calls::Block;
use crate::kit::catalog::{Group, Need, tests_alone};
use crate::kit::outcome::{Called, Outcome, call, ensure, optional, refused, skip, wrong};
use crate::kit::subject::{Kind, Subject, difference, open_files, pattern};
use dtl_sys::*;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::ptr;

pub(crate) const GROUPS: &[Group] = &[HANDLES, DMABUF];

const HANDLES: Group = Group {
    slot: "memory.export_handle, import_handle, close_handle",
    needs: &[Need::Memory],
    rule: "A kind with DTL_MEMORY_EXPORTABLE can be exported, another is DTL_ERROR_NOT_SUPPORTED. \
        What is imported is the \
           same memory; it stays when the exporter frees it, and goes with close_handle.",
    usually: "The property and the slot do not agree, import_handle copies, or close_handle frees \
        the exporter's memory.",
    tests: tests_alone![
        "memory.handle.as_the_property_says": "exportable kinds are exported, others are \
         DTL_ERROR_NOT_SUPPORTED" => as_declared;
        "memory.handle.is_the_same_memory": "what one side writes the other reads" => same_memory;
        "memory.handle.aligned_as_exported": "an import begins where the alignment of the alloc \
         lets it" => aligned;
        "memory.handle.survives_the_exporter": "imported memory stays when the exporter has freed \
         it" => survives;
        "memory.handle.close_leaves_the_exporter": "the exporter's bytes stay when the import is \
         closed" => close_leaves;
        "memory.handle.stale_after_free": "what was freed cannot be imported: \
         DTL_ERROR_INVALID_HANDLE" => stale;
        "memory.handle.leaves_nothing": "statistics and open files are as before after 100 \
         imports" => leaves_nothing;
    ],
};

const DMABUF: Group = Group {
    slot: "memory.export_dmabuf",
    needs: &[Need::Memory],
    rule: "A range of an allocation has a dma-buf: a new file descriptor, the caller's, and where \
        in it the range begins.",
    usually: "The descriptor is the backend's own, or the offset is not that of the range.",
    tests: tests_alone![
        "memory.dmabuf.holds_the_range": "what is in the range is in the file, from its offset \
         on" => holds_the_range;
        "memory.dmabuf.descriptors_are_the_callers": "each call gives another one, and closing \
         them harms nothing" => descriptors;
    ],
};

fn export(block: &Block) -> Called<dtl_mem_handle_t> {
    let mut handle = dtl_mem_handle_t { opaque: [0; 16] };
    call!(dtl_mem_export(block.at(0).cast_const(), &raw mut handle))?;
    Ok(handle)
}

fn import(s: &Subject, handle: &dtl_mem_handle_t) -> Called<Block> {
    let (mut pointer, mut size) = (ptr::null_mut(), 0);
    call!(dtl_mem_import(
        s.backend.handle,
        ptr::from_ref(handle),
        &raw mut pointer,
        &raw mut size
    ))?;
    Ok(Block { backend: s.backend, pointer: pointer.cast(), size })
}

/// A block of each exportable kind, with its handle and a second block that was imported from that.
fn pairs(s: &Subject) -> Outcome<Vec<(Block, dtl_mem_handle_t, Block)>> {
    aligned_pairs(s, 0)
}

fn aligned_pairs(s: &Subject, alignment: u64) -> Outcome<Vec<(Block, dtl_mem_handle_t, Block)>> {
    const SIZE: u64 = 70_000;
    let mut made = Vec::new();
    for kind in exportable(s) {
        let block = s.backend.alloc(kind.word, SIZE, alignment)?;
        // So that it is not the newest one.
        let _next = s.backend.alloc(kind.word, SIZE, 0)?;
        let handle = match export(&block) {
            Err(refused) if alignment != 0 && refused.status == DTL_ERROR_NOT_SUPPORTED => {
                skip!("not with such an alignment: {}", refused.text)
            }
            other => other?,
        };
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
            refused(
                export(&block),
                DTL_ERROR_NOT_SUPPORTED,
                "export of a kind that is not exportable",
            )?;
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
                wrong!("what was written on one side is not on the other: {what}");
            }
        }
        ensure!(
            second.query(second.size - 1)?.size_bytes == first.size,
            "the import has another size"
        );
    }
    Ok(())
}

fn aligned(s: &Subject) -> Outcome {
    const ALIGNMENT: u64 = 1 << 20;
    for (_, _, second) in aligned_pairs(s, ALIGNMENT)? {
        ensure!(
            second.address() % ALIGNMENT == 0,
            "{:#x} is not aligned to {ALIGNMENT}",
            second.address()
        );
    }
    Ok(())
}

fn survives(s: &Subject) -> Outcome {
    for (first, _, second) in pairs(s)? {
        let bytes = pattern(3, first.size);
        first.write(0, &bytes)?;
        first.free()?;
        if let Some(what) = difference(&bytes, &second.all()?) {
            wrong!("the exporter's free changed it: {what}");
        }
    }
    Ok(())
}

fn close_leaves(s: &Subject) -> Outcome {
    for (first, _, second) in pairs(s)? {
        let bytes = pattern(4, first.size);
        first.write(0, &bytes)?;
        second.free()?;
        if let Some(what) = difference(&bytes, &first.all()?) {
            wrong!("closing the import changed it: {what}");
        }
    }
    Ok(())
}

/// The dma-buf of a range, and where that begins in it; `None`: the backend, or this memory, has
/// none.
fn dmabuf(block: &Block, begin: u64) -> Called<Option<(File, u64)>> {
    let (mut fd, mut offset) = (-1, 0);
    let size = block.size - begin;
    let made = call!(dtl_mem_export_dmabuf(block.at(begin), size, &raw mut fd, &raw mut offset));
    // SAFETY: a descriptor that was just made for the caller.
    Ok(optional(made)?.map(|()| (unsafe { File::from_raw_fd(fd) }, offset)))
}

/// A block of each kind that has one, of 70 000 bytes.
fn with_dmabuf(s: &Subject) -> Outcome<Vec<Block>> {
    let mut found = Vec::new();
    for kind in &s.kinds {
        let block = s.backend.alloc(kind.word, 70_000, 0)?;
        if dmabuf(&block, 0)?.is_some() {
            found.push(block);
        }
    }
    if found.is_empty() {
        skip!("it gives no dma-buf");
    }
    Ok(found)
}

fn holds_the_range(s: &Subject) -> Outcome {
    let mut parts = 0;
    for block in with_dmabuf(s)? {
        let bytes = pattern(5, block.size);
        block.write(0, &bytes)?;
        for begin in [0, 4096] {
            let Some((mut file, offset)) = dmabuf(&block, begin)? else { continue };
            parts += u32::from(begin > 0);
            let (end, size) = (file.seek(SeekFrom::End(0)).unwrap_or(0), block.size - begin);
            ensure!(offset + size <= end, "{size} bytes at {offset} are not in a file of {end}");
            let mut there = vec![0; size as usize];
            // Drivers' dma-bufs are not read by read.
            if file.read_exact_at(&mut there, offset).is_ok() {
                ensure!(
                    bytes.ends_with(&there),
                    "the bytes from {offset} on are not those from {begin} on"
                );
            }
        }
    }
    if parts == 0 {
        skip!("it gives none of a part");
    }
    Ok(())
}

fn descriptors(s: &Subject) -> Outcome {
    for block in with_dmabuf(s)? {
        let before = open_files();
        for _ in 0..3 {
            let (one, other) = (dmabuf(&block, 0)?, dmabuf(&block, 0)?);
            let number =
                |made: &Option<(File, u64)>| made.as_ref().map(|(file, _)| file.as_raw_fd());
            let are_two = number(&one) != number(&other);
            if !are_two {
                std::mem::forget(other); // it is the same one
            }
            ensure!(are_two, "two calls gave one descriptor");
        }
        ensure!(
            open_files() == before,
            "{} files are open; there were {before} before",
            open_files()
        );
        block.write(0, &pattern(6, block.size))?;
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
