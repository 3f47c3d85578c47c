//! Tests of `eager_slots`.

use super::*;

#[test]
fn a_message_says_what_was_written_and_nothing_else_is_one() {
    let slab = Slab::new(2, 1).expect("memory");
    let data = Scratch::new(100).expect("memory");
    data.region().fill(7);
    let note = Note {
        about: NoteKind::Offer,
        word: 9,
        addr: u64::MAX,
        len: 1 << 40,
        keys: [1, 2, 3, u32::MAX],
    };
    for (kind, note) in
        [(EagerKind::Frame, None), (EagerKind::Fragment, Some(note)), (EagerKind::Note, Some(note))]
    {
        let message = EagerHeader { consumed: u32::MAX, kind, word: 1 << 27, note };
        let sent = message.write(slab.send(0), &[], data.region());
        let slot = slab.receive(1);
        slot.copy_from(sent);
        let (read, bytes) = EagerHeader::read(slot, sent.len()).expect("a message");
        assert_eq!((read, bytes.len()), (message, 100));
        assert_eq!(Scratch::copy_of(bytes).expect("memory").words(), data.words());
        assert!(EagerHeader::read(slot, sent.len() - 1).is_none());
        assert!(EagerHeader::read(slot, sent.len() + 1).is_none());
        assert!(EagerHeader::read(slot, 7).is_none());
    }
    slab.receive(0).fill(0xFF);
    assert!(EagerHeader::read(slab.receive(0), 100).is_none());
}
