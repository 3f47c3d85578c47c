//! Reports as text, at most 100 columns wide.

use crate::environment::Environment;
use crate::facts::{Choice, DeviceFacts, EnvironmentFacts, Facts, MachineFacts};
use crate::manifest::Manifest;
use crate::plugins::{Listing, Tried};
use dtl_sys::DTL_ABI_VERSION;

const WIDTH: usize = 100;
/// Maximum width of a column in characters. Longer cells are truncated, for example names, which
/// may have 63 characters; --json reports them in full.
const MOST_OF_A_COLUMN: usize = 24;
/// Suffix of the names of memory properties that specify which processors can access the memory,
/// for example "host_accessible".
const ACCESSIBLE: &str = "_accessible";

/// Formats the report of `dtl-info`.
pub(crate) fn facts(facts: &Facts) -> String {
    let mut out = format!(
        "libdtl {}, ABI version {DTL_ABI_VERSION}, licence {}\n",
        env!("CARGO_PKG_VERSION"),
        env!("CARGO_PKG_LICENSE")
    );
    out += "\nMachine\n";
    out += &machine(&facts.machine);
    out += "\nBackends\n";
    out += &backends(facts);
    out += "\nPlugins\n";
    out += &plugins(&facts.plugins);
    if !facts.environments.is_empty() {
        out += "\nEnvironments\n";
        out += &environments(&facts.environments);
    }
    out += "\nDevices\n";
    out +=
        &table(&["backend", "device", "kind", "units", "memory", "free", "name"], &devices(facts));
    out += "\nMemory kinds\n";
    out += &table(&["backend", "kind", "align", "used by", "what it is"], &memory_kinds(facts));
    out += "\nChosen here\n";
    out += &choice("backend", &facts.backend);
    out += &choice("communicator", &facts.communicator);
    out
}

/// Formats the report of `dtl-info --env`.
pub(crate) fn environment(environment: &Environment) -> String {
    let mut out = String::new();
    let longest =
        environment.variables.iter().map(|variable| width(variable.name)).max().unwrap_or(0);
    let column = longest + 2;
    for variable in &environment.variables {
        let value = match (&variable.value, variable.origin()) {
            (Some(value), "set") => format!("\"{value}\" (set)"),
            (Some(_), origin) => format!("{origin} (empty)"),
            (None, origin) => origin.to_owned(),
        };
        out += &wrapped(&format!("{:<column$}", variable.name), &value);
        out += &wrapped(&" ".repeat(column), variable.meaning);
    }
    for complaint in &environment.complaints {
        out += &wrapped("warning: ", complaint);
    }
    if let Some(error) = &environment.error {
        out += &wrapped("error: ", error);
    }
    out
}

fn machine(machine: &MachineFacts) -> String {
    let number = |value: Option<i32>| value.map_or("?".to_owned(), |value| value.to_string());
    let size = |value: Option<u64>| value.map_or("?".to_owned(), bytes);
    let mut cpus = format!(
        "{} online, this program may use {} ({})",
        number(machine.cpus_online),
        machine.cpus_allowed.len(),
        ranges(&machine.cpus_allowed)
    );
    if let Some(quota) = machine.cpu_quota_milli {
        cpus += &format!(", for the time of {:.2}", quota as f64 / 1000.0);
    }
    let cores = format!(
        "{}, each with {} hardware thread(s); {} socket(s), {} NUMA node(s)",
        number(machine.cores),
        number(machine.threads_per_core),
        number(machine.sockets),
        number(machine.numa_nodes)
    );
    let caches = format!(
        "L1d {}, L2 {}, L3 {}",
        size(machine.l1d_bytes),
        size(machine.l2_bytes),
        size(machine.l3_bytes)
    );
    let mut memory = size(machine.memory_bytes);
    if let Some(limit) = machine.memory_limit_bytes {
        memory += &format!(", of which this program may use {}", bytes(limit));
    }
    let name = machine.hostname.as_deref().unwrap_or("?");
    let lines = [
        ("name", name),
        ("CPUs", &cpus),
        ("cores", &cores),
        ("caches", &caches),
        ("memory", &memory),
    ];
    lines.map(|(head, text)| wrapped(&format!("  {head:<14}"), text)).concat()
}

