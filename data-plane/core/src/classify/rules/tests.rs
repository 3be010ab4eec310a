use super::*;

#[test]
fn ids_are_unique_and_ordered_as_documented() {
    let mut seen = std::collections::HashSet::new();
    for rule in all() {
        assert!(seen.insert(rule.id), "{} is used twice", rule.id);
    }
    let place = |id: &str| all().iter().position(|rule| rule.id == id).unwrap_or_else(|| panic!("{id}"));
    assert!(place("aggregator.fault") < place("phrase.balance"));
    assert!(place("endpoint.scope") < place("code.key"));
    assert!(place("number.zhipu.balance") < place("code.model"));
    assert!(place("code.model") < place("code.request"));
    assert!(place("code.request") < place("number.minimax.fault"));
    assert!(place("code.overload") < place("code.rate"));
    assert!(place("words.rate") < place("status.payment"));
}

#[test]
fn what_is_out_has_a_cause_and_models_are_confirmed() {
    for rule in all() {
        assert_eq!(rule.class == Class::Disable, rule.cause.is_some(), "{}", rule.id);
        assert!(rule.class != Class::ModelUnavailable || rule.confirm, "{}", rule.id);
        let doubtful = ["status.", "words.", "special.afford"].iter().any(|id| rule.id.starts_with(id));
        assert!(rule.class != Class::Disable || rule.confirm == doubtful, "{}", rule.id);
    }
}
