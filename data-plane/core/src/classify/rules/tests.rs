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
        let by_status = rule.id.starts_with("status.") || rule.id.starts_with("words.");
        assert!(rule.class != Class::Disable || rule.confirm == by_status, "{}", rule.id);
    }
}

#[test]
fn phrases_are_anchored_and_wildcards_are_short() {
    let hit = |message: &str, pattern: &'static str| starts(message, &parts(pattern));
    assert!(hit("the Model `gpt x` does not exist or", "The model * does not exist"));
    assert!(hit("The model gpt-4o does not exist", "The model * does not exist"));
    assert!(!hit("The model expects a list, which does not exist", "The model * does not exist"));
    assert!(!hit("Sorry. The model x does not exist", "The model * does not exist"));
    assert!(hit("当前分组 default 下对于模型 gpt-4o 无可用渠道 (x)", "当前分组…无可用渠道"));
    assert!(!hit(&format!("当前分组{}无可用渠道", "长".repeat(80)), "当前分组…无可用渠道"));
    assert!(hit("Not Found.", "Not Found$"));
    assert!(!hit("Not Found: file", "Not Found$"));
    assert!(!hit("", "* is not a valid model"));
}