/// Formats ascending numbers as "0-3, 8".
fn ranges(numbers: &[i32]) -> String {
    let runs =
        numbers.chunk_by(|a, b| a + 1 == *b).filter_map(|run| Some((run.first()?, run.last()?)));
    let texts = runs.map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    texts.collect::<Vec<_>>().join(", ")
}

fn backends(facts: &Facts) -> String {
    let rows = facts.backends.iter().map(|backend| {
        let origin = || {
            if facts.plugins.iter().any(|p| p.backends.contains(&backend.name)) {
                "plugin"
            } else {
                "registered"
            }
        };
        vec![
            backend.name.clone(),
            if backend.unavailable.is_none() { "yes" } else { "no" }.to_owned(),
            backend.auto_priority.map_or("never".to_owned(), |priority| priority.to_string()),
            if backend.builtin { "built in" } else { origin() }.to_owned(),
            backend.components.join(", "),
        ]
    });
    let mut out =
        table(&["name", "available", "auto", "origin", "components"], &rows.collect::<Vec<_>>());
    for backend in &facts.backends {
        if let Some(text) = backend.unavailable.as_ref().or(backend.chosen.as_ref()) {
            out += &wrapped(&format!("  {}: ", backend.name), text);
        }
    }
    out
}

fn plugins(plugins: &[Tried]) -> String {
    if plugins.is_empty() {
        return "  none (DTL_PLUGIN_PATH names folders to search)\n".to_owned();
    }
    let mut out = String::new();
    for plugin in plugins {
        out += &wrapped("  ", &plugin.path);
        let version = format!("{} {}", plugin.name, plugin.version);
        let said = match &plugin.failure {
            Some((status, reason)) => format!("{status}: {reason}"),
            None => {
                format!(
                    "{}; backends {}; {}",
                    version.trim(),
                    plugin.backends.join(", "),
                    plugin.description
                )
            }
        };
        out += &wrapped(&format!("      {:<8}", plugin.state), &said);
    }
    out
}

fn environments(environments: &[EnvironmentFacts]) -> String {
    let rows = environments.iter().map(|one| {
        vec![
            one.name.clone(),
            if one.unavailable.is_none() { "yes" } else { "no" }.to_owned(),
            one.state.to_owned(),
            one.version.clone(),
            one.depends.join(", "),
            one.backends.join(", "),
        ]
    });
    let heads = ["name", "available", "state", "version", "depends on", "needed by backends"];
    let mut out = table(&heads, &rows.collect::<Vec<_>>());
    for one in environments {
        if let Some(why) = &one.unavailable {
            out += &wrapped(&format!("  {}: ", one.name), why);
        }
    }
    out
}

/// Formats the report of `dtl-info --plugins`.
pub(crate) fn listing(listing: &Listing) -> String {
    let mut out = "Searched\n".to_owned();
    for (path, origin, fault) in &listing.places {
        let fault = fault.as_ref().map_or(String::new(), |fault| format!(": {fault}"));
        out += &wrapped("  ", &format!("{} ({origin}){fault}", path.display()));
    }
    out += "\nPlugin files (not loaded)\n";
    for found in &listing.files {
        out += &wrapped("  ", &format!("{} ({})", found.path.display(), found.origin));
        let manifest = match &found.manifest {
            None => "none".to_owned(),
            Some(Err(error)) => format!("cannot be read: {error}"),
            Some(Ok(manifest)) => described(manifest),
        };
        out += &wrapped("      manifest  ", &manifest);
        if let Some(fault) = &found.fault {
            out += &wrapped("      fault     ", fault);
        }
    }
    out
}

