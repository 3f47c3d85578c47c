//! Versions of environments, their comparison, and requirements such as "name>=version".

use crate::error::{Result, fail};
use crate::runtime::check_name;
use std::cmp::Ordering;
use std::fmt;

/// Required environment and its minimum version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Name of the environment.
    pub name: String,
    /// Minimum version; `None` if any version is sufficient.
    pub at_least: Option<String>,
}

impl Requirement {
    /// Parses "name" or "name>=version".
    pub fn parse(text: &str) -> Result<Self> {
        let (name, version) = match text.split_once(">=") {
            Some((name, version)) => (name.trim_end(), Some(version.trim_start())),
            None => (text, None),
        };
        check_name("environment", name)?;
        version.map_or(Ok(()), |version| check(name, version))?;
        Ok(Requirement { name: name.to_owned(), at_least: version.map(str::to_owned) })
    }

    /// Returns true if an environment of this version meets the requirement.
    pub fn is_met_by(&self, version: &str) -> bool {
        self.at_least
            .as_deref()
            .is_none_or(|least| !version.is_empty() && compare(version, least).is_ge())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at_least {
            Some(version) => write!(f, "{}>={version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Fails if `version` is not a valid version.
pub fn check(name: &str, version: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || "._-+~".contains(c);
    let begins = version.starts_with(|c: char| c.is_ascii_digit());
    if begins && version.len() <= 63 && version.chars().all(good) {
        return Ok(());
    }
    fail!(
        DTL_ERROR_INVALID_ARGUMENT,
        "environment {name}, version \"{version}\": begin with a number and use at most 63 \
         letters, digits, '.', '_', '-', '+' and '~'"
    )
}

/// Compares two versions by their dot-separated numbers, from left to right. A missing number
/// counts as 0.
fn compare(one: &str, other: &str) -> Ordering {
    let (one, other) = (numbers(one), numbers(other));
    let at = |list: &[String], index: usize| list.get(index).cloned().unwrap_or_default();
    (0..one.len().max(other.len()))
        .map(|index| (at(&one, index), at(&other, index)))
        .map(|(one, other)| one.len().cmp(&other.len()).then(one.cmp(&other)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// Returns the dot-separated numbers of a version as strings of digits without leading zeros (""
/// for 0). Stops at the first component that contains a character other than a digit: the leading
/// digits of this component are the last number.
fn numbers(version: &str) -> Vec<String> {
    let mut numbers = Vec::new();
    for part in version.split('.') {
        let digits = part.trim_start_matches(|c: char| c.is_ascii_digit());
        let (number, rest) = part.split_at(part.len() - digits.len());
        if number.is_empty() {
            break;
        }
        numbers.push(number.trim_start_matches('0').to_owned());
        if !rest.is_empty() {
            break;
        }
    }
    numbers
}

#[cfg(test)]
#[path = "tests/version.rs"]
mod tests;
