//! Tests of `header_cache`.

use super::*;
use crate::backend::p2p_protocol::eager_head;

#[test]
fn what_one_end_tells_the_other_knows() {
    let (mut ours, mut theirs) = (HeaderCache::default(), HeaderCache::default());
    for word in (0..1000).map(|number| number << 32 | number) {
        let (place, is_known) = ours.place(word);
        assert!(!is_known);
        theirs.learn(place as u32 + 1, &eager_head(word, 100));
        ours.tell(place, word);
        assert_eq!((ours.place(word), theirs.known(place)), ((place, true), Some(word)));
    }
    theirs.learn(0, &eager_head(5, 0));
    theirs.learn(HEADS as u32 + 1, &eager_head(5, 0));
    assert_eq!(HeaderCache::default().known(7), None);
}
