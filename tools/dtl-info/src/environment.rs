//! Environment variables of the library: their values and origins, and errors in them. Does not
//! initialise the library, so that it also works if a variable has an invalid value.

use dtl::tooling::{launch, settings};
use std::collections::BTreeMap;

/// One variable of the library's table.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    /// `None` = not set.
    pub(crate) value: Option<String>,
}

impl Variable {
    /// Returns the origin of the value. An empty variable counts as not set.
    pub(crate) fn origin(&self) -> &'static str {
        if self.value.as_ref().is_some_and(|value| !value.is_empty()) { "set" } else { "not set" }
    }
}

/// All of them.
pub(crate) struct Environment {
    pub(crate) variables: Vec<Variable>,
    /// Warnings about variables whose names resemble the library's.
    pub(crate) complaints: Vec<String>,
    /// First value that the library rejects.
    pub(crate) error: Option<String>,
}

/// Looks at this process' environment.
pub(crate) fn read() -> Environment {
    let mut present: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .collect();
    let variables: Vec<_> = settings::VARIABLES
        .iter()
        .map(|&(name, meaning)| Variable { name, meaning, value: present.get(name).cloned() })
        .collect();
    let mut complaints = settings::complaints(&present);
    complaints.extend(settings::withhold(&mut present, settings::is_privileged()));
    let refused =
        settings::from_environment(&present).err().or_else(|| launch::from_environment().err());
    Environment { variables, complaints, error: refused.map(|error| error.to_string()) }
}
