//! Compares size, alignment and fields of the structs in `LAYOUTS` with tests/golden/layouts.txt.

use super::layouts::LAYOUTS;

#[test]
fn layouts_are_as_recorded() {
    let mut lines = Vec::new();
    for layout in LAYOUTS {
        lines.push(format!("{} size={} align={}", layout.name, layout.size, layout.align));
        for (version, fields) in layout.versions.iter().enumerate() {
            for field in *fields {
                let (name, offset, size) = (field.name, field.offset, field.size);
                lines.push(format!(
                    "    {name} offset={offset} size={size} version={}",
                    version + 1
                ));
            }
        }
    }
    crate::golden::compare("layouts.txt", &lines, |_| String::new());
}
