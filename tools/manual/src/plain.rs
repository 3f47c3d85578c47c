//! Pages as text for a terminal.

use crate::{Block, Page, installed};

const WIDTH: usize = 80;

/// Returns the text of a page.
pub fn page(page: &Page) -> String {
    let mut text = format!("{}: {}\n", page.name, page.brief);
    for block in &page.blocks {
        match block {
            Block::Heading(heading) => text.push_str(&format!("\n{heading}\n")),
            Block::Paragraph(words) => fill(words, 4, &mut text),
            Block::Code(lines) => {
                for line in lines.lines() {
                    text.push_str(format!("    {line}").trim_end());
                    text.push('\n');
                }
            }
            Block::Term(term, words) => {
                text.push_str(&format!("    {term}\n"));
                fill(words, 8, &mut text);
            }
        }
    }
    text
}

/// Returns the text about an environment variable.
pub fn variable(name: &str, meaning: &str, value: &str) -> String {
    let mut text = format!("{name}: environment variable\n");
    fill(meaning, 4, &mut text);
    fill(&format!("In this environment: {value}"), 4, &mut text);
    text
}

/// Appends words in lines of at most `WIDTH` columns.
fn fill(words: &str, indent: usize, text: &mut String) {
    let mut column = 0;
    for word in installed(words).split_whitespace() {
        if column > 0 && column + 1 + word.len() > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column == 0 {
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    if column > 0 {
        text.push('\n');
    }
}
