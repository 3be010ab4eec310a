use tonic::Code;
use tonic_types::StatusExt;

use super::*;

#[test]
fn part5_every_violation_is_told_and_what_no_longer_fits_is_counted() {
    let mut few = Violations::default();
    few.add("a", "is empty");
    few.extend("channel", vec![Violation::new("name", "is taken")]);
    let status = few.done().unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::InvalidArgument, "a: is empty; channel.name: is taken")
    );
    assert_eq!(status.get_details_bad_request().unwrap().field_violations.len(), 2);

    let mut many = Violations::default();
    for i in 0..5000 {
        many.add(format!("channel.models[{i}].model"), "must not be empty");
    }
    let status = many.done().unwrap_err();
    let told = status.get_details_bad_request().unwrap().field_violations.len();
    assert!(told > 20 && status.message().ends_with(&format!("and {} more", 5000 - (told - 1))), "{told}");
    let trailers = status.into_http::<()>();
    let size: usize = trailers.headers().iter().map(|(n, v)| n.as_str().len() + v.len()).sum();
    assert!(size < 16 * 1024, "{size} bytes of trailers are more than clients take");
}

#[test]
fn part5_a_name_of_any_length_is_refused_in_few_words() {
    let status = of_store(StoreError::NotFound(format!("channel \"{}\"", "é".repeat(100_000))));
    assert_eq!(status.code(), Code::NotFound);
    assert!(status.message().len() < 1000);
}
