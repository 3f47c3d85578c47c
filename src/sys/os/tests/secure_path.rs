//! Tests of `secure_path`.

use super::*;
use std::os::unix::fs::PermissionsExt;

#[test]
fn only_root_and_oneself_may_give_code() {
    let me = TrustedOwner { uid: 1000, is_privileged: false };
    assert!(judge(me, 1000, 0o755, false).is_none() && judge(me, 0, 0o644, false).is_none());
    assert!(judge(me, 1001, 0o755, false).is_some_and(|text| text.contains("user 1001")));
    let raised = TrustedOwner { uid: 1000, is_privileged: true };
    assert!(judge(raised, 1000, 0o755, true).is_some_and(|text| text.contains("root")));
    assert!(judge(raised, 0, 0o755, true).is_none());
}

#[test]
fn nobody_else_may_write() {
    let me = TrustedOwner { uid: 1000, is_privileged: false };
    let text = |mode, is_folder| judge(me, 1000, mode, is_folder).unwrap_or_default();
    assert!(text(0o775, false).contains("its group (mode 0775)"));
    assert!(text(0o757, true).contains("by others"));
    assert!(text(0o777, true).contains("its group and others"));
    assert!(
        text(0o1777, true).is_empty() && !text(0o1777, false).is_empty(),
        "sticky counts for folders"
    );
}

#[test]
fn real_files() {
    let folder = std::env::temp_dir().join(format!("dtl-trust-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let file = folder.join("file");
    fs::write(&file, "x").expect("a file");
    std::os::unix::fs::symlink(&file, folder.join("link")).expect("a link");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("mode")
    };
    mode(&folder, 0o755);
    mode(&file, 0o644);
    let (one, two) =
        (check_file(&file).expect("fine"), check_file(&folder.join("link")).expect("fine"));
    assert_eq!((one.identity, one.path), (two.identity, two.path));
    assert!(matches!(check_file(&folder), Err(Refusal::Untrusted(_))));
    assert!(matches!(check_file(&folder.join("none")), Err(Refusal::System(_))));
    mode(&folder, 0o777);
    assert!(matches!(check_file(&file), Err(Refusal::Untrusted(text)) if text.contains("the \
            folder")));
    mode(&folder, 0o1777);
    assert!(check_file(&file).is_ok());
    let below = folder.join("below");
    fs::create_dir(&below).expect("a folder");
    mode(&below, 0o755);
    mode(&folder, 0o757);
    assert!(
        matches!(check_folder(&below), Err(Refusal::Untrusted(text)) if text.contains("or +t"))
    );
    mode(&folder, 0o775);
    assert!(check_folder(&below).is_ok());
    mode(&folder, 0o1777);
    mode(&file, 0o666);
    assert!(
        matches!(check_file(&file), Err(Refusal::Untrusted(text)) if text.contains("the file"))
    );
    fs::remove_dir_all(&folder).expect("cleaned up");
}

#[test]
fn links_are_followed_like_the_kernel_does() {
    let folder = std::env::temp_dir().join(format!("dtl-trust-links-{}", std::process::id()));
    fs::create_dir_all(folder.join("a/b")).expect("folders");
    let link =
        |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).expect("a link");
    link("a/b", "relative");
    link(folder.join("a").to_str().expect("UTF-8"), "absolute");
    link("../relative/..", "a/up");
    link("loop", "loop");
    let cases = ["relative", "absolute/b", "a/up/b/../b/.", "./absolute/up/b", "a//b/"];
    for name in cases {
        let path = folder.join(name);
        assert_eq!(resolve(&path).expect(name), fs::canonicalize(&path).expect(name), "{name}");
    }
    assert!(matches!(resolve(&folder.join("loop")), Err(Refusal::System(error))
            if error.raw_os_error() == Some(libc::ELOOP)));
    assert!(matches!(resolve(&folder.join("none/b")), Err(Refusal::System(_))));
    assert!(matches!(resolve(Path::new("")), Err(Refusal::System(_))));
    let made = make_folder(&folder.join("relative/new/more")).expect("made");
    assert_eq!(made, fs::canonicalize(folder.join("a/b/new/more")).expect("there"));
    assert_eq!(fs::metadata(made).expect("there").mode() & 0o7777, 0o700);
    if crate::sys::os::process::own_uid() == 0 {
        fs::write(folder.join("file"), "x").expect("a file");
        link("file", "others");
        std::os::unix::fs::lchown(folder.join("others"), Some(4242), None).expect("root may");
        let refused = |answer: Result<PathBuf, Refusal>| {
            matches!(answer,
            Err(Refusal::Untrusted(text)) if text.contains("4242"))
        };
        assert!(refused(resolve(&folder.join("others"))));
        assert!(
            check_named_file(&folder.join("others")).is_ok(),
            "a site's libraries belong to its own user"
        );
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).expect("mode");
        assert!(
            refused(check_named_file(&folder.join("others"))),
            "everybody could have put it there"
        );
    } else {
        println!("not tested: links of other users, which only root can make");
    }
    fs::remove_dir_all(&folder).expect("cleaned up");
}
