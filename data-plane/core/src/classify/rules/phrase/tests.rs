use super::*;

fn hit(message: &str, pattern: &'static str) -> bool {
    let mut phrases = Phrases::new();
    phrases.add("Some other phrase", 1, 0);
    phrases.add(pattern, 7, 3);
    phrases.add("The mo", 2, 0);
    let mut found = Vec::new();
    phrases.find(message, |rule, entry| found.push((rule, entry)));
    found.contains(&(7, 3))
}

#[test]
fn phrases_are_anchored_and_wildcards_are_short() {
    assert!(hit("the Model `gpt x` does not exist or", "The model * does not exist"));
    assert!(hit("The model gpt-4o does not exist", "The model * does not exist"));
    assert!(!hit("The model expects a list, which does not exist", "The model * does not exist"));
    assert!(!hit("Sorry. The model x does not exist", "The model * does not exist"));
    assert!(hit("当前分组 default 下对于模型 gpt-4o 无可用渠道 (x)", "当前分组…无可用渠道"));
    assert!(!hit(&format!("当前分组{}无可用渠道", "长".repeat(80)), "当前分组…无可用渠道"));
    assert!(hit("Not Found.", "Not Found$"));
    assert!(!hit("Not Found: file", "Not Found$"));
    assert!(!hit("", "* is not a valid model"));
    assert!(!hit(&format!("{} is not a valid model", "x".repeat(201)), "* is not a valid model"));
    assert!(hit(&format!("{} is not a valid model", "x".repeat(200)), "* is not a valid model"));
}

#[test]
fn phrases_that_begin_alike_are_all_found() {
    let mut phrases = Phrases::new();
    for (entry, pattern) in
        ["Model *", "Model * not found", "model", "Modell", "* not found"].iter().enumerate()
    {
        phrases.add(pattern, 0, entry);
    }
    let mut found = Vec::new();
    phrases.find("Model x not found", |_, entry| found.push(entry));
    found.sort_unstable();
    assert_eq!(found, [0, 1, 2]);
}
