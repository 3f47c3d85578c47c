//! Start plan of an environment: the environment and its dependencies, in the order in which they
//! must be started. Computing a plan does not start an environment.

use super::version::Requirement;
use super::{EnvironmentRecord, find};
use crate::error::{Error, Result, fail, failure};

/// Maximum length of a chain of dependencies between environments.
const DEEPEST: usize = 64;

/// One step of the start plan: an environment that must be started.
pub(super) struct StartStep {
    pub(super) name: String,
    /// Name of the environment that requires this one; `None` if the caller requires it.
    asker: Option<String>,
}

impl StartStep {
    /// Returns a title for error messages: "environment a, required by b".
    pub(super) fn title(&self) -> String {
        match &self.asker {
            Some(asker) => format!("environment {}, required by {asker}", self.name),
            None => format!("environment {}", self.name),
        }
    }
}

/// Returns an environment and all its direct and indirect dependencies. Each environment appears
/// once, after its own dependencies.
pub(super) fn order(records: &[EnvironmentRecord], need: &Requirement) -> Result<Vec<StartStep>> {
    let mut walk = Walk { records, path: Vec::new(), order: Vec::new() };
    walk.visit(need)?;
    Ok(walk.order)
}

struct Walk<'a> {
    records: &'a [EnvironmentRecord],
    /// Names on the dependency path from the required environment to the one that is being visited.
    path: Vec<&'a str>,
    order: Vec<StartStep>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, need: &Requirement) -> Result<()> {
        let name = need.name.as_str();
        if let Some(at) = self.path.iter().position(|known| *known == name) {
            let circle = self.path.get(at..).unwrap_or_default().join(" -> ");
            return fail!(
                DTL_ERROR_INVALID_ARGUMENT,
                "environments depend on each other in a circle: {circle} -> {name}; take one out \
                 of another's depends"
            );
        }
        let Some(record) = find(self.records, name) else { return Err(self.unknown(name)) };
        let description = &record.description;
        if !need.is_met_by(&description.version) {
            let has =
                if description.version.is_empty() { "no version" } else { &description.version };
            return fail!(
                DTL_ERROR_UNAVAILABLE,
                "environment {name} has {has}, and {}{need} is wanted",
                self.asker()
            );
        }
        if self.order.iter().any(|known| known.name == name) {
            return Ok(());
        }
        if self.path.len() > DEEPEST {
            return fail!(
                DTL_ERROR_LIMIT,
                "environment {name} is more than {DEEPEST} dependencies below {}",
                self.path.first().unwrap_or(&name)
            );
        }
        self.path.push(&description.name);
        for need in &description.depends {
            self.visit(need)?;
        }
        self.path.pop();
        let asker = self.path.last().map(|&asker| asker.to_owned());
        self.order.push(StartStep { name: name.to_owned(), asker });
        Ok(())
    }

    fn asker(&self) -> String {
        self.path.last().map_or(String::new(), |asker| format!("for {asker} "))
    }

    fn unknown(&self, name: &str) -> Error {
        let way = self.path.iter().map(|step| format!("{step} -> ")).collect::<String>();
        let way = if way.is_empty() { way } else { format!(" ({way}{name})") };
        unknown(self.records, name, &way)
    }
}

/// Creates the NOT_FOUND error for an environment name that is not registered.
pub(super) fn unknown(records: &[EnvironmentRecord], name: &str, way: &str) -> Error {
    let known: Vec<&str> = records.iter().map(|record| record.description.name.as_str()).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    failure!(
        DTL_ERROR_NOT_FOUND,
        "environment {name} is not registered{way}: register it (dtl_environment_register) or \
         load the plugin that does; registered: {known}"
    )
}
