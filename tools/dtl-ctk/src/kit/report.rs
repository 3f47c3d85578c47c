//! Report for the user, which consists of one line for each expected or unexpected failure, a
//! table, JSON and JUnit XML.

use crate::kit::catalog::COMPONENTS;
use crate::kit::expect::{self, Expected};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Outcome of a test, as reported by its process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ended {
    Passed,
    Skipped(String),
    /// Skipped, because the backend cannot run here.
    Away(String),
    Failed(String),
    /// Not run, because other tests failed.
    NotRun(String),
}

/// Outcome of a test after comparison with the list of expected failures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    Pass,
    Skip(String),
    NotRun(String),
    Fail(String),
    /// Failed as expected: error message, and reason from the file of expected failures.
    ExpectedFailure(String, String),
    /// Passed although a failure was expected: reason from the file of expected failures.
    UnexpectedPass(String),
}

/// Result of a test.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) test: &'static str,
    pub(crate) verdict: Verdict,
    /// True if the test was skipped because the backend cannot run here.
    is_away: bool,
    pub(crate) seconds: f64,
}

impl Entry {
    pub(crate) fn new(
        test: &'static str,
        ended: Ended,
        seconds: f64,
        expected: &[Expected],
    ) -> Entry {
        let is_away = matches!(ended, Ended::Away(_));
        let verdict = match (ended, expect::reason(expected, test)) {
            (Ended::Skipped(why) | Ended::Away(why), _) => Verdict::Skip(why),
            (Ended::NotRun(why), _) => Verdict::NotRun(why),
            (Ended::Passed, None) => Verdict::Pass,
            (Ended::Failed(text), None) => Verdict::Fail(text),
            (Ended::Passed, Some(reason)) => Verdict::UnexpectedPass(reason.to_owned()),
            (Ended::Failed(text), Some(reason)) => {
                Verdict::ExpectedFailure(text, reason.to_owned())
            }
        };
        Entry { test, verdict, is_away, seconds }
    }

    /// Returns true if the result counts as a failure of the backend.
    pub(crate) fn is_bad(&self) -> bool {
        matches!(self.verdict, Verdict::Fail(_) | Verdict::UnexpectedPass(_))
    }

    /// Returns true if the report does not need a line for the result.
    pub(crate) fn is_quiet(&self) -> bool {
        matches!(self.verdict, Verdict::Pass | Verdict::Skip(_) | Verdict::NotRun(_))
    }

    /// Returns the details of the result: the error message or the reason.
    pub(crate) fn text(&self) -> String {
        self.words().2
    }

    fn component(&self) -> &'static str {
        self.test.split('.').next().unwrap_or(self.test)
    }

    /// Returns the name of the verdict in the text report, its name in JSON, and the details.
    fn words(&self) -> (&'static str, &'static str, String) {
        match &self.verdict {
            Verdict::Pass => ("pass", "pass", String::new()),
            Verdict::Skip(why) => ("skipped", "skipped", why.clone()),
            Verdict::NotRun(why) => ("not run", "not run", why.clone()),
            Verdict::Fail(text) => ("FAIL", "failed", text.clone()),
            Verdict::ExpectedFailure(text, reason) => {
                ("expected", "expected failure", format!("{text} (expected: {reason})"))
            }
            Verdict::UnexpectedPass(reason) => {
                let text = format!("it passed, but was expected to fail: {reason}");
                ("FAIL", "unexpected pass", text)
            }
        }
    }

    pub(crate) fn line(&self) -> String {
        let (word, _, text) = self.words();
        let colon = if text.is_empty() { "" } else { ": " };
        format!("{word:<8} {}{colon}{text}", self.test)
    }
}

