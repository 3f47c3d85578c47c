//! Tests of `job_id`.

use super::*;

fn claimed(job: &[u8], rank: i32, is_only_open: bool) -> (JobId, Arc<Claim>) {
    let (identity, claim) = take(job, rank, is_only_open);
    (identity, claim.expect("claim"))
}

#[test]
fn opens_are_counted_per_rank_and_job() {
    let job = format!("job-id-{}", process::own_pid());
    let (first, one) = claimed(job.as_bytes(), 0, false);
    let (second, two) = claimed(job.as_bytes(), 0, false);
    let (other, _claim) = claimed(job.as_bytes(), 1, false);
    assert!(Arc::ptr_eq(&one, &two));
    assert!(first.meeting.ends_with("-open1") && second.meeting.ends_with("-open2"));
    assert_eq!((&first.meeting, first.cookie), (&other.meeting, other.cookie));
    assert_ne!(first.cookie, claimed(b"other", 0, false).0.cookie);
}
#[test]
fn a_name_for_one_open_is_not_remembered() {
    let job = format!("once-{}", process::own_pid());
    let known = || MEMBERS.lock().contains_key(&(hash(job.as_bytes(), 0), 3));
    let (only, claim) = claimed(job.as_bytes(), 3, true);
    assert!(only.meeting.ends_with("-open1") && !known());
    // The rank is claimed nevertheless.
    assert!(
        holder(&format!("dtl-{}-{:016x}-rank3", process::own_uid(), hash(job.as_bytes(), 0)))
            .is_some()
    );
    drop(claim);
    claimed(job.as_bytes(), 3, false);
    assert!(known());
}

#[test]
fn ranks_of_another_user_are_seen() {
    let (own, job) = (process::own_uid(), format!("two-users-{}", process::own_pid()));
    let (job_id, _claim) = take(job.as_bytes(), 0, true);
    assert_eq!(other_users(&job_id), "");
    let _rank =
        unix_socket::listen(&format!("dtl-{}-{:016x}-rank1", own + 7, hash(job.as_bytes(), 0)))
            .expect("listen");
    let text = other_users(&job_id);
    assert!(text.contains(&format!("user {} has ranks", own + 7)), "{text}");
}
