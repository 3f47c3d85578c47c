//! Environment variables of the library: their values and origins, and errors in them. This module
//! does not initialize the library, so that it also works if a variable has an invalid value.

use dtl::tooling::{launch, settings};
use std::collections::BTreeMap;

/// Environment variable that the library reads.
pub(crate) struct Variable {
    pub(crate) name: &'static str,
    pub(crate) meaning: &'static str,
    /// Value of the variable; `None` if it is not set.
    pub(crate) value: Option<String>,
}

impl Variable {
    /// Returns "set" or "not set". An empty variable counts as not set.
    pub(crate) fn origin(&self) -> &'static str {
        if self.value.as_ref().is_some_and(|value| !value.is_empty()) { "set" } else { "not set" }
    }
}

/// All environment variables that the library reads, and the warnings and the error (if any) that
/// the library reports about them.
pub(crate) struct Environment {
    pub(crate) variables: Vec<Variable>,
    /// Warnings about variables whose names resemble those of the library's variables, and about
    /// variables that are ignored because the process runs with elevated privileges.
    pub(crate) complaints: Vec<String>,
    /// Error for the first value that the library rejects; `None` if the library accepts all
    /// values.
    pub(crate) error: Option<String>,
}

/// Reads the environment of this process.
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
