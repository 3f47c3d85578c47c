//! Pages in the format of `man` (the macros of man(7)).

use crate::{Block, Page, installed};

/// Returns the text of a page of section 3.
pub fn page(page: &Page, version: &str) -> String {
    let name = &page.name;
    let mut text = format!(
        ".\\\" Generated from dtl-api.json. Do not edit.\n\
         .TH {name} 3 \"\" \"libdtl {version}\" \"libdtl\"\n.SH NAME\n{name} \\- {}\n",
        escaped(&page.brief)
    );
    for block in &page.blocks {
        match block {
            Block::Heading(heading) => text.push_str(&format!(".SH {heading}\n")),
            Block::Paragraph(words) => text.push_str(&format!(".PP\n{}\n", escaped(words))),
            Block::Code(lines) => text.push_str(&format!(".PP\n.nf\n{}\n.fi\n", escaped(lines))),
            Block::Term(term, words) => {
                text.push_str(&format!(".TP\n.B {}\n{}\n", escaped(term), escaped(words)));
            }
        }
    }
    text
}

/// Returns the text of a page that shows another one.
pub fn alias(name: &str) -> String {
    format!(".so man3/{name}.3\n")
}

/// Escapes what roff would interpret: backslashes, hyphens, and lines that begin with a dot or a
/// quote.
fn escaped(text: &str) -> String {
    let text = installed(text).replace('\\', "\\e").replace('-', "\\-").replace('`', "");
    let lines = text.lines().map(|line| match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    if lines.is_empty() { "\\&".to_owned() } else { lines }
}
