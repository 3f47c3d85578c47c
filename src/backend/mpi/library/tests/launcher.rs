//! Tests of `launcher`.

use super::*;

fn check(is_open_mpi: bool, pairs: &[(&str, &str)]) -> Result<()> {
    check_launcher(is_open_mpi, "libmpi", &lookup(pairs))
}

fn lookup<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
}

const OMPI: [(&str, &str); 2] = [("OMPI_COMM_WORLD_SIZE", "4"), ("PMIX_RANK", "0")];
const HYDRA: [(&str, &str); 2] = [("PMI_RANK", "0"), ("PMI_SIZE", "4")];

#[test]
fn a_launcher_of_another_family_is_refused() {
    check(true, &OMPI).unwrap();
    check(false, &HYDRA).unwrap();
    check(true, &[]).unwrap();
    check(false, &[]).unwrap();
    let error = check(false, &OMPI).unwrap_err();
    assert!(error.text().contains("each rank would start alone"), "{error}");
    let error = check(true, &HYDRA).unwrap_err();
    assert!(error.text().contains("PMI_RANK"), "{error}");
    for common in [("SLURM_STEP_ID", "0"), ("PMIX_RANK", "0"), ("PALS_RANKID", "0")] {
        check(true, &[HYDRA[0], HYDRA[1], common]).unwrap();
    }
    // If one launcher runs inside the other, the environment alone does not decide.
    let both = [OMPI, HYDRA].concat();
    check(true, &both).unwrap();
    check(false, &both).unwrap();
}

/// Temporary directory with empty files; dropping the value removes the directory.
struct Folder(PathBuf);

impl Folder {
    fn with(files: &[&str]) -> Self {
        let number = process::random_u64().expect("random");
        let root = std::env::temp_dir().join(format!("dtl-launcher-{number:x}"));
        for file in files.iter().map(|file| root.join(file)) {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, "").expect("written");
        }
        Folder(root)
    }

    fn at(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tried(pairs: &[(&str, &str)], programs: &[&str], is_privileged: bool) -> Vec<String> {
    let programs = programs.iter().map(PathBuf::from).collect();
    let around = LaunchContext { variable: &lookup(pairs), programs, is_privileged };
    candidates(&around).iter().map(|candidate| candidate.name.display().to_string()).collect()
}

#[test]
fn names_fit_the_launcher() {
    assert_eq!(tried(&OMPI, &[], false), ["libmpi.so.40"]);
    assert_eq!(tried(&HYDRA, &[], false)[0], "libmpich.so.12");
    assert!(!tried(&HYDRA, &[], false).contains(&"libmpi.so.40".to_owned()));
    assert_eq!(tried(&[], &[], false).len(), 6);
    let opt = Folder::with(&["lib/libmpi.so.12", "lib/release/libmpi.so.12", "lib/libmpi.so.40"]);
    let root = opt.at("");
    let intel = [HYDRA[0], HYDRA[1], ("I_MPI_HYDRA_UUID", "1"), ("I_MPI_ROOT", &root)];
    assert_eq!(
        tried(&intel, &[], false)[..3],
        [opt.at("lib/libmpi.so.12"), opt.at("lib/release/libmpi.so.12"), "libmpi.so.12".to_owned()]
    );
    assert_eq!(tried(&intel, &[], true)[..2], ["libmpi.so.12", "libmpich.so.12"]);
    let own = [OMPI[0], ("OPAL_PREFIX", &root)];
    assert_eq!(tried(&own, &[], false), [opt.at("lib/libmpi.so.40"), "libmpi.so.40".to_owned()]);
    assert_eq!(tried(&own, &[], true), ["libmpi.so.40"]);
}

#[test]
fn the_launchers_own_library_comes_before_what_the_loader_finds() {
    let five = Folder::with(&[
        "bin/hydra_pmi_proxy",
        "lib/libmpi.so.12",
        "lib/libmpi_abi.so.1",
        "lib/libmpi.so.40",
    ]);
    let old = Folder::with(&["libmpich.so.12", "libmpi.so.40"]);
    let path = format!(":lib:{}:/no/such/folder", old.at(""));
    let environment = [HYDRA[0], HYDRA[1], ("LD_LIBRARY_PATH", &path)];
    let proxy = five.at("bin/hydra_pmi_proxy");
    let programs = ["/usr/bin/bash", "", &proxy, "/usr/bin/orterun"];
    let expected =
        [five.at("lib/libmpi.so.12"), five.at("lib/libmpi_abi.so.1"), old.at("libmpich.so.12")];
    assert_eq!(tried(&environment, &programs, false)[..3], expected);
    assert_eq!(tried(&environment, &programs, false)[3], "libmpich.so.12");
    assert_eq!(tried(&environment, &["/usr/bin/bash"], false)[0], expected[2], "no launcher above");
    assert_eq!(tried(&environment, &programs, true)[0], "libmpich.so.12");
    let open = [OMPI[0], ("LD_LIBRARY_PATH", &path)];
    let prted = five.at("bin/prted");
    assert_eq!(
        tried(&open, &[&prted], false),
        [five.at("lib/libmpi.so.40"), old.at("libmpi.so.40"), "libmpi.so.40".to_owned()]
    );
}

#[test]
fn the_processes_above_are_known() {
    let parent = process::program_of(process::parent_pid()).expect("its program");
    assert_eq!(LaunchContext::of_this_process().programs.first(), Some(&parent));
    assert!(process::parent_of(process::own_pid()).is_ok_and(|pid| pid == process::parent_pid()));
}
