use super::*;

#[test]
fn part8_a_nap_ends_when_a_row_falls_due_and_never_outlasts_the_policy() {
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    assert_eq!(nap(Some(second * 3), minute, false), second * 3);
    assert_eq!(nap(None, minute, false), NAP, "another replica may have died with a lease");
    assert_eq!(nap(None, second, false), second);
    assert_eq!(nap(Some(second * 3), second, false), second);
    assert_eq!(nap(Some(Duration::ZERO), minute, false), BREATH);
    assert_eq!(nap(Some(Duration::ZERO), minute, true), CROWDED);
}
