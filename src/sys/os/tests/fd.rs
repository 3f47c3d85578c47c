//! Tests of `fd`.

use super::*;

#[test]
fn what_is_no_descriptor_is_an_error() {
    // SAFETY: takes an integer, which is no descriptor.
    let error = new(unsafe { libc::dup(-1) }).expect_err("no descriptor");
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert_eq!(shortage(&error), None);
}

#[test]
fn a_shortage_names_its_limit() {
    let error = room_for(usize::try_from(most()).unwrap()).expect_err("some are open already");
    let text = shortage(&error).expect("a shortage");
    assert!(
        text.contains("ulimit -n") && text.contains(&format!(" {} open files", most())),
        "{text}"
    );
    let text = shortage(&io::Error::from_raw_os_error(libc::ENFILE)).expect("a shortage");
    assert!(text.contains("fs.file-max"), "{text}");
    room_for(1).expect("a descriptor");
}

#[test]
fn a_glimpse_does_not_open_and_stays_what_it_was() {
    let own = crate::sys::os::process::own_pid();
    let folder = File::open("/").expect("a folder");
    let seen = PathFd::of(own, folder.as_raw_fd()).expect("own descriptor");
    drop(folder);
    assert_eq!(seen.name().expect("still held").as_os_str(), "/");
    assert!(seen.open().is_err(), "it cannot be written");
    assert_eq!(
        PathFd::of(own, 1 << 20).err().map(|error| error.kind()),
        Some(io::ErrorKind::NotFound)
    );
}
