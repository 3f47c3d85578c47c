//! Paths of the programs of tools/ for tests. Included by `#[path]`.

use std::path::PathBuf;

/// Returns the path of a program of tools/, in the folder of the profile with which this test is
/// built. `./run test` builds them all before the tests.
pub(crate) fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("own path");
    // target/PROFILE/deps/TEST
    let folder = test.ancestors().nth(2).expect("a folder");
    let path = folder.join(name);
    assert!(path.exists(), "{} is not built: cargo build -p {name}", path.display());
    path
}
