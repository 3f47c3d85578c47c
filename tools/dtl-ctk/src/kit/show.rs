//! `dtl-ctk list` and `dtl-ctk explain`: the catalog for people.

use crate::kit::catalog::{self, Body};
use dtl::tooling::settings::distance;
use std::fmt::Write;

/// A line for each test that fits: name, what it takes, what is checked.
pub(crate) fn list(components: &[String], patterns: &[String]) -> String {
    let mut text = String::new();
    for (group, test) in catalog::all() {
        let fits = components.is_empty() || components.iter().any(|name| name == test.component());
        let matches =
            patterns.is_empty() || patterns.iter().any(|one| catalog::matches(one, test.name));
        if fits && matches {
            let needs = needs(group, test);
            let _ = writeln!(
                text,
                "{:<56} {}{}",
                test.name,
                test.what,
                if needs.is_empty() { needs } else { format!(" [{needs}]") }
            );
        }
    }
    text
}

/// What a backend must have for the test.
fn needs(group: &catalog::Group, test: &catalog::Test) -> String {
    let mut needs: Vec<String> =
        group.needs.iter().chain(&test.also).map(|need| need.text()).collect();
    match test.body {
        Body::Ranks(least, _) if least > 1 => needs.push(format!("{least} ranks")),
        Body::Ranks(..) => needs.push("a communicator".to_owned()),
        Body::Wire(least, _) => needs.push(format!("a comm table, {least} rank(s)")),
        Body::Slots(_) => needs.push("tables".to_owned()),
        Body::Alone(_) | Body::Backend(_) | Body::Tables(_) => {}
    }
    needs.join(", ")
}

/// All that is known of a test.
pub(crate) fn explain(name: &str) -> Result<String, String> {
    let Some((group, test)) = catalog::find(name) else {
        let names = || catalog::all().map(|(_, test)| test.name);
        let mut near: Vec<&str> = names().filter(|other| other.contains(name)).take(5).collect();
        if near.is_empty() {
            near.extend(names().min_by_key(|other| distance(other, name)));
        }
        return Err(format!(
            "no test is called {name} (see dtl-ctk list); did you mean {}?",
            near.join(", ")
        ));
    };
    let needs = needs(group, test);
    let needs = if needs.is_empty() { "nothing special".to_owned() } else { needs };
    let who: fn(&Body) -> &str = |body| match body {
        Body::Alone(_) | Body::Backend(_) => "one process, through the library's calls",
        Body::Ranks(..) => "every rank of a communicator of its own",
        Body::Slots(_) => "one process, which calls the slots of the backend's tables",
        Body::Wire(..) => "every rank of a comm table, which calls its slots",
        Body::Tables(_) => {
            "tables that dtl-ctk registers itself; the backend under test takes no part"
        }
    };
    Ok(format!(
        "{}\n  checks    {}\n  slot      {}\n  needs     {needs}\n  run by    {}\n  the rule  \
         {}\n  a failure usually means\n            {}\n  again     dtl-ctk run … --only {}\n",
        test.name,
        test.what,
        group.slot,
        who(&test.body),
        group.rule,
        group.usually,
        test.name
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_explained() {
        for (_, test) in catalog::all() {
            let text = explain(test.name).expect("a test of the catalog");
            assert!(text.contains(test.what) && text.lines().count() >= 8, "{text}");
        }
        assert!(explain("memory.nothing").is_err());
        let misspelt = explain("memory.host.every_bite_usable");
        assert!(
            misspelt
                .is_err_and(|text| text.contains("did you mean memory.host.every_byte_usable?"))
        );
        assert!(
            explain("every_byte").is_err_and(|text| text.contains("memory.host.every_byte_usable"))
        );
    }
}
