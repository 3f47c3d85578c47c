//! Comparison of the layouts that the structs of the public header have in a plugin and in this
//! library.
//!
//! A struct that begins with struct_size may lack fields at its end (an older header) or have more
//! fields there (a newer header). Fields that both layouts have must be at the same offset.

use crate::abi::layouts::LAYOUTS;
use crate::error::{Result, fail};

/// Checks one row of a plugin's layout table. The row describes the struct `name` or, if `field` is
/// not `None`, that field of the struct. Returns an error if the row is incompatible with this
/// library's layout. The error message contains the offsets and sizes of both layouts.
pub(super) fn check(name: &str, field: Option<&str>, offset: usize, size: usize) -> Result<()> {
    // A struct that this library does not have comes from a newer header. This library never calls
    // the slots that use such a struct.
    let Some(whole) = LAYOUTS.iter().find(|known| known.name == name) else { return Ok(()) };
    let ours = |name| whole.fields().find(|field| field.name == name);
    let grows = ours("struct_size").is_some();
    let Some(field) = field else {
        if size == whole.size || grows {
            return Ok(());
        }
        return fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{name} has {size} bytes in the plugin and {} in this library: {REBUILD}",
            whole.size
        );
    };
    match ours(field) {
        Some(known) if (known.offset, known.size) == (offset, size) => Ok(()),
        Some(known) => fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{name}.{field} lies at offset {offset} ({size} bytes) in the plugin and at {} ({} \
             bytes) in this library: {REBUILD}",
            known.offset,
            known.size
        ),
        None if grows && offset >= whole.size => Ok(()),
        None => fail!(
            DTL_ERROR_INCOMPATIBLE_ABI,
            "{name}.{field} lies at offset {offset} ({size} bytes) in the plugin and is not known \
             to this library, whose {name} has {} bytes: {REBUILD}",
            whole.size
        ),
    }
}

const REBUILD: &str =
    "build the plugin with this library's dtl.h and without options that change layouts";

#[cfg(test)]
#[path = "tests/layout.rs"]
mod tests;
