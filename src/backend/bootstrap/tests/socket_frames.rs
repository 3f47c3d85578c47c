//! Tests of `socket_frames`.

use super::*;

#[test]
fn a_descriptor_behind_a_frame_is_left_to_its_reader() {
    let (one, two) = UnixStream::pair().expect("pair");
    two.set_nonblocking(true).expect("set");
    let (mut one, mut two) = (Channel::new(one), Channel::new(two));
    for len in [0, 5, 5000] {
        one.queue(7, &vec![1; len]);
        assert!(!one.flush().expect("sent"));
        unix_socket::send_descriptor(&one.stream, one.as_fd()).expect("sent");
        let limit = Deadline::after(10_000_000_000);
        assert!(matches!(two.receive(len, limit), Ok((7, bytes)) if bytes == vec![1; len]));
        unix_socket::receive_descriptor(&two.stream).expect("received");
    }
    assert!(matches!(two.receive(9, Deadline::after(1_000_000)), Err(FrameFailure::Silent)));
    one.queue(7, &[0; 10]);
    drop(one.flush());
    assert!(matches!(two.receive(9, Deadline::NEVER), Err(FrameFailure::TooLong(10))));
    drop(one);
    let (one, two) = UnixStream::pair().expect("pair");
    drop(one);
    assert!(matches!(Channel::new(two).receive(9, Deadline::NEVER), Err(FrameFailure::Ended(_))));
}
