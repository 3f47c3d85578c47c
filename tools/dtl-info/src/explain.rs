//! `dtl-info explain`: the manual page of a function, type, macro, constant or noun, what a status or an
//! environment variable means, a function of the CMake package, or what is near a name of another
//! interface.

use crate::environment;
use clap::Args;
use manual::{Api, Page, installed, noun, overview, plain};

/// Explain a status, a function, a type, a macro, a constant, an environment variable, a CMake function or
/// a name of MPI or CUDA
#[derive(Args)]
pub(crate) struct Options {
    /// Its name (dtl_comm_send, dtl_comm, DTL_ERROR_TIMEOUT, DTL_COMM, MPI_Send), or the number of a
    /// status (106); libdtl: the rules and all sections
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
}

/// CMake functions, with the files whose first comment describes them.
const CMAKE: [(&str, &str); 2] = [
    ("dtl_add_backend", include_str!("../../../cmake/DtlAddBackend.cmake")),
    ("dtl_add_environment", include_str!("../../../cmake/DtlAddEnvironment.cmake")),
];

/// Returns the first comment of a CMake file.
fn cmake(file: &str) -> String {
    let lines = file.lines().map_while(|line| line.strip_prefix('#'));
    let text: String =
        lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect();
    installed(&text)
}

/// Returns the texts about all names; an error for the first that does not exist.
pub(crate) fn run(options: &Options) -> Result<String, String> {
    let api = Api::read()?;
    let texts = options.names.iter().map(|name| text(&api, name));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn text(api: &Api, name: &str) -> Result<String, String> {
    if let Some(item) = api.find(name).or_else(|| name.parse().ok().and_then(|n| api.status(n))) {
        return Ok(plain::page(&Page::of(api, item)));
    }
    if name == overview::OVERVIEW {
        return Ok(plain::page(&overview::page(api)));
    }
    if let Some(page) = noun::page(api, name) {
        return Ok(plain::page(&page));
    }
    let variables = environment::read().variables;
    if let Some(variable) = variables.iter().find(|one| one.name.eq_ignore_ascii_case(name)) {
        let value = match (&variable.value, variable.origin()) {
            (Some(value), "set") => format!("\"{value}\""),
            (_, origin) => origin.to_owned(),
        };
        return Ok(plain::variable(variable.name, variable.meaning, &value));
    }
    if let Some((_, file)) = CMAKE.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok(cmake(file));
    }
    if let Some(page) = overview::of_equivalents(api, name) {
        return Ok(plain::page(&page));
    }
    let names = variables.iter().map(|one| one.name).chain(CMAKE.map(|(known, _)| known));
    let similar = api.similar(name, names);
    let hint = match similar.is_empty() {
        true => "names are those of dtl.h and of dtl-info --env, and equivalents in MPI and CUDA"
            .to_owned(),
        false => format!("did you mean {}?", similar.join(", ")),
    };
    Err(format!(
        "explain: no function, type, macro, noun, constant or variable is named {name}: {hint}"
    ))
}
