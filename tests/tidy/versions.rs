//! The version of each recipe in `packaging` is that of Cargo.toml.
//!
//! Recipes are read by tools of others, so each has the version as text. They are not generated.

use super::{report, root};
use std::fs;

/// Folder in `packaging`, file in it (VERSION stands for the version), text before and after the
/// version.
const PLACES: &[(&str, &str, &str, &str)] = &[
    ("conda", "recipe.yaml", "\n  version: \"", "\"\n"),
    ("debian", "changelog", "libdtl (", "-"),
    ("easybuild", "dtl-VERSION.eb", "\nversion = '", "'\n"),
    ("rpm", "dtl.spec", "\nVersion: ", "\n"),
    ("spack", "package.py", "\n    version(\"", "\""),
];

/// Returns the version of the workspace.
fn version() -> String {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    between(&text, "[workspace.package]\nversion = \"", "\"").unwrap().to_owned()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0.trim())
}

/// Returns what is wrong with a recipe: it is absent, or has another version.
fn fault(path: &str, text: Option<&str>, around: (&str, &str), version: &str) -> Option<String> {
    let Some(text) = text else {
        return Some(format!("packaging/{path} is absent: rename the file of the old version"));
    };
    let found = between(text, around.0, around.1);
    (found != Some(version)).then(|| {
        format!("packaging/{path} is for {}: Cargo.toml has {version}", found.unwrap_or("none"))
    })
}

#[test]
fn recipes_have_the_version_of_cargo_toml() {
    let version = version();
    let mut findings = Vec::new();
    for entry in fs::read_dir(root().join("packaging")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        // A container has what its sources are.
        if name == "container" || !entry.path().is_dir() {
            continue;
        }
        let Some((folder, file, before, after)) = PLACES.iter().find(|row| row.0 == name) else {
            findings.push(format!("packaging/{name}: give it a row in tests/tidy/versions.rs"));
            continue;
        };
        let path = format!("{folder}/{}", file.replace("VERSION", &version));
        let text = fs::read_to_string(root().join("packaging").join(&path)).ok();
        findings.extend(fault(&path, text.as_deref(), (before, after), &version));
    }
    report(&findings);
}

#[test]
fn other_versions_are_found() {
    let check = |text| fault("x", text, ("\nversion = '", "'\n"), "1.2.3");
    assert_eq!(check(Some("a\nversion = '1.2.3'\n")), None);
    for bad in [None, Some("a\nversion = '1.2.2'\n"), Some("a\n"), Some("a\nversion = '1.2.3\n")] {
        assert!(check(bad).is_some(), "accepted: {bad:?}");
    }
}
