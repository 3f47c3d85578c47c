//! Tests of memory that is shared with other processes (export_handle, import_handle, close_handle)
//! and with other drivers (export_dmabuf). In these tests, a process imports the handles that it
//! has exported itself. A test is skipped if the backend does not support such imports.

use crate::kit::prelude::*;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

pub(crate) const TESTS: &[(&str, Body)] = functions![
    Alone "memory.handle.":
        as_the_property_says, is_the_same_memory, aligned_as_exported,
        survives_the_exporter = |s| kept_by(s, true, 3, "the exporter's free"),

        close_leaves_the_exporter = |s| kept_by(s, false, 4, "closing the import"),
        stale_after_free, leaves_nothing;
    Alone "memory.dmabuf.":
        holds_the_range, descriptors_are_the_callers;
];

fn export(block: &Block) -> Called<dtl_mem_handle_t> {
    let mut handle = dtl_mem_handle_t { opaque: [0; 16] };
    call!(dtl_mem_export(block.at(0).cast_const(), &raw mut handle))?;
    Ok(handle)
}

fn import(s: &Subject, handle: &dtl_mem_handle_t) -> Called<Block> {
    let (mut out, mut size, handle) = (ptr::null_mut(), 0, ptr::from_ref(handle));
    call!(dtl_mem_import(s.backend.handle, handle, &raw mut out, &raw mut size))?;
    Ok(Block { backend: s.backend, pointer: out.cast(), size })
}

/// Allocates a block of each exportable memory kind. Returns each block with its exported handle
/// and a second block that was imported from the handle.
fn pairs(s: &Subject) -> Outcome<Vec<(Block, dtl_mem_handle_t, Block)>> {
    aligned_pairs(s, 0)
}

fn aligned_pairs(s: &Subject, alignment: u64) -> Outcome<Vec<(Block, dtl_mem_handle_t, Block)>> {
    const SIZE: u64 = 70_000;
    let mut made = Vec::new();
    for kind in s.kinds.iter().filter(|kind| is_exportable(kind)) {
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

fn as_the_property_says(s: &Subject) -> Outcome {
    for kind in &s.kinds {
        let told = export(&s.backend.alloc(kind.word, 100, 0)?);
        if is_exportable(kind) {
            told?;
        } else {
            let what = "export of a kind that is not exportable";
            refused(told, DTL_ERROR_NOT_SUPPORTED, what)?;
        }
    }
    Ok(())
}

fn is_the_same_memory(s: &Subject) -> Outcome {
    for (first, _, second) in pairs(s)? {
        ensure!(first.size == second.size, "{} bytes became {}", first.size, second.size);
        for (number, (from, to)) in [(&first, &second), (&second, &first)].into_iter().enumerate() {
            let bytes = pattern(number as u64, first.size);
            from.write(0, &bytes)?;
            same!(&bytes, &to.all()?, "what was written on one side is not on the other: {}")?;
        }
        let size = second.query(second.size - 1)?.size_bytes;
        ensure!(size == first.size, "the import has another size");
    }
    Ok(())
}

fn aligned_as_exported(s: &Subject) -> Outcome {
    const ALIGNMENT: u64 = 1 << 20;
    for (_, _, second) in aligned_pairs(s, ALIGNMENT)? {
        let at = second.address();
        ensure!(at % ALIGNMENT == 0, "{at:#x} is not aligned to {ALIGNMENT}");
    }
    Ok(())
}

/// Exports the bytes of a block from `begin` to its end as a dma-buf. Returns the dma-buf and the
/// offset of these bytes in the dma-buf; `None` if dma-bufs are not supported by the backend or for
/// this memory.
fn dmabuf(block: &Block, begin: u64) -> Called<Option<(File, u64)>> {
    let (mut fd, mut offset) = (-1, 0);
    let size = block.size - begin;
    let made = call!(dtl_mem_export_dmabuf(block.at(begin), size, &raw mut fd, &raw mut offset));
    // SAFETY: a descriptor that was just made for the caller.
    Ok(optional(made)?.map(|()| (unsafe { File::from_raw_fd(fd) }, offset)))
}

/// Returns a block of 70 000 bytes of each memory kind that can be exported as a dma-buf.
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
            let is_read = file.read_exact_at(&mut there, offset).is_ok();
            let good = !is_read || bytes.ends_with(&there);
            ensure!(good, "the bytes from {offset} on are not those from {begin} on");
        }
    }
    if parts == 0 {
        skip!("it gives none of a part");
    }
    Ok(())
}

fn descriptors_are_the_callers(s: &Subject) -> Outcome {
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
        let after = open_files();
        ensure!(after == before, "{after} files are open; there were {before} before");
        block.write(0, &pattern(6, block.size))?;
    }
    Ok(())
}

fn stale_after_free(s: &Subject) -> Outcome {
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
    check!(before == after, "bytes and open files were {before:?} and are {after:?}")
}

fn is_exportable(kind: &Kind) -> bool {
    kind.properties & DTL_MEMORY_EXPORTABLE != 0
}

/// Frees the exported block (if `gone_first` is true) or the imported block, and checks that the
/// bytes of the remaining block are unchanged.
fn kept_by(s: &Subject, gone_first: bool, seed: u64, what: &str) -> Outcome {
    for (first, _, second) in pairs(s)? {
        let bytes = pattern(seed, first.size);
        first.write(0, &bytes)?;
        let (gone, stays) = if gone_first { (first, second) } else { (second, first) };
        gone.free()?;
        same!(&bytes, &stays.all()?, "{what} changed it: {}")?;
    }
    Ok(())
}
