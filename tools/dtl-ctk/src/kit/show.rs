//! `dtl-ctk list` and `dtl-ctk explain`: the catalog in readable form.

use crate::kit::catalog::{self, Body, Test};
use dtl::tooling::settings::distance;
use std::fmt::Write;

/// Returns a string with a line for each selected test: name, what is checked, requirements.
pub(crate) fn list(components: &[String], patterns: &[String]) -> String {
    let fits = |test: &&Test| {
        let named = components.is_empty() || components.iter().any(|name| name == test.component());
        named && catalog::matches_one(patterns, test.name)
    };
    catalog::all().filter(fits).fold(String::new(), |mut text, test| {
        let needs = needs(test);
        let needs = if needs.is_empty() { needs } else { format!(" [{needs}]") };
        let _ = writeln!(text, "{:<56} {}{needs}", test.name, test.what);
        text
    })
}

/// Formats the requirements that a backend must meet for a test to run.
fn needs(test: &Test) -> String {
    let mut needs: Vec<String> = test.needs.iter().map(|need| need.text()).collect();
    needs.extend(match test.body {
        Body::Ranks(_) if test.least > 1 => Some(format!("{} ranks", test.least)),
        Body::Ranks(_) => Some("a communicator".to_owned()),
        Body::SlotComm(_) => Some(format!("a comm table, {} rank(s)", test.least)),
        Body::Slots(_) => Some("tables".to_owned()),
        _ => None,
    });
    needs.join(", ")
}

/// Returns the explanation of a test.
pub(crate) fn explain(name: &str) -> Result<String, String> {
    let Some(test) = catalog::find(name) else {
        let names = || catalog::all().map(|test| test.name);
        let mut near: Vec<&str> = names().filter(|other| other.contains(name)).take(5).collect();
        if near.is_empty() {
            near.extend(names().min_by_key(|other| distance(other, name)));
        }
        return Err(format!(
            "no test is called {name} (see dtl-ctk list); did you mean {}?",
            near.join(", ")
        ));
    };
    let needs = needs(test);
    let needs = if needs.is_empty() { "nothing special".to_owned() } else { needs };
    let who: fn(&Body) -> &str = |body| match body {
        Body::Ranks(..) => "every rank of a communicator of its own",
        Body::Slots(_) => "one process, which calls the slots of the backend's tables",
        Body::SlotComm(..) => "every rank of a comm table, which calls its slots",
        Body::Tables(_) => {
            "tables that dtl-ctk registers itself; the backend under test takes no part"
        }
        _ => "one process, through the library's calls",
    };
    Ok(format!(
        "{}\n  checks    {}\n  slot      {}\n  needs     {needs}\n  run by    {}\n  the rule  \
         {}\n  a failure usually means\n            {}\n  again     dtl-ctk run … --only {}\n",
        test.name,
        test.what,
        test.slot,
        who(&test.body),
        test.rule,
        test.usually,
        test.name
    ))
}

#[cfg(test)]
#[path = "tests/show.rs"]
mod tests;
