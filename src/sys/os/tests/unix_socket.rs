//! Tests of `unix_socket`.

use super::*;
use std::io::{Read, Write};
use std::os::fd::AsFd;

#[test]
fn a_descriptor_travels() {
    let (a, b) = UnixStream::pair().expect("pair");
    let (mut read, write) = UnixStream::pair().expect("pair");
    send_descriptor(&a, write.as_fd()).expect("send");
    let mut arrived = std::fs::File::from(receive_descriptor(&b).expect("receive"));
    drop(write);
    arrived.write_all(b"through").expect("write");
    drop(arrived);
    let mut text = String::new();
    read.read_to_string(&mut text).expect("read");
    assert_eq!(text, "through");
}

#[test]
fn a_byte_without_a_descriptor_is_refused() {
    let (mut a, b) = UnixStream::pair().expect("pair");
    a.write_all(&[1]).expect("write");
    assert_eq!(receive_descriptor(&b).expect_err("none").kind(), ErrorKind::InvalidData);
    drop(a);
    assert_eq!(receive_descriptor(&b).expect_err("end").kind(), ErrorKind::UnexpectedEof);
}
