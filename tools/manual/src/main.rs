//! dtl-manual: writes the manual pages of section 3, one for each function, type and constant, or
//! the sources of the documentation site.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks")]

use manual::{Api, Page, roff, site};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: dtl-manual FOLDER
  writes FOLDER/NAME.3 for each function, handle, struct, callback and integer type of the headers
       dtl-manual --site REPOSITORY FOLDER
  writes a book for mdBook into FOLDER: the documents of the repository, and the reference";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [folder] if !folder.starts_with('-') => write(Path::new(folder)),
        [option, root, folder] if option == "--site" => {
            site::write(Path::new(root), Path::new(folder))
        }
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(count) => {
            println!("{count} pages");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dtl-manual: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes all pages, and returns their number.
fn write(folder: &Path) -> Result<usize, String> {
    let api = Api::read()?;
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut count = 0;
    for item in api.items().filter(|item| item.kind() != "constant") {
        let file = folder.join(format!("{}.3", item.name()));
        let text = roff::page(&Page::of(&api, item), api.version());
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        count += 1;
    }
    Ok(count)
}
