//! Tests of `compiler`.

use super::*;

#[test]
fn rules_are_read() {
    let rule = "/tmp/a b/kernels.so: /tmp/s.c \\\n  /usr/include/x.h \\\n /a\\ b/c.h /d$$e.h \
        /f\\#g.h\n\n/usr/include/x.h:\n";
    let paths = prerequisites(&rule.replace("a b/kernels", "k"));
    assert_eq!(paths, ["/tmp/s.c", "/usr/include/x.h", "/a b/c.h", "/d$e.h", "/f#g.h"]);
    assert!(prerequisites("").is_empty());
}
