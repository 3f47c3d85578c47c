//! Tests of `discovery`.

use super::*;

#[test]
fn what_is_no_mpi_says_why() {
    let folder = std::env::temp_dir();
    let long_gone = "/no/such/libmpi.so";
    for (path, said) in [
        (long_gone, "No such file"),
        ("/bin/ls", "cannot dynamically load"),
        ("/etc/passwd", "ELF"),
        (folder.to_str().unwrap(), "directory"),
        ("libc.so.6", "MPI_Comm_rank"),
    ] {
        let error = load(Path::new(path), "").err().unwrap();
        assert!(error.contains(said), "{path}: {error}");
    }
    assert!(is_called_as_an_mpi(Path::new("/x/libmpich.so.12")));
    assert!(
        !is_called_as_an_mpi(Path::new("/x/libfmpi.so"))
            && !is_called_as_an_mpi(Path::new("/x/libmpi.a"))
    );
}

#[test]
fn short_names() {
    for (version, name) in [
        (
            "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4",
            "Open MPI 4.1.4",
        ),
        ("MPICH Version:\t4.0.2\nMPICH Release date:\tThu", "MPICH 4.0.2"),
        ("MVAPICH Version :      3.0", "MVAPICH 3.0"),
        ("Intel(R) MPI Library 2021.19.0 for Linux* OS\n", "Intel MPI 2021.19.0"),
        ("MPI-Serial 2.3", "MPI-Serial 2.3"),
    ] {
        assert_eq!(short_name(version), name);
    }
}

#[test]
fn versions_tell_the_family() {
    for text in [
        "MPICH Version:\t4.0.2\n",
        "Intel(R) MPI Library 2021",
        "MVAPICH Version : 3.0",
        "CRAY MPICH 8",
    ] {
        assert!(is_mpich(text), "{text}");
    }
    assert!(!is_mpich("MPI-Serial 2.3") && !is_mpich("Open MPI v4.1.4"));
    assert!(unknown("MPI-Serial 2.3\nmore").text().contains("\"MPI-Serial 2.3\""));
    assert!(
        is_standard_file(OsStr::new("libmpi_abi.so.1.0"))
            && !is_standard_file(OsStr::new("libmpi.so.12"))
    );
}
