//! `dtl-info explain`: the manual page of a function, type, constant or noun, or what a status or an
//! environment variable means.

use crate::environment;
use clap::Args;
use manual::{Api, Page, noun, plain};

/// Explain a status, a function, a type, a constant or an environment variable
#[derive(Args)]
pub(crate) struct Options {
    /// Its name (dtl_comm_send, dtl_comm, DTL_ERROR_TIMEOUT, DTL_COMM), or the number of a status (106)
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
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
    let names = variables.iter().map(|one| one.name);
    let similar = api.similar(name, names);
    let hint = match similar.is_empty() {
        true => "names are those of dtl.h, and of dtl-info --env".to_owned(),
        false => format!("did you mean {}?", similar.join(", ")),
    };
    Err(format!("explain: no function, type, noun, constant or variable is named {name}: {hint}"))
}
