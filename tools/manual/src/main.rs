//! dtl-manual: writes the manual pages of section 3, one for each function, type, macro and noun, or
//! the sources of the documentation site.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks")]

use manual::{Api, Page, noun, overview, roff, site};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: dtl-manual FOLDER
  writes FOLDER/NAME.3 for each function, handle, struct, callback, integer type and macro of the
  headers, for each noun (dtl_comm), and the overview libdtl.3
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
    let items = api.items().filter(|item| item.kind() != "constant");
    let nouns = noun::all(&api);
    let nouns = nouns.iter().filter_map(|name| noun::page(&api, name));
    let pages = items.map(|item| Page::of(&api, item)).chain(nouns).chain([overview::page(&api)]);
    let pages = pages.map(|page| (page.name.clone(), roff::page(&page, api.version())));
    let aliases = api.type_macros().map(|(name, of)| (name.to_owned(), roff::alias(of.name())));
    for (name, text) in pages.chain(aliases) {
        let file = folder.join(format!("{name}.3"));
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        count += 1;
    }
    Ok(count)
}
