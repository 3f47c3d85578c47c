pub(super) enum Event {
    Message(usize, Vec<u8>),
    Gone { rank: usize, left: bool, why: String },
}
pub(super) struct Oob;
impl Oob {
    pub(super) fn send(&mut self, _rank: usize, _bytes: &[u8]) {}
    pub(super) fn poll(&mut self, _tell: &mut dyn FnMut(Event)) {}
    pub(super) fn leave(&mut self) {}
}
