//! Tests of `open_kind`.

use super::*;

fn launch(size: i32, local_size: i32) -> Launch {
    Launch { rank: 0, size, local_rank: 0, local_size, job: "j".into(), launcher: "test" }
}

#[test]
fn the_automatic_kind_follows_the_rules() {
    assert_eq!(automatic(None, None).unwrap(), "self");
    assert_eq!(automatic(None, Some(&launch(1, 1))).unwrap(), "self");
    assert_eq!(automatic(None, Some(&launch(4, 4))).unwrap(), "shm");
    assert_eq!(automatic(Some((0, 3)), None).unwrap(), "shm");
}

#[test]
fn over_several_nodes_the_first_kind_that_is_ready_is_chosen() {
    let ready = |names: &'static [&str]| {
        move |kind: &str| match names.contains(&kind) {
            true => Ok(()),
            false => fail!(DTL_ERROR_UNAVAILABLE, "no {kind}"),
        }
    };
    let choose = |names| several_nodes("8 ranks, 4 of them here", ready(names));
    assert_eq!(choose(&["hier", "mpi"]).unwrap(), "hier");
    assert_eq!(choose(&["mpi"]).unwrap(), "mpi");
    let error = choose(&[]).unwrap_err();
    assert_eq!(error.status(), crate::abi::status::DTL_ERROR_UNAVAILABLE);
    assert!(error.text().starts_with("8 ranks, 4 of them here, and"), "{error}");
    assert!(error.text().contains("no hier; no mpi; see"), "{error}");
}
