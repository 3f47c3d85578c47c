//! Tests of `from_c`.

use super::*;
use crate::abi::layouts::LAYOUTS;

/// Structs of the C interface that later versions of the library have extended, each with the first
/// field of every extension. The list is taken from the history of the header files.
const APPENDED: [(&str, &[&str]); 10] = [
    ("dtl_comm_vtable_t", &["win_create", "coll_supports", "mem_supports"]),
    ("dtl_dispatch_alloc_t", &["stream"]),
    ("dtl_exec_vtable_t", &["module_compile", "stream_priorities"]),
    ("dtl_launch_t", &["schedule"]),
    ("dtl_memory_vtable_t", &["export_handle", "alloc_async", "pointer_info"]),
    ("dtl_plugin_t", &["environments"]),
    ("dtl_rdma_config_t", &["reconnect_ms"]),
    ("dtl_source_t", &["files"]),
    ("dtl_trace_event_t", &["group"]),
    ("dtl_transfer_vtable_t", &["prefetch"]),
];

fn is_version(layout: &Layout, size: usize) -> bool {
    let appended =
        APPENDED.iter().find(|(name, _)| *name == layout.name).map_or(&[][..], |row| row.1);
    let offset = |name: &&str| layout.fields().find(|field| field.name == *name).unwrap().offset;
    size == layout.size
        || appended.iter().map(offset).any(|end| end == size)
        || (size > layout.size && size % layout.align == 0)
}

#[test]
fn every_struct_is_refused_at_every_size_that_no_version_has() {
    let versioned = |layout: &&Layout| layout.is_versioned();
    let callers = |layout: &&Layout| layout.name != "dtl_host_api_t";
    for layout in LAYOUTS.iter().filter(versioned).filter(callers) {
        let last = layout.fields().last().unwrap();
        assert_eq!(last.offset + last.size, layout.size, "{} ends in padding", layout.name);
        for size in 0..=layout.size + 64 {
            let Err(error) = check_size(layout, size) else {
                assert!(is_version(layout, size), "{} is accepted with {size} bytes", layout.name);
                continue;
            };
            assert!(!is_version(layout, size), "{error}");
            let cut = layout.fields().find(|field| field.offset + field.size > size);
            let end = match cut {
                Some(field) if size >= 8 && field.offset < size => {
                    format!(" and ends inside {}:", field.name)
                }
                Some(field) if size >= 8 => format!(" and ends before {}:", field.name),
                _ => ":".to_owned(),
            };
            let text = format!("{}.struct_size is {size}{end}", layout.name);
            assert!(error.text().starts_with(&text), "{text} is wanted, not {error}");
        }
        assert!(
            check_size(layout, STRUCT_LIMIT).is_ok()
                && check_size(layout, STRUCT_LIMIT + 8).is_err()
        );
    }
    assert!(LAYOUTS.iter().filter(versioned).count() > 40);
}