/// Results of a complete run.
pub(crate) struct Report {
    pub(crate) subject: String,
    pub(crate) ranks: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) seconds: f64,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        !self.entries.iter().any(Entry::is_bad)
    }

    /// Returns the reason why the backend cannot run here, if tests were skipped for this reason.
    pub(crate) fn away(&self) -> Option<&str> {
        self.entries.iter().find_map(|entry| match &entry.verdict {
            Verdict::Skip(why) if entry.is_away => Some(why.as_str()),
            _ => None,
        })
    }

    /// Returns the entries of a component, or all entries for "all".
    fn of(&self, component: &str) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(move |one| component == "all" || one.component() == component)
    }

    fn count(&self, component: &str, which: impl Fn(&Verdict) -> bool) -> usize {
        self.of(component).filter(|one| which(&one.verdict)).count()
    }

    /// Formats a table with a row for each component and a row with the sums.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:>6} {:>7} {:>7} {:>9} {:>8} {:>8}\n",
            "component", "tests", "passed", "failed", "expected", "skipped", "time"
        );
        let names = COMPONENTS.into_iter().chain(["stress"]);
        for name in names.filter(|name| self.of(name).next().is_some()).chain(["all"]) {
            let of = |which: fn(&Verdict) -> bool| self.count(name, which);
            let seconds: f64 = self.of(name).map(|one| one.seconds).sum();
            let _ = writeln!(
                text,
                "{name:<10} {:>6} {:>7} {:>7} {:>9} {:>8} {seconds:>6.1} s",
                of(|_| true),
                of(|verdict| matches!(verdict, Verdict::Pass)),
                of(|verdict| matches!(verdict, Verdict::Fail(_) | Verdict::UnexpectedPass(_))),
                of(|verdict| matches!(verdict, Verdict::ExpectedFailure(..))),
                of(|verdict| matches!(verdict, Verdict::Skip(_) | Verdict::NotRun(_))),
            );
        }
        text
    }

    /// Returns the reasons for skipped tests, with the number of tests for each reason.
    pub(crate) fn skips(&self) -> String {
        let mut reasons: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for entry in &self.entries {
            if let Verdict::Skip(why) | Verdict::NotRun(why) = &entry.verdict {
                *reasons.entry((entry.words().0, why)).or_default() += 1;
            }
        }
        reasons.into_iter().fold(String::new(), |text, ((word, why), count)| {
            text + &format!("{word} {count:>4}: {why}\n")
        })
    }

    pub(crate) fn json(&self) -> Value {
        let entry = |entry: &Entry| {
            let ((_, outcome, text), seconds) = (entry.words(), entry.seconds);
            json!({ "name": entry.test, "outcome": outcome, "text": text, "seconds": seconds })
        };
        let tests: Vec<Value> = self.entries.iter().map(entry).collect();
        let (subject, passed, seconds) = (&self.subject, self.passed(), self.seconds);
        json!({
            "subject": subject, "ranks": self.ranks, "passed": passed, "seconds": seconds,
            "tests": tests
        })
    }

    pub(crate) fn junit(&self) -> String {
        let bad = self.entries.iter().filter(|entry| entry.is_bad()).count();
        let left_out = |verdict: &Verdict| {
            matches!(verdict, Verdict::Skip(_) | Verdict::NotRun(_) | Verdict::ExpectedFailure(..))
        };
        let (tests, skipped) = (self.entries.len(), self.count("all", left_out));
        let name = escaped(&format!("dtl-ctk {}", self.subject));
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{name}\" \
             tests=\"{tests}\" failures=\"{bad}\" skipped=\"{skipped}\" time=\"{:.3}\">\n",
            self.seconds
        );
        for entry in &self.entries {
            let said = escaped(&entry.text());
            let inside = match &entry.verdict {
                Verdict::Pass => String::new(),
                verdict if left_out(verdict) => format!("<skipped message=\"{said}\"/>"),
                _ => format!("<failure message=\"{said}\"/>"),
            };
            let (class, test) = (escaped(entry.component()), escaped(entry.test));
            let _ = writeln!(
                text,
                "  <testcase classname=\"{class}\" name=\"{test}\" \
                 time=\"{:.3}\">{inside}</testcase>",
                entry.seconds
            );
        }
        text + "</testsuite>\n"
    }
}

/// Escapes a string for an XML 1.0 attribute. Replaces control characters with spaces, because XML
/// 1.0 does not allow most of them.
fn escaped(text: &str) -> String {
    let signs = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;")];
    let plain = text.replace(char::is_control, " ");
    signs.into_iter().fold(plain, |text, (sign, name)| text.replace(sign, name))
}

#[cfg(test)]
#[path = "tests/report.rs"]
mod tests;
