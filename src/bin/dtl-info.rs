//! dtl-info
fn main() {}