/// Formats a manifest: "mine 1.0: ABI 2 to 2; memory, comm; needs openblas; what it is".
fn described(manifest: &Manifest) -> String {
    let mut parts = Vec::new();
    if let Some((low, high)) = manifest.abi {
        parts.push(format!("ABI {low} to {high}"));
    }
    parts.push(manifest.components.join(", "));
    if !manifest.environments.is_empty() {
        parts.push(format!("needs {}", manifest.environments.join(", ")));
    }
    parts.push(manifest.description.clone());
    parts.retain(|part| !part.is_empty());
    format!("{}: {}", format!("{} {}", manifest.name, manifest.version).trim(), parts.join("; "))
}

fn devices(facts: &Facts) -> Vec<Vec<String>> {
    let all =
        facts.backends.iter().flat_map(|backend| backend.devices.iter().map(move |d| (backend, d)));
    all.map(|(backend, device)| device_row(&backend.name, device)).collect()
}

fn device_row(backend: &str, device: &DeviceFacts) -> Vec<String> {
    let unknown = || "-".to_owned();
    vec![
        backend.to_owned(),
        device.index.to_string(),
        device.kind.to_owned(),
        device.compute_units.map_or_else(unknown, |units| units.to_string()),
        device.total_bytes.map_or_else(unknown, bytes),
        device.free_bytes.map_or_else(unknown, bytes),
        device.name.clone(),
    ]
}

fn memory_kinds(facts: &Facts) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for backend in &facts.backends {
        for kind in &backend.memory_kinds {
            let users: Vec<_> =
                kind.properties.iter().filter_map(|p| p.strip_suffix(ACCESSIBLE)).collect();
            let others: Vec<_> =
                kind.properties.iter().filter(|p| !p.ends_with(ACCESSIBLE)).copied().collect();
            rows.push(vec![
                backend.name.clone(),
                kind.kind.to_owned(),
                kind.alignment.to_string(),
                users.join(", "),
                format!("{}: {}", kind.name, others.join(", ")),
            ]);
        }
    }
    rows
}

fn choice(what: &str, choice: &Result<Choice, String>) -> String {
    let text = match choice {
        Ok(choice) => format!("{}: {}", choice.name, choice.why),
        Err(error) => format!("none: {error}"),
    };
    wrapped(&format!("  {what:<14}"), &text)
}

/// Formats a number of bytes: "7.8 GiB".
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats columns two spaces apart. The last column is wrapped at WIDTH; the others are truncated
/// to MOST_OF_A_COLUMN characters.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let all = || std::iter::once(&heads).chain(rows);
    let cut = |cell: &String| cell.chars().take(MOST_OF_A_COLUMN).collect::<String>();
    let mut out = String::new();
    for row in all() {
        let mut line = "  ".to_owned();
        for (column, cell) in row.iter().enumerate().take(row.len().saturating_sub(1)) {
            let cell = cut(cell);
            let widest = all()
                .filter_map(|row| row.get(column))
                .map(|cell| width(&cut(cell)))
                .max()
                .unwrap_or(0);
            line += &cell;
            line += &" ".repeat(widest - width(&cell) + 2);
        }
        out += &wrapped(&line, row.last().map_or("", String::as_str));
    }
    out
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Formats `text` after `head` in lines of at most WIDTH characters. The continuation lines are
/// indented by the width of the head. A word that is longer than a line, such as a path, is split.
fn wrapped(head: &str, text: &str) -> String {
    let room = WIDTH.saturating_sub(width(head)).max(20);
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (number, piece) in letters.chunks(room).enumerate() {
            let fits = lines.last().is_some_and(|line| width(line) + 1 + piece.len() <= room);
            match lines.last_mut() {
                Some(line) if line.is_empty() => line.extend(piece),
                Some(line) if fits && number == 0 => {
                    line.push(' ');
                    line.extend(piece);
                }
                _ => lines.push(piece.iter().collect()),
            }
        }
    }
    let indent = " ".repeat(width(head));
    let mut out = String::new();
    for (number, line) in lines.iter().enumerate() {
        let begin = if number == 0 { head } else { &indent };
        out += format!("{begin}{line}").trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
#[path = "tests/text.rs"]
mod tests;
